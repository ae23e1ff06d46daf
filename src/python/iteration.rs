//! What iterators over samples and over batches share: a stream that is resumed and ended, and why it ended early.

use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::to_pyerr;
use super::fork::Home;
use super::state;
use crate::dataset::SavedState;
use crate::error::{CacheError, Result};
use crate::sync::{Mutex, lock};

/// A stream in the hands of an iterator, which threads may share.
pub struct Iteration<S: Send> {
    /// Shared with the dataset, whose position it is.
    pub stream: Arc<Mutex<S>>,
    /// Ends the threads of the stream.
    close: fn(&mut S),
    /// Why it ended early: raised again rather than mistaken for the end.
    failure: Mutex<Option<PyErr>>,
    /// The process that has its threads.
    pub home: Home,
    /// Whether its consumer is warned if it starves.
    pub is_watched: bool,
}

impl<S: Send> Iteration<S> {
    /// Of what `stream` delivers in this process, until `close` ends it.
    pub fn new(stream: Arc<Mutex<S>>, close: fn(&mut S), is_watched: bool) -> Self {
        Self {
            stream,
            close,
            failure: Mutex::default(),
            home: Home::here(),
            is_watched,
        }
    }

    /// # Errors
    /// What ended it early.
    pub fn check_failure(&self, py: Python<'_>) -> PyResult<()> {
        match lock(&self.failure).as_ref() {
            Some(failure) => Err(failure.clone_ref(py)),
            None => Ok(()),
        }
    }

    /// The exception for what ends it early, which is kept.
    pub fn fail(&self, py: Python<'_>, error: CacheError) -> PyErr {
        let failure = to_pyerr(error);
        *lock(&self.failure) = Some(failure.clone_ref(py));
        failure
    }

    /// Where to resume after what was received last, which `saved` tells of a stream.
    pub fn state_dict<'py>(
        &self,
        py: Python<'py>,
        saved: fn(&S) -> Result<SavedState>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        let saved = py.detach(|| saved(&lock(&self.stream)));
        state::to_dict(py, &saved.map_err(to_pyerr)?)
    }

    /// Starts again where `state` was taken, with the stream that `resumed` makes of this one.
    pub fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        resumed: impl FnOnce(&S, &SavedState) -> Result<S> + Send,
    ) -> PyResult<()> {
        self.home.check()?;
        let saved = state::from_dict(state)?;
        py.detach(|| {
            let mut stream = lock(&self.stream);
            *stream = resumed(&stream, &saved)?;
            Ok(())
        })
        .map_err(to_pyerr)?;
        *lock(&self.failure) = None;
        Ok(())
    }

    /// Ends the threads, in the process that has them.
    pub fn close(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    fn end(&self) {
        if self.home.is_here() {
            (self.close)(&mut lock(&self.stream));
        }
    }
}

impl<S: Send> Drop for Iteration<S> {
    /// Ends the threads: the dataset keeps the stream for its position, not for what it delivers. Other Python threads go on
    /// while a worker finishes its record.
    fn drop(&mut self) {
        if Python::try_attach(|py| self.close(py)).is_none() {
            self.end();
        }
    }
}
