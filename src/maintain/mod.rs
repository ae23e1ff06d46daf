//! A cache's life: one generation in, another or a report out. Readers of earlier generations notice nothing.

mod blank;
mod changed;
pub mod compact;
mod contents;
mod copier;
pub mod copy;
pub mod delete;
pub mod findings;
pub mod lease;
mod manifests;
mod record;
pub mod repair;
mod rows;
mod scan;
mod shard;
pub mod stats;
mod tables;
mod usage;
pub mod vacuum;
pub mod verify;
mod window;

pub use changed::Changed;
pub use findings::{Finding, Kind, Report};
pub use verify::{Progress, validate, verify};
