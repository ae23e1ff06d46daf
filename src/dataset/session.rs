//! What changes while a dataset is in use, and how a process that was forked gets a state of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Dataset;
use super::batch_stream::BatchStream;
use super::recipe::Recipe;
use super::sample_stream::SampleStream;
use super::state::Cursor;
use crate::error::{CacheError, Result};
use crate::reader::Profile;
use crate::sync::{Mutex, MutexGuard, TryLockError, lock, process_id, yield_now};

/// What the threads that share a dataset change.
pub(super) struct State {
    /// The process that `recipe` may lock things in.
    pub(super) process: u32,
    pub(super) recipe: Arc<Recipe>,
    /// Where the next iterator starts.
    pub(super) next: Cursor,
    /// The last iterator, whose progress is the dataset's.
    pub(super) latest: Option<Latest>,
    /// Where the time goes in this process.
    pub(super) profile: Arc<Profile>,
}

/// An iterator that a dataset was asked for.
#[derive(Clone)]
pub enum Latest {
    /// Of samples.
    Samples(Arc<Mutex<SampleStream>>),
    /// Of batches.
    Batches(Arc<Mutex<BatchStream>>),
}

impl Dataset {
    /// The state, with caches that this process may use.
    pub(super) fn state(&self) -> Result<MutexGuard<'_, State>> {
        let process = process_id();
        if process == self.process {
            return Ok(lock(&self.state));
        }
        let mut state = try_lock_forked(&self.state)?;
        if state.process != process {
            let Recipe {
                caches,
                rows,
                weights,
                options,
                ..
            } = &*state.recipe;
            let recipe = Recipe::new(
                Arc::new(caches.for_child()?),
                rows.clone(),
                weights.clone(),
                *options,
            );
            // What the parent's recipe locks may stay locked for ever here, so it is left alone rather than dropped.
            std::mem::forget(std::mem::replace(&mut state.recipe, Arc::new(recipe)));
            std::mem::forget(state.latest.take());
            state.profile = Arc::default();
            state.process = process;
        }
        Ok(state)
    }

    /// What decides the order at this moment.
    pub(super) fn recipe(&self) -> Result<Arc<Recipe>> {
        Ok(Arc::clone(&self.state()?.recipe))
    }
}

/// Locks a mutex that may have been held by a thread which a fork did not copy.
fn try_lock_forked<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => yield_now(),
            Err(TryLockError::WouldBlock) => return Err(CacheError::ForkedDataset),
        }
    }
}
