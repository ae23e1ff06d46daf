//! Iteration over the samples of an epoch.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use super::corrupt;
use super::errors::to_pyerr;
use super::fork::Home;
use super::profile;
use super::sample::SampleBuilder;
use super::state;
use crate::dataset::{Loaded, SampleStream};
use crate::sync::{Mutex, MutexGuard, PoisonError, lock};

/// Samples of one epoch, in order. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct SampleIterator {
    builder: Arc<SampleBuilder>,
    stream: Arc<Mutex<SampleStream>>,
    /// Why it ended early: raised again rather than mistaken for the end of the epoch.
    failure: Mutex<Option<PyErr>>,
    home: Home,
    /// Whether its consumer is warned if it starves.
    is_watched: bool,
}

impl SampleIterator {
    /// An iterator over what `stream` delivers.
    pub fn new(
        stream: Arc<Mutex<SampleStream>>,
        builder: Arc<SampleBuilder>,
        is_watched: bool,
    ) -> Self {
        Self {
            builder,
            stream,
            failure: Mutex::default(),
            home: Home::here(),
            is_watched,
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, SampleStream> {
        self.stream
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl SampleIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.home.check_quickly()?;
        loop {
            let mut stream = self.lock(py);
            if let Some(sample) = stream.take() {
                return self.builder.build(py, sample).map(Some);
            }
            if let Some(failure) = lock(&self.failure).as_ref() {
                return Err(failure.clone_ref(py));
            }
            self.home.check()?;
            if self.is_watched && stream.profile().is_newly_starving() {
                let snapshot = stream.profile().snapshot();
                drop(stream);
                profile::warn_starving(py, &snapshot)?;
                continue;
            }
            if stream.corrupt().is_news() {
                let found = Arc::clone(stream.corrupt());
                drop(stream);
                corrupt::warn_once(py, &found)?;
                continue;
            }
            let live = &mut *stream;
            let loaded = py.detach(|| live.poll());
            // A signal handler may want the state, so nothing is held while signals are looked for.
            drop(stream);
            match loaded {
                Ok(Loaded::More) => {}
                Ok(Loaded::Waiting) => py.check_signals()?,
                Ok(Loaded::Ended) => return Ok(None),
                Err(error) => {
                    let failure = to_pyerr(error);
                    *lock(&self.failure) = Some(failure.clone_ref(py));
                    return Err(failure);
                }
            }
        }
    }

    /// Positions passed since the start: of samples received, and of damaged ones left out before them.
    fn passed(&self, py: Python<'_>) -> PyResult<u64> {
        self.home.check()?;
        Ok(self.lock(py).passed())
    }

    /// Where to resume after the last sample received.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.home.check()?;
        let saved = py.detach(|| lock(&self.stream).state()).map_err(to_pyerr)?;
        state::to_dict(py, &saved)
    }

    /// Starts again where `state` was taken.
    #[pyo3(signature = (state, *, ignore = Vec::new()))]
    fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        ignore: Vec<String>,
    ) -> PyResult<()> {
        self.home.check()?;
        let saved = state::from_dict(state)?;
        py.detach(|| {
            let mut stream = lock(&self.stream);
            *stream = stream.resumed(&saved, &ignore)?;
            Ok(())
        })
        .map_err(to_pyerr)?;
        *lock(&self.failure) = None;
        Ok(())
    }

    /// Stops reading and ends the worker threads; further samples are not delivered. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl SampleIterator {
    fn end(&self) {
        if self.home.is_here() {
            lock(&self.stream).close();
        }
    }
}

impl Drop for SampleIterator {
    /// Ends the threads: the dataset keeps the stream for its position, not for its samples. Other Python threads go on
    /// while a worker finishes its record.
    fn drop(&mut self) {
        if Python::try_attach(|py| py.detach(|| self.end())).is_none() {
            self.end();
        }
    }
}
