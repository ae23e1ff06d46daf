//! Caches of several shapes, and the ways to read them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::store::cache::Cache;
use dataset_rt::store::pool::FilePool;
use dataset_rt::types::Io;

use super::caches::{Layout, samples, write_here};

/// Every way to read a file.
pub const ENGINES: [Io; 3] = [Io::Mmap, Io::Pread, Io::Auto];

/// Numbers of threads.
pub const WORKERS: [usize; 3] = [1, 2, 8];

/// Samples of all [`caches`].
pub const SAMPLES: usize = 61 + 40 + 19 + 30;

/// Caches of many shards: tiny payloads, compressed ones, some too large to be copied by the reader, and some that need
/// a dictionary.
pub fn caches(folder: &Path) -> Vec<PathBuf> {
    vec![
        write_here(folder, "tiny", Layout::none(1000), &samples(61, 9)),
        write_here(folder, "packed", Layout::lz4(3000), &samples(40, 700)),
        write_here(folder, "large", Layout::none(20_000), &samples(19, 6000)),
        write_here(folder, "small", Layout::trained(2000), &samples(30, 300)),
    ]
}

/// Opens caches as a reader takes them.
pub fn open(paths: &[PathBuf], io: Io) -> Arc<[Arc<Cache>]> {
    let pool = Arc::new(FilePool::new(io));
    let open = |path: &PathBuf| Arc::new(Cache::open(path, Arc::clone(&pool)).unwrap());
    paths.iter().map(open).collect()
}
