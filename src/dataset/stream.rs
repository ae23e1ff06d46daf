//! Iteration with a memory: samples or batches, and where to resume after the last one received.

use std::sync::Arc;

use super::consumer::Consumer;
use super::gather::Batch;
use super::plan::{Path, Share};
use super::recipe::Recipe;
use super::state::{Cursor, SavedState};
use super::steps::{BatchOptions, Runs, Step, Steps};
use crate::error::{CacheError, Result};
use crate::reader::{
    BatchReader, Chunk, CorruptSamples, Delivered, LoadedBatch, Profile, ReaderOptions, Sample,
    SampleReader, Selection, Told,
};
use crate::sampling::position::{Remainder, Split};

/// This consumer's place among those that share one order.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// Number of this consumer.
    pub rank: u64,
    /// Number of consumers.
    pub world_size: u64,
}

impl Ranks {
    /// The only consumer.
    pub const SINGLE: Self = Self {
        rank: 0,
        world_size: 1,
    };
}

/// How a rank takes samples out of the global order: as batches of one, so every `world_size`-th position.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// What happens to positions that do not give each rank a sample.
    pub remainder: Remainder,
    /// Samples that a worker takes at a time.
    pub block: u64,
    /// The blocks that this worker takes.
    pub share: Share,
    /// This consumer.
    pub ranks: Ranks,
}

impl SampleOptions {
    /// Every sample of a rank, in one stream.
    pub fn plain(ranks: Ranks) -> Self {
        Self {
            remainder: Remainder::Keep,
            block: 1,
            share: Share::ALL,
            ranks,
        }
    }

    /// Which positions of the rest of an epoch of `len` positions these are, and how many the rank has before its workers
    /// share them.
    fn path(&self, len: u64, start: u64) -> Result<(Path, u64)> {
        let Ranks { rank, world_size } = self.ranks;
        let steps = Split::new(len, start, 1, world_size, self.remainder)?.steps();
        let open = len.saturating_sub(start);
        let count = match self.remainder {
            Remainder::Keep => open.saturating_sub(rank).div_ceil(world_size),
            Remainder::Drop | Remainder::Pad => steps,
        };
        let path = Path::new(start + rank, world_size, count, self.block, self.share);
        Ok((path, count))
    }
}

/// What waiting for samples came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There are samples to take.
    More,
    /// Not yet; ask again.
    Waiting,
    /// There are none left, or the stream was closed.
    Ended,
}

/// What waiting for a batch came to.
pub enum Polled {
    /// The next batch and its step.
    Batch(Step, Batch),
    /// Not yet; ask again.
    Waiting,
    /// There is none left, or the stream was closed.
    Ended,
}

/// Samples of the rest of one epoch.
pub struct SampleStream {
    recipe: Arc<Recipe>,
    reader_options: ReaderOptions,
    options: SampleOptions,
    /// Where reading started.
    start: Cursor,
    path: Path,
    /// Samples of this rank from the start to the end of the epoch, those of other workers included.
    count: u64,
    /// Positions passed since: of samples handed out, and of damaged ones left out before them.
    received: u64,
    ended: bool,
    reader: Option<SampleReader>,
    chunk: Chunk,
    place: usize,
    /// Samples of the chunk that were counted as delivered.
    counted: usize,
    consumer: Consumer,
}

impl SampleStream {
    /// Starts reading at `start`.
    pub fn new(
        recipe: Arc<Recipe>,
        reader_options: ReaderOptions,
        options: SampleOptions,
        start: Cursor,
        profile: &Arc<Profile>,
    ) -> Result<Self> {
        super::steps::check_rank(options.ranks.rank, options.ranks.world_size)?;
        options.share.check()?;
        let order = recipe.epoch(start.epoch)?;
        let (path, count) = options.path(order.len(), start.position)?;
        let plan = Arc::new(recipe.plan(order, path));
        let told = told(&recipe, profile);
        let reader = SampleReader::start(plan, recipe.caches.list(), reader_options, told)?;
        Ok(Self {
            recipe,
            reader_options,
            options,
            start,
            path,
            count,
            received: 0,
            ended: false,
            reader: Some(reader),
            chunk: Chunk::default(),
            place: 0,
            counted: 0,
            consumer: Consumer::new(Arc::clone(profile)),
        })
    }

