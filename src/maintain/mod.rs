//! A cache's life: one generation in, another or a report out. Readers of earlier generations notice nothing.

mod changed;
pub mod delete;
pub mod lease;
pub mod vacuum;

pub use changed::Changed;
