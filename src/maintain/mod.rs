//! A cache's life: one generation in, another or a report out. Readers of earlier generations notice nothing.

mod blank;
mod changed;
pub mod compact;
mod copier;
pub mod copy;
pub mod delete;
pub mod lease;
pub mod repair;
pub mod stats;
mod usage;
pub mod vacuum;
mod window;

pub use changed::Changed;
