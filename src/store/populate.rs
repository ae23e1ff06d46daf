//! Reads caches that fit into memory, from front to back, before they are asked for.
//!
//! Reading a file in order is several times faster than reading its records as an order draws them, so a dataset that
//! turns out not to be in memory, and has room there, is read ahead in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cache::Cache;
use super::memory::available_bytes;
use crate::sync::{OnceLock, spawn};

/// Bytes that are read before it is asked whether to go on.
const STEP: usize = 16 << 20;

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
            let (caches, stop) = (Arc::clone(&self.caches), Arc::clone(&self.stop));
            // Without a thread nothing is read ahead, which is all that is lost.
            let _ = spawn("populate", move || populate(&caches, &stop));
        });
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

/// What cannot be read here is left for the reader that needs it, which says what is wrong.
fn populate(caches: &[Arc<Cache>], stop: &AtomicBool) {
    for cache in caches {
        for number in 0..cache.manifest().shards.len() as u64 {
            let Ok(file) = cache.shard(number) else {
                return;
            };
            let Some(map) = file.map() else { continue };
            for start in (0..map.bytes().len()).step_by(STEP) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                map.populate(start, STEP);
            }
        }
    }
}
