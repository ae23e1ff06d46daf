//! Samples of one epoch in order, and where to resume after the last one received.

use std::sync::Arc;
use std::task::Poll;

use super::consumer::Consumer;
use super::plan::Path;
use super::ranks::SampleOptions;
use super::recipe::Recipe;
use super::state::{Cursor, SavedState};
use crate::error::Result;
use crate::reader::{
    Chunk, CorruptSamples, Delivered, Profile, ReaderOptions, Sample, SampleReader, Told,
};
use crate::sampling::position::Remainder;

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
        options.ranks.check()?;
        options.share.check()?;
        let order = recipe.epoch(start.epoch)?;
        let (path, count) = options.path(order.len(), start.position)?;
        let plan = Arc::new(recipe.plan(order, path));
        let told = Told {
            corrupt: recipe.caches.corrupt(),
            profile,
        };
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
        let next = self.consumer.wait(|interrupt| {
            let left_out = self.chunk.left_out_before(self.chunk.len());
            self.received += left_out;
            if left_out > 0 || !self.chunk.is_empty() {
                reader.recycle(std::mem::take(&mut self.chunk));
                (self.place, self.counted) = (0, 0);
            }
            reader.next_chunk(interrupt)
        });
        match next {
            Ok(Poll::Pending) => Ok(Loaded::Waiting),
            Ok(Poll::Ready(Some(chunk))) => {
                self.chunk = chunk;
                match self.chunk.is_empty() {
                    // All samples were damaged and left out.
                    true => Ok(Loaded::Waiting),
                    false => Ok(Loaded::More),
                }
            }
            Ok(Poll::Ready(None)) => {
                self.ended = true;
                self.close();
                Ok(Loaded::Ended)
            }
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
