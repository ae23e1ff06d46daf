//! Whole batches in order: each run is one batch, loaded by one worker into one buffer.

use std::sync::Arc;

use super::ReaderOptions;
use super::chunk::Chunk;
use super::loader::{Loader, Placement};
use super::pipeline::{Pipeline, Run};
use crate::error::Result;
use crate::limits::RUNS_MAX;
use crate::store::cache::Cache;

/// Batches, loaded ahead by worker threads. Dropping it stops them.
pub struct BatchReader {
    runs: Box<dyn Iterator<Item = Result<Run>> + Send>,
    pipeline: Pipeline,
}

impl BatchReader {
    /// Starts loading `runs`, one batch each. At most `prefetch_size` samples are in flight, in at most [`RUNS_MAX`]
    /// batches; but always one batch more than there are workers.
    ///
    /// # Errors
    /// [`crate::error::CacheError::Option`] for an option outside its range.
    pub fn start(
        runs: Box<dyn Iterator<Item = Result<Run>> + Send>,
        batch_size: usize,
        caches: &Arc<[Arc<Cache>]>,
        options: ReaderOptions,
    ) -> Result<Self> {
        options.check()?;
        let depth = (options.prefetch_size / batch_size.max(1))
            .min(RUNS_MAX)
            .max(options.num_workers + 1);
        let loader = || {
            Loader::new(
                Arc::clone(caches),
                options.io,
                options.verify,
                Placement::InChunk,
            )
            .among(options.num_workers)
        };
        let mut reader = Self {
            runs,
            pipeline: Pipeline::start(options.num_workers, depth, loader)?,
        };
        reader.schedule()?;
        Ok(reader)
    }

    /// The next batch in order, or `None` after the last; its payloads lie beside each other in one buffer.
    ///
    /// `interrupt` is called about every 50 ms of waiting; its error ends the wait and is returned.
    ///
    /// # Errors
    /// As [`Loader::load`] for the first sample of the batch that cannot be read, and whatever `interrupt` returns.
    pub fn next_batch(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Chunk>> {
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
            None => Ok(Some(outcome.chunk)),
        }
    }

    /// Stops the workers and waits for them: each finishes at most the record it is reading.
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
