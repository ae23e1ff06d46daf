//! Batches of one rank, epoch after epoch, and where to resume after the last one received.

use std::sync::Arc;
use std::task::Poll;

use super::consumer::Consumer;
use super::gather::Batch;
use super::recipe::Recipe;
use super::state::{Cursor, SavedState};
use super::steps::{BatchOptions, Runs, Step, Steps};
use crate::error::{CacheError, Result};
use crate::reader::{
    BatchReader, CorruptSamples, Delivered, LoadedBatch, Profile, ReaderOptions, Selection, Told,
};

/// What waiting for a batch came to.
pub enum Polled {
    /// The next batch and its step.
    Batch(Step, Batch),
    /// Not yet; ask again.
    Waiting,
    /// There is none left, or the stream was closed.
    Ended,
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
        let told = Told {
            corrupt: recipe.caches.corrupt(),
            profile,
        };
        let started = BatchReader::start(
            runs,
            batch_size,
            selection.clone(),
            caches,
            reader,
            told,
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
        let outcome = match self.consumer.wait(|interrupt| reader.next_batch(interrupt)) {
            Ok(Poll::Pending) => return Ok(Polled::Waiting),
            Ok(Poll::Ready(loaded)) => self.with_step(loaded),
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

    /// What was loaded next, and the step that it is.
    fn with_step(&mut self, loaded: Option<LoadedBatch>) -> Result<Polled> {
        match (self.steps.next().transpose()?, loaded) {
            (Some(step), Some(loaded)) => {
                let batch = Batch {
                    samples: loaded.samples,
                    columns: loaded.columns,
                    left_out: loaded.left_out,
                    caches: Arc::clone(&self.recipe.caches),
                };
                Ok(Polled::Batch(step, batch))
            }
            (None, None) => Ok(Polled::Ended),
            _ => Err(CacheError::internal("steps and batches do not go together")),
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
