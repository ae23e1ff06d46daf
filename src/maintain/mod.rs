//! A cache's life: one generation in, another or a report out. Readers of earlier generations notice nothing.

mod changed;
pub mod delete;

pub use changed::Changed;
