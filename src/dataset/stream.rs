//! Iteration with a memory: samples or batches, and where to resume after the last one received.

use std::sync::Arc;

use super::recipe::Recipe;
use super::state::{Cursor, SavedState};
use super::steps::{BatchOptions, Runs, Step, Steps};
use crate::error::Result;
use crate::reader::{BatchReader, Chunk, ReaderOptions, Sample, SampleReader};

/// This consumer's place among those that share one order.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// Number of this consumer.
    pub rank: u64,
    /// Number of consumers.
    pub world_size: u64,
}

/// Samples of the rest of one epoch: batches of one, so with `world_size` consumers each takes every `world_size`-th.
pub struct SampleStream {
    recipe: Arc<Recipe>,
    options: ReaderOptions,
    ranks: Ranks,
    /// Where reading started.
    start: Cursor,
    /// Samples handed out since.
    received: u64,
    ended: bool,
    reader: Option<SampleReader>,
    chunk: Chunk,
    place: usize,
}

impl SampleStream {
    /// Starts reading at `start`.
    pub fn new(
        recipe: Arc<Recipe>,
        options: ReaderOptions,
        ranks: Ranks,
        start: Cursor,
    ) -> Result<Self> {
        super::steps::check_rank(ranks.rank, ranks.world_size)?;
        let order = recipe.epoch(start.epoch)?;
        let plan = Arc::new(recipe.plan(order, start.position + ranks.rank, ranks.world_size));
        let reader = SampleReader::start(plan, recipe.caches.list(), options)?;
        Ok(Self {
            recipe,
            options,
            ranks,
            start,
            received: 0,
            ended: false,
            reader: Some(reader),
            chunk: Chunk::default(),
            place: 0,
        })
    }

    /// The next sample, if it is loaded already.
    pub fn take(&mut self) -> Option<Sample<'_>> {
        let sample = self.chunk.get(self.place)?;
        self.place += 1;
        self.received += 1;
        Some(sample)
    }

    /// Whether [`SampleStream::take`] has nothing to give before the next [`SampleStream::load`].
    pub fn is_drained(&self) -> bool {
        self.place >= self.chunk.len()
    }

    /// Waits for more samples; `false` means the epoch has ended or the stream was closed.
    ///
    /// # Errors
    /// As [`SampleReader::next_chunk`]; the stream is closed then.
    pub fn load(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        let Some(reader) = &mut self.reader else {
            return Ok(false);
        };
        reader.recycle(std::mem::take(&mut self.chunk));
        self.place = 0;
        match reader.next_chunk(interrupt) {
            Ok(Some(chunk)) => {
                self.chunk = chunk;
                Ok(true)
            }
            Ok(None) => {
                self.ended = true;
                self.close();
                Ok(false)
            }
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// Where a consumer that has received what was handed out resumes; the same on all ranks after equally many samples.
    pub fn cursor(&self) -> Result<Cursor> {
        if self.ended {
            return self.recipe.cursor(self.start.epoch, u64::MAX);
        }
        let taken = self.received.saturating_mul(self.ranks.world_size);
        self.recipe
            .cursor(self.start.epoch, self.start.position.saturating_add(taken))
    }

    /// The state at [`SampleStream::cursor`].
    pub fn state(&self) -> Result<SavedState> {
        Ok(self.recipe.state(self.cursor()?))
    }

    /// A stream like this one that starts where `saved` says.
    ///
    /// # Errors
    /// As [`Recipe::resume`].
    pub fn resumed(&self, saved: &SavedState, ignore: &[String]) -> Result<Self> {
        let start = self.recipe.resume(saved, ignore)?;
        Self::new(Arc::clone(&self.recipe), self.options, self.ranks, start)
    }

    /// Stops the threads; nothing more is delivered.
    pub fn close(&mut self) {
        self.reader = None;
        self.chunk = Chunk::default();
        self.place = 0;
    }

    /// Leaves threads that do not exist in this process alone.
    pub fn abandon(&mut self) {
        std::mem::forget(self.reader.take());
        self.close();
    }
}

/// Batches of one rank from a cursor on.
pub struct BatchStream {
    recipe: Arc<Recipe>,
    reader_options: ReaderOptions,
    options: BatchOptions,
    /// The steps not delivered yet; the reader runs ahead with a copy.
    steps: Steps,
    cursor: Cursor,
    reader: Option<BatchReader>,
}

impl BatchStream {
    /// Starts reading at `start`.
    pub fn new(
        recipe: Arc<Recipe>,
        reader: ReaderOptions,
        options: BatchOptions,
        start: Cursor,
    ) -> Result<Self> {
        let steps = Steps::new(Arc::clone(&recipe), options, start)?;
        let runs = Box::new(Runs::new(steps.clone()));
        let batch_size = usize::try_from(options.batch_size).unwrap_or(usize::MAX);
        let started = BatchReader::start(runs, batch_size, recipe.caches.list(), reader)?;
        Ok(Self {
            recipe,
            reader_options: reader,
            options,
            steps,
            cursor: start,
            reader: Some(started),
        })
    }

    /// The next batch with its step, or `None` after the last.
    ///
    /// # Errors
    /// As [`BatchReader::next_batch`]; the stream is closed then.
    pub fn next(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<(Step, Chunk)>> {
        let Some(reader) = &mut self.reader else {
            return Ok(None);
        };
        let outcome = reader.next_batch(interrupt).and_then(|chunk| {
            match (self.steps.next().transpose()?, chunk) {
                (Some(step), Some(chunk)) => Ok(Some((step, chunk))),
                _ => Ok(None),
            }
        });
        match &outcome {
            Ok(Some((step, _))) => self.cursor = step.after,
            _ => self.close(),
        }
        outcome
    }

    /// Batches left, if they end.
    pub fn remaining(&self) -> Result<Option<u64>> {
        self.steps.remaining()
    }

    /// The state after the last batch received; the same on all ranks.
    pub fn state(&self) -> Result<SavedState> {
        Ok(self.recipe.state(self.cursor))
    }

    /// A stream like this one that starts where `saved` says.
    ///
    /// # Errors
    /// As [`Recipe::resume`].
    pub fn resumed(&self, saved: &SavedState, ignore: &[String]) -> Result<Self> {
        let start = self.recipe.resume(saved, ignore)?;
        Self::new(
            Arc::clone(&self.recipe),
            self.reader_options,
            self.options,
            start,
        )
    }

    /// Stops the threads; nothing more is delivered.
    pub fn close(&mut self) {
        self.reader = None;
    }

    /// Leaves threads that do not exist in this process alone.
    pub fn abandon(&mut self) {
        std::mem::forget(self.reader.take());
    }
}