    /// The next sample, if it is loaded already.
    pub fn take(&mut self) -> Option<Sample<'_>> {
        let sample = self.chunk.get(self.place)?;
        self.received += 1 + self.chunk.left_out_before(self.place);
        self.place += 1;
        Some(sample)
    }

    /// Whether [`SampleStream::take`] has nothing to give before the next [`SampleStream::load`].
    pub fn is_drained(&self) -> bool {
        self.place >= self.chunk.len()
    }

    /// Waits a moment for more samples.
    ///
    /// # Errors
    /// As [`SampleReader::next_chunk`]; the stream is closed then.
    pub fn poll(&mut self) -> Result<Loaded> {
        if !self.is_drained() {
            return Ok(Loaded::More);
        }
        self.count();
        let Some(reader) = &mut self.reader else {
            return Ok(Loaded::Ended);
        };
        let asked = self.consumer.asks();
        let left_out = self.chunk.left_out_before(self.chunk.len());
        self.received += left_out;
        if left_out > 0 || !self.chunk.is_empty() {
            reader.recycle(std::mem::take(&mut self.chunk));
            (self.place, self.counted) = (0, 0);
        }
        let next = reader.next_chunk(&mut || Err(CacheError::Interrupted));
        self.consumer
            .is_answered(asked, matches!(next, Ok(Some(_))));
        match next {
            Ok(Some(chunk)) => {
                self.chunk = chunk;
                match self.chunk.is_empty() {
                    // All samples were damaged and left out.
                    true => Ok(Loaded::Waiting),
                    false => Ok(Loaded::More),
                }
            }
            Ok(None) => {
                self.ended = true;
                self.close();
                Ok(Loaded::Ended)
            }
            Err(CacheError::Interrupted) => Ok(Loaded::Waiting),
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    /// Waits for more samples; `false` means the epoch has ended or the stream was closed.
    ///
    /// # Errors
    /// As [`SampleStream::poll`], and whatever `interrupt` returns, which is called about every 50 ms.
    pub fn load(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        loop {
            match self.poll()? {
                Loaded::More => return Ok(true),
                Loaded::Ended => return Ok(false),
                Loaded::Waiting => interrupt()?,
            }
        }
    }

    /// Where a consumer that has received what was handed out, and what other workers hand out before that, resumes; the
    /// same on all ranks after equally many samples.
    pub fn cursor(&self) -> Result<Cursor> {
        let taken = match self.received.checked_sub(1) {
            Some(last) => self.path.before(last).saturating_add(1),
            None if self.options.share.step == 1 => self.path.before(0),
            None => 0,
        };
        let is_rest_dropped = self.options.remainder == Remainder::Drop && taken >= self.count;
        if self.ended || is_rest_dropped {
            return self.recipe.cursor(self.start.epoch, u64::MAX);
        }
        let passed = taken.saturating_mul(self.options.ranks.world_size);
        self.recipe
            .cursor(self.start.epoch, self.start.position.saturating_add(passed))
    }

    /// The state at [`SampleStream::cursor`], or `None` after the last sample.
    pub fn unfinished_state(&self) -> Result<Option<SavedState>> {
        let cursor = self.cursor()?;
        Ok((cursor.epoch == self.start.epoch).then(|| self.recipe.state(cursor)))
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
        let recipe = Arc::clone(&self.recipe);
        let profile = self.consumer.profile();
        Self::new(recipe, self.reader_options, self.options, start, profile)
    }

    /// Where the time goes.
    pub fn profile(&self) -> &Arc<Profile> {
        self.consumer.profile()
    }

    /// Damaged samples that were met in this process.
    pub fn corrupt(&self) -> &Arc<CorruptSamples> {
        self.recipe.caches.corrupt()
    }

    /// Positions of this stream that were passed: of samples handed out, and of damaged ones left out before them.
    pub fn passed(&self) -> u64 {
        self.received
    }

    /// Tells the profile what was taken since it was last told.
    pub fn count(&mut self) {
        let taken = self.counted..self.place;
        if taken.is_empty() {
            return;
        }
        let payload_bytes = if taken == (0..self.chunk.len()) {
            self.chunk.payload_bytes()
        } else {
            let samples = taken.clone().filter_map(|place| self.chunk.get(place));
            samples.map(|sample| sample.payload.len()).sum()
        };
        self.counted = self.place;
        self.consumer.takes(Delivered {
            samples: taken.len() as u64,
            payload_bytes: payload_bytes as u64,
            ..Delivered::default()
        });
    }

    /// Stops the threads; nothing more is delivered.
    pub fn close(&mut self) {
        self.count();
        self.reader = None;
        self.chunk = Chunk::default();
        (self.place, self.counted) = (0, 0);
    }
}

impl Drop for SampleStream {
    fn drop(&mut self) {
        self.count();
    }
}

fn told<'a>(recipe: &'a Recipe, profile: &'a Arc<Profile>) -> Told<'a> {
    Told {
        corrupt: recipe.caches.corrupt(),
        profile,
    }
}

/// Batches of one rank from a cursor on.
pub struct BatchStream {
    recipe: Arc<Recipe>,
    reader_options: ReaderOptions,
    options: BatchOptions,
    selection: Selection,
    /// The steps not delivered yet; the reader runs ahead with a copy.
    steps: Steps,
    cursor: Cursor,
    /// Epoch after the last one to deliver, if there is a last one.
    end: Option<u64>,
    reader: Option<BatchReader>,
    consumer: Consumer,
}

impl BatchStream {
    /// Starts reading at `start`.
    pub fn new(
        recipe: Arc<Recipe>,
        reader: ReaderOptions,
        options: BatchOptions,
        selection: Selection,
        start: Cursor,
        profile: &Arc<Profile>,
    ) -> Result<Self> {
        let steps = Steps::new(Arc::clone(&recipe), options, start)?;
        let runs = Box::new(Runs::new(steps.clone()));
        let batch_size = usize::try_from(options.batch_size).unwrap_or(usize::MAX);
        let caches = recipe.caches.list();
        let gatherer = || recipe.caches.gatherer(reader.verify, reader.populate_bytes);
        let started = BatchReader::start(
            runs,
            batch_size,
            selection.clone(),
            caches,
            reader,
            told(&recipe, profile),
            gatherer,
        )?;
        Ok(Self {
            recipe,
            reader_options: reader,
            options,
            selection,
            steps,
            cursor: start,
            end: options
                .epochs
                .map(|epochs| u64::from(start.epoch).saturating_add(epochs)),
            reader: Some(started),
            consumer: Consumer::new(Arc::clone(profile)),
        })
    }

    /// Waits a moment for the next batch.
    ///
    /// # Errors
    /// As [`BatchReader::next_batch`]; the stream is closed then.
    pub fn poll(&mut self) -> Result<Polled> {
        let Some(reader) = &mut self.reader else {
            return Ok(Polled::Ended);
        };
        let asked = self.consumer.asks();
        let next = reader.next_batch(&mut || Err(CacheError::Interrupted));
        self.consumer
            .is_answered(asked, matches!(next, Ok(Some(_))));
        let outcome = match next {
            Err(CacheError::Interrupted) => return Ok(Polled::Waiting),
            Ok(loaded) => self
                .steps
                .next()
                .transpose()
                .and_then(|step| match (step, loaded) {
                    (Some(step), Some(loaded)) => Ok(Polled::Batch(step, self.batch(loaded))),
                    (None, None) => Ok(Polled::Ended),
                    _ => Err(CacheError::internal("steps and batches do not go together")),
                }),
            Err(error) => Err(error),
        };
        match &outcome {
            Ok(Polled::Batch(step, batch)) => {
                self.cursor = step.after;
                let columns = batch.columns.iter();
                let bytes: usize = columns.map(|column| column.extent.byte_len).sum();
                self.consumer.takes(Delivered {
                    samples: batch.samples.len() as u64,
                    batches: 1,
                    payload_bytes: bytes as u64,
                    ..Delivered::default()
                });
            }
            _ => self.close(),
        }
        outcome
    }

    fn batch(&self, loaded: LoadedBatch) -> Batch {
        Batch {
            samples: loaded.samples,
            columns: loaded.columns,
            left_out: loaded.left_out,
            caches: Arc::clone(&self.recipe.caches),
        }
    }

    /// The next batch with its step, or `None` after the last.
    ///
    /// # Errors
    /// As [`BatchStream::poll`], and whatever `interrupt` returns, which is called about every 50 ms.
    pub fn next(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<(Step, Batch)>> {
        loop {
            match self.poll()? {
                Polled::Batch(step, batch) => return Ok(Some((step, batch))),
                Polled::Ended => return Ok(None),
                Polled::Waiting => interrupt()?,
            }
        }
    }

    /// Batches left, if they end.
    pub fn remaining(&self) -> Result<Option<u64>> {
        self.steps.remaining()
    }

    /// The state after the last batch received, or `None` after the last of all.
    pub fn unfinished_state(&self) -> Result<Option<SavedState>> {
        let is_over = self.steps.remaining()? == Some(0);
        (!is_over).then(|| self.state()).transpose()
    }

    /// The state after the last batch received; the same on all ranks.
    pub fn state(&self) -> Result<SavedState> {
        Ok(self.recipe.state(self.cursor))
    }

    /// A stream like this one that starts where `saved` says and ends after the same epoch as this one.
    ///
    /// # Errors
    /// As [`Recipe::resume`].
    pub fn resumed(&self, saved: &SavedState, ignore: &[String]) -> Result<Self> {
        let start = self.recipe.resume(saved, ignore)?;
        let epochs = self
            .end
            .map(|end| end.saturating_sub(u64::from(start.epoch)));
        let options = BatchOptions {
            epochs,
            ..self.options
        };
        Self::new(
            Arc::clone(&self.recipe),
            self.reader_options,
            options,
            self.selection.clone(),
            start,
            self.consumer.profile(),
        )
    }

    /// Where the time goes.
    pub fn profile(&self) -> &Arc<Profile> {
        self.consumer.profile()
    }

    /// Damaged samples that were met in this process.
    pub fn corrupt(&self) -> &Arc<CorruptSamples> {
        self.recipe.caches.corrupt()
    }

    /// What decides the order of these batches.
    pub fn recipe(&self) -> &Arc<Recipe> {
        &self.recipe
    }

    /// The next position to be delivered.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Stops the threads; nothing more is delivered.
    pub fn close(&mut self) {
        self.reader = None;
    }
}
