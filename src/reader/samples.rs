//! Single samples in plan order: schedules short runs, so that the first sample comes soon and later ones cheaply.

use std::collections::VecDeque;
use std::sync::Arc;

use super::chunk::Chunk;
use super::corrupt::Mending;
use super::loader::Loader;
use super::pipeline::{Pipeline, Run};
use super::{Plan, ReaderOptions, Told};
use crate::error::{CacheError, Result};
use crate::limits::{CHUNK_BYTES_TARGET, CHUNK_SAMPLES_MAX, RUNS_MAX};
use crate::store::cache::Cache;

/// Samples of a plan in order, loaded ahead by worker threads. Dropping it stops them.
pub struct SampleReader {
    plan: Arc<dyn Plan>,
    prefetch_size: usize,
    /// First position that no run covers yet.
    next_position: u64,
    /// Lengths of the runs that are out, and of the chunk last handed out.
    out: VecDeque<usize>,
    held: usize,
    in_flight: usize,
    run_len: usize,
    pipeline: Pipeline<Chunk>,
    failure: Option<CacheError>,
}

impl SampleReader {
    /// Starts reading `plan` from its first position.
    ///
    /// # Errors
    /// [`CacheError::Option`] for an option outside its range.
    pub fn start(
        plan: Arc<dyn Plan>,
        caches: &Arc<[Arc<Cache>]>,
        options: ReaderOptions,
        told: Told<'_>,
    ) -> Result<Self> {
        options.check()?;
        let workers = usize::try_from(plan.len())
            .unwrap_or(usize::MAX)
            .min(options.num_workers);
        let mending = Mending::new(caches, options.on_corrupt, told.corrupt);
        let loader = || {
            Loader::new(Arc::clone(caches), options.io, options.verify)
                .among(workers)
                .mending(mending.clone())
        };
        let mut reader = Self {
            plan,
            prefetch_size: options.prefetch_size,
            next_position: 0,
            out: VecDeque::new(),
            held: 0,
            in_flight: 0,
            run_len: 1,
            pipeline: Pipeline::start(workers, runs(options.prefetch_size), loader, told.profile)?,
            failure: None,
        };
        reader.schedule()?;
        Ok(reader)
    }

    /// The next samples in order, perhaps none where all were left out, or `None` after the last; a sample that cannot be read is reported in its place,
    /// after the samples before it, and ends the iteration.
    ///
    /// `interrupt` is called about every 50 ms of waiting; its error ends the wait and is returned.
    ///
    /// # Errors
    /// As [`Loader::append`], and whatever `interrupt` returns.
    pub fn next_chunk(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Chunk>> {
        self.in_flight -= std::mem::take(&mut self.held);
        if let Some(failure) = self.failure.take() {
            self.close();
            return Err(failure);
        }
        self.schedule()?;
        if !self.pipeline.is_waiting() {
            self.close();
            return Ok(None);
        }
        let outcome = self.pipeline.next(interrupt)?;
        self.held = self.out.pop_front().unwrap_or(0);
        self.adapt(&outcome.loaded);
        match outcome.failure {
            Some(failure) if outcome.loaded.is_empty() => {
                self.close();
                Err(failure)
            }
            failure => {
                self.failure = failure;
                Ok(Some(outcome.loaded))
            }
        }
    }

    /// Takes back a chunk whose samples were consumed, to use its memory again.
    pub fn recycle(&mut self, mut chunk: Chunk) {
        chunk.clear();
        self.pipeline.recycle(chunk);
    }

    /// Stops the workers and waits for them: each finishes at most the record it is reading.
    pub fn close(&mut self) {
        self.pipeline.close();
    }

    /// Submits runs until `prefetch_size` samples are in flight or the plan ends.
    fn schedule(&mut self) -> Result<()> {
        while self.next_position < self.plan.len() && self.pipeline.has_room() {
            let left = usize::try_from(self.plan.len() - self.next_position).unwrap_or(usize::MAX);
            let count = self.run_len.min(left);
            // A short run at the edge of the window would cost as much as a full one.
            if self.in_flight + count > self.prefetch_size {
                break;
            }
            self.pipeline.submit(Run {
                plan: Arc::clone(&self.plan),
                start: self.next_position,
                count,
            })?;
            self.next_position += count as u64;
            self.in_flight += count;
            self.out.push_back(count);
        }
        Ok(())
    }

    /// Makes later runs longer until a chunk holds enough bytes, so that small samples cost few wake-ups and large ones
    /// are spread over the workers.
    fn adapt(&mut self, chunk: &Chunk) {
        let mean = chunk.payload_bytes() / chunk.len().max(1);
        let by_bytes = CHUNK_BYTES_TARGET / mean.max(1);
        let by_window = (self.prefetch_size / 4).max(1);
        self.run_len = (self.held * 2)
            .min(by_bytes)
            .min(by_window)
            .clamp(1, CHUNK_SAMPLES_MAX);
    }
}

/// Runs that may be out at once for a window of `prefetch_size` samples.
fn runs(prefetch_size: usize) -> usize {
    prefetch_size
        .div_ceil(CHUNK_SAMPLES_MAX)
        .max(RUNS_MAX)
        .min(prefetch_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_runs_fill_the_window_and_short_ones_are_few() {
        assert_eq!([1, 64, 1024, 65_536].map(runs), [1, 64, 1024, 1024]);
        assert_eq!(runs(1 << 20), 16_384);
    }
}
