//! What a dataset is opened with.

use super::ranks::Ranks;
use super::recipe::OrderOptions;
use crate::sampling::order::Mode;
use crate::types::{Io, OnCorrupt, Verify};

/// Options of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct DatasetOptions {
    /// How epochs are drawn.
    pub order: OrderOptions,
    /// This consumer among those that share the order.
    pub ranks: Ranks,
    /// Most samples in flight.
    pub prefetch_size: usize,
    /// Reader threads of an iterator.
    pub num_workers: usize,
    /// What is compared with its checksum while reading.
    pub verify: Verify,
    /// How files are read.
    pub io: Io,
    /// Most bytes of shards that are read ahead as a whole, in the background.
    pub populate_bytes: u64,
    /// Whether opening hashes every file and compares every record with the metadata table.
    pub validate_cache: bool,
    /// What becomes of damaged samples while iterating.
    pub on_corrupt: OnCorrupt,
}

impl DatasetOptions {
    /// The options of a `ReaderConfig` of which only the seed was given.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            order: OrderOptions {
                mode: Mode::WithReplacement,
                seed,
                epoch_length: None,
            },
            ranks: Ranks::SINGLE,
            prefetch_size: 64,
            num_workers: 4,
            verify: Verify::First,
            io: Io::Auto,
            populate_bytes: 0,
            validate_cache: false,
            on_corrupt: OnCorrupt::Raise,
        }
    }
}
