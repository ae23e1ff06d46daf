//! Whole batches in order: each run is one batch, gathered by one worker into memory of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::corrupt::Mending;
use super::gather::{Column, Gatherer, Selection};
use super::laps::Laps;
use super::mend::mend_batch;
use super::pipeline::{Load, Pipeline, Run};
use super::{ReaderOptions, Told};
use crate::error::{CacheError, Result};
use crate::limits::{BATCH_BYTES_AHEAD_MAX, RUNS_MAX};
use crate::store::cache::Cache;
use crate::types::SampleRef;

/// Samples and the columns gathered for them.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The samples in order.
    pub samples: Vec<SampleRef>,
    /// One column per chosen field.
    pub columns: Vec<Column>,
    /// Rows of damaged samples, which hold nothing; ascending.
    pub left_out: Vec<usize>,
}

/// Batches, loaded ahead by worker threads. Dropping it stops them.
pub struct BatchReader {
    runs: Box<dyn Iterator<Item = Result<Run>> + Send>,
    pipeline: Pipeline<Loaded>,
}

/// What a worker needs for batches.
struct BatchLoader {
    gatherer: Gatherer,
    selection: Arc<Selection>,
    mending: Mending,
}

impl Load for BatchLoader {
    type Loaded = Loaded;

    fn load(
        &mut self,
        run: &Run,
        samples: Vec<SampleRef>,
        loaded: &mut Loaded,
        stop: &AtomicBool,
    ) -> Result<Vec<SampleRef>> {
        let mut interrupt = || match stop.load(Ordering::Relaxed) {
            true => Err(CacheError::Interrupted),
            false => Ok(()),
        };
        let (gatherer, selection) = (&mut self.gatherer, &*self.selection);
        match gatherer.gather(&samples, selection, None, &mut interrupt) {
            Ok(columns) => (loaded.samples, loaded.columns) = (samples, columns),
            Err(error) => {
                let (mending, interrupt) = (&self.mending, &mut interrupt);
                let mended =
                    mend_batch(gatherer, mending, run, samples, selection, error, interrupt)?;
                *loaded = Loaded {
                    samples: mended.samples,
                    columns: mended.columns,
                    left_out: mended.left_out,
                };
            }
        }
        Ok(Vec::new())
    }

    fn laps(&mut self) -> &mut Laps {
        self.gatherer.laps()
    }
}

impl BatchReader {
    /// Starts loading `runs`, one batch of up to `batch_size` samples each, with a gatherer from `gatherer` per worker. At
    /// most `prefetch_size` samples are in flight, but always one batch more than there are workers; and no more than
    /// [`BATCH_BYTES_AHEAD_MAX`] bytes by the mean sample of the caches, but always one batch.
    ///
    /// # Errors
    /// [`CacheError::Option`] for an option outside its range.
    pub fn start(
        runs: Box<dyn Iterator<Item = Result<Run>> + Send>,
        batch_size: usize,
        selection: Selection,
        caches: &Arc<[Arc<Cache>]>,
        options: ReaderOptions,
        told: Told<'_>,
        gatherer: impl Fn() -> Gatherer,
    ) -> Result<Self> {
        options.check()?;
        let by_samples = (options.prefetch_size / batch_size.max(1))
            .min(RUNS_MAX)
            .max(options.num_workers + 1);
        let batch_bytes = mean_sample_bytes(caches).saturating_mul(batch_size as u64);
        let by_bytes = BATCH_BYTES_AHEAD_MAX / batch_bytes.max(1);
        let depth = by_samples
            .min(usize::try_from(by_bytes).unwrap_or(usize::MAX))
            .max(1);
        let selection = Arc::new(selection);
        let loader = || BatchLoader {
            gatherer: gatherer(),
            selection: Arc::clone(&selection),
            mending: Mending::new(caches, options.on_corrupt, told.corrupt),
        };
        let mut reader = Self {
            runs,
            pipeline: Pipeline::start(options.num_workers.min(depth), depth, loader, told.profile)?,
        };
        reader.schedule()?;
        Ok(reader)
    }

    /// The next batch in order, or `None` after the last.
    ///
    /// `interrupt` is called about every 50 ms of waiting; its error ends the wait and is returned.
    ///
    /// # Errors
    /// As [`Gatherer::gather`] for the first batch that cannot be read, and whatever `interrupt` returns.
    pub fn next_batch(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Loaded>> {
        self.schedule()?;
        if !self.pipeline.is_waiting() {
            self.pipeline.close();
            return Ok(None);
        }
        let outcome = self.pipeline.next(interrupt)?;
        match outcome.failure {
            Some(failure) => {
                self.close();
                Err(failure)
            }
            None => Ok(Some(outcome.loaded)),
        }
    }

    /// Stops the workers and waits for them: each finishes at most the batch it is reading.
    pub fn close(&mut self) {
        self.pipeline.close();
    }

    fn schedule(&mut self) -> Result<()> {
        while self.pipeline.has_room() {
            let Some(run) = self.runs.next() else { break };
            self.pipeline.submit(run?)?;
        }
        Ok(())
    }
}

/// Mean length of a payload over all caches, in bytes, by their manifests.
fn mean_sample_bytes(caches: &[Arc<Cache>]) -> u64 {
    let (mut bytes, mut samples) = (0_u64, 0_u64);
    for cache in caches {
        samples = samples.saturating_add(cache.len());
        for shard in &cache.manifest().shards {
            bytes = bytes.saturating_add(shard.uncompressed_byte_len);
        }
    }
    bytes / samples.max(1)
}
