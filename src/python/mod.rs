//! The Python extension: thin frozen wrappers, and the only place that names PyO3. Work happens detached from the interpreter.

mod append;
mod arrays;
mod arrow;
mod batch;
mod batches;
mod buffer;
mod corrupt;
mod dataset;
mod errors;
mod fault;
mod fields;
mod fork;
mod gather;
mod ingest;
mod inspect;
mod iteration;
mod iterator;
mod maintain;
mod mapping;
mod metadata;
mod names;
mod options;
mod payload;
mod profile;
mod pull;
mod sample;
mod signals;
mod source;
mod state;
mod stats;
mod tables;
mod verify;
mod views;
mod writer;
mod writer_config;

use pyo3::pymodule;

/// The native half of `dataset_rt`.
#[pymodule]
mod _dataset_rt {
    #[pymodule_export]
    use super::append::append_cache;
    #[pymodule_export]
    use super::arrow::ArrowTable;
    #[pymodule_export]
    use super::batch::NativeBatch;
    #[pymodule_export]
    use super::batches::BatchIterator;
    #[pymodule_export]
    use super::buffer::{NativeArray, large_binary};
    #[pymodule_export]
    use super::dataset::CachedDataset;
    #[pymodule_export]
    use super::dataset::sample_bits;
    #[pymodule_export]
    use super::fork::after_fork_in_child;
    #[pymodule_export]
    use super::inspect::{cache_summaries, find_caches, record_checksums, record_lengths};
    #[pymodule_export]
    use super::iterator::SampleIterator;
    #[pymodule_export]
    use super::maintain::{
        compact_cache, delete_samples, lease_generation, release_lease, repair_cache, vacuum_cache,
    };
    #[pymodule_export]
    use super::stats::cache_stats;
    #[pymodule_export]
    use super::verify::verify_cache;
    #[pymodule_export]
    use super::writer::write_cache;
}
