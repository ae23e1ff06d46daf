//! Reads caches that fit into memory, from front to back, before they are asked for.
//!
//! Reading a file in order is several times faster than reading its records as an order draws them, so a dataset that
//! turns out not to be in memory, and has room there, is read ahead in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::Cache;
use super::memory::available_bytes;
use crate::sync::{OnceLock, spawn};

/// Bytes that are read before it is asked whether to go on.
const STEP: usize = 16 << 20;
/// Threads that read, a shard each: what the system reads ahead of one does not keep a disk busy.
const THREADS: usize = 4;

/// Reads caches ahead once it is told to. Dropping it ends that.
#[derive(Debug)]
pub struct Populator {
    caches: Arc<[Arc<Cache>]>,
    budget: u64,
    started: OnceLock<()>,
    stop: Arc<AtomicBool>,
}

impl Populator {
    /// Will read `caches`, if all their shards together have no more bytes than `budget` and half of the memory that is
    /// available then.
    pub fn new(caches: Arc<[Arc<Cache>]>, budget: u64) -> Self {
        Self {
            caches,
            budget,
            started: OnceLock::new(),
            stop: Arc::default(),
        }
    }

    /// Starts to read, the first time it is called.
    pub fn start(&self) {
        self.started.get_or_init(|| {
            if !self.fits(available_bytes()) {
                return;
            }
            let shards: Arc<[Shard]> = self.shards().collect();
            let next = Arc::new(AtomicUsize::new(0));
            for _ in 0..THREADS.min(shards.len()) {
                let (shards, next) = (Arc::clone(&shards), Arc::clone(&next));
                let stop = Arc::clone(&self.stop);
                // Without a thread nothing is read ahead, which is all that is lost.
                let _ = spawn("populate", move || {
                    while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
                        populate(shard, &stop);
                    }
                });
            }
        });
    }

    /// All shards in table order.
    fn shards(&self) -> impl Iterator<Item = Shard> {
        let numbers = |cache: &Cache| 0..cache.manifest().shards.len() as u64;
        let caches = self.caches.iter();
        caches.flat_map(move |cache| numbers(cache).map(|number| (Arc::clone(cache), number)))
    }

    fn fits(&self, available: Option<u64>) -> bool {
        let shards = self
            .caches
            .iter()
            .flat_map(|cache| &cache.manifest().shards);
        let bytes = shards.fold(0_u64, |sum, shard| sum.saturating_add(shard.byte_len));
        bytes <= self.budget && available.is_some_and(|available| bytes <= available / 2)
    }
}

impl Drop for Populator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A cache and the number of a shard of it.
type Shard = (Arc<Cache>, u64);

/// Reads a shard. What cannot be read here is left for the reader that needs it, which says what is wrong.
fn populate((cache, number): &Shard, stop: &AtomicBool) {
    if stop.load(Ordering::Relaxed) {
        return;
    }
    let Ok(file) = cache.shard(*number) else {
        return;
    };
    let Some(map) = file.map() else { return };
    for start in (0..map.bytes().len()).step_by(STEP) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        map.populate(start, STEP);
    }
}
