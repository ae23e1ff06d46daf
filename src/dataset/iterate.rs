//! Iterators over epochs: each call takes the next epochs, and moves where the one after it starts.

use std::sync::Arc;

use super::Dataset;
use super::batch_stream::BatchStream;
use super::options::DatasetOptions;
use super::ranks::SampleOptions;
use super::recipe::Recipe;
use super::sample_stream::SampleStream;
use super::session::Latest;
use super::state::Cursor;
use super::steps::BatchOptions;
use crate::error::{CacheError, Result};
use crate::reader::{ReaderOptions, Selection};
use crate::sync::{Mutex, lock};
use crate::types::Io;

impl Dataset {
    /// How an iterator reads.
    pub(super) fn reader_options(&self, io: Io) -> ReaderOptions {
        let DatasetOptions {
            prefetch_size,
            num_workers,
            verify,
            populate_bytes,
            on_corrupt,
            ..
        } = self.options;
        ReaderOptions {
            prefetch_size,
            num_workers,
            verify,
            io,
            populate_bytes,
            on_corrupt,
        }
    }

    /// Where the next iterator starts.
    pub fn next(&self) -> Result<Cursor> {
        Ok(self.state()?.next)
    }

    /// Chooses the epoch that the next iterator delivers from its start.
    pub fn set_epoch(&self, epoch: u32) -> Result<()> {
        let mut state = self.state()?;
        state.next = Cursor { epoch, position: 0 };
        state.latest = None;
        Ok(())
    }

    /// Starts an iterator over the next epoch, or the rest of it, with the weights of this moment; the one after it gets
    /// the epoch after it.
    ///
    /// # Errors
    /// [`CacheError::Limit`] after the last epoch number, or if the rows are too many to be weighted.
    pub fn samples(&self, options: SampleOptions) -> Result<Arc<Mutex<SampleStream>>> {
        let profile = self.counters()?;
        let make = |recipe: &Arc<Recipe>, start| {
            let reader = self.reader_options(recipe.caches.io());
            SampleStream::new(Arc::clone(recipe), reader, options, start, &profile)
        };
        self.begin(1, make, Latest::Samples)
    }

    /// Starts an iterator over batches from the next epoch, or the rest of it, on; the next iterator gets the epoch after
    /// the last of this one.
    ///
    /// # Errors
    /// As [`Dataset::samples`], and [`CacheError::Option`] for a batch size of 0.
    pub fn batches(
        &self,
        options: BatchOptions,
        selection: Selection,
    ) -> Result<Arc<Mutex<BatchStream>>> {
        let profile = self.counters()?;
        let make = |recipe: &Arc<Recipe>, start| {
            let reader = self.reader_options(recipe.caches.io());
            let recipe = Arc::clone(recipe);
            BatchStream::new(recipe, reader, options, selection, start, &profile)
        };
        self.begin(options.epochs.unwrap_or(1), make, Latest::Batches)
    }

    /// Starts an iterator of `epochs` epochs: takes them at once, so that two threads never get the same, and gives them
    /// back if the iterator cannot be made.
    fn begin<T>(
        &self,
        epochs: u64,
        make: impl FnOnce(&Arc<Recipe>, Cursor) -> Result<T>,
        latest: impl FnOnce(Arc<Mutex<T>>) -> Latest,
    ) -> Result<Arc<Mutex<T>>> {
        if epochs == 0 {
            return Err(CacheError::option("epochs", "at least 1", epochs));
        }
        self.catch_up()?;
        let mut state = self.state()?;
        let (recipe, start) = (Arc::clone(&state.recipe), state.next);
        let last = u64::from(start.epoch).saturating_add(epochs);
        let epoch = u32::try_from(last).map_err(|_| CacheError::Limit {
            what: "epoch".to_owned(),
            found: last,
            limit: u64::from(u32::MAX),
        })?;
        let after = Cursor { epoch, position: 0 };
        state.next = after;
        // Tables that weights cost may take a while; other threads go on meanwhile.
        drop(state);
        let made = make(&recipe, start);
        let mut state = self.state()?;
        match made {
            Ok(stream) => {
                let stream = Arc::new(Mutex::new(stream));
                // Another thread may have gone on meanwhile; then its iterator is the later one.
                if state.next == after {
                    state.latest = Some(latest(Arc::clone(&stream)));
                }
                Ok(stream)
            }
            Err(error) => {
                if state.next == after {
                    state.next = start;
                }
                Err(error)
            }
        }
    }

    /// Moves the next epoch behind what the last iterator has delivered: it may be endless, or have loaded a state.
    fn catch_up(&self) -> Result<()> {
        let state = self.state()?;
        let (next, latest) = (state.next, state.latest.clone());
        drop(state);
        let reached = match latest {
            None => return Ok(()),
            Some(Latest::Samples(stream)) => lock(&stream).cursor()?,
            Some(Latest::Batches(stream)) => lock(&stream).cursor(),
        };
        let epoch = reached
            .epoch
            .saturating_add(u32::from(reached.position > 0));
        let mut state = self.state()?;
        if state.next == next && epoch > next.epoch {
            state.next = Cursor { epoch, position: 0 };
        }
        Ok(())
    }
}
