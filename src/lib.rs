//! The core of DatasetRT: cache files, deterministic order, and bounded read and write pipelines.
//!
//! Modules are listed from the floor up; each may import only what stands above it in this list. PyO3 appears only in
//! `python`, behind the feature of the same name.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a test may stop at the first surprise"
    )
)]

pub mod error;
mod huge;
pub mod limits;
pub mod sync;
pub mod types;

pub mod format;
pub mod sampling;
pub mod store;

pub mod maintain;
pub mod reader;
pub mod writer;

pub mod dataset;

#[cfg(feature = "python")]
mod python;
