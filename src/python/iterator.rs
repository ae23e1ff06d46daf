//! Iteration over the samples of an epoch.

use std::sync::{Arc, PoisonError, TryLockError};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use super::errors::to_pyerr;
use super::sample::SampleBuilder;
use super::signals::detached;
use super::state;
use crate::dataset::SampleStream;
use crate::error::CacheError;
use crate::sync::{Mutex, MutexGuard};

/// Samples of one epoch, in order. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct SampleIterator {
    builder: Arc<SampleBuilder>,
    stream: Arc<Mutex<SampleStream>>,
    process: u32,
}

impl SampleIterator {
    /// An iterator over what `stream` delivers.
    pub fn new(stream: Arc<Mutex<SampleStream>>, builder: Arc<SampleBuilder>) -> Self {
        Self {
            builder,
            stream,
            process: std::process::id(),
        }
    }

    /// The stream, unless its threads stayed in the parent process: waiting for them would never end.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, SampleStream>> {
        if self.process != std::process::id() {
            return Err(to_pyerr(CacheError::ForkedIterator));
        }
        Ok(self
            .stream
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl SampleIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // The common case takes the lock at once; asking for the process each time would cost a system call a sample.
        let mut stream = match self.stream.try_lock() {
            Ok(stream) => stream,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock(py)?,
        };
        loop {
            if let Some(sample) = stream.take() {
                return self.builder.build(py, sample).map(Some);
            }
            if self.process != std::process::id() {
                return Err(to_pyerr(CacheError::ForkedIterator));
            }
            let live = &mut *stream;
            if !detached(py, |interrupt| live.load(interrupt))? {
                return Ok(None);
            }
        }
    }

    /// Where to resume after the last sample received.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut stream = self.lock(py)?;
        let live = &mut *stream;
        let saved = py.detach(|| live.state()).map_err(to_pyerr)?;
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
        let saved = state::from_dict(state)?;
        let mut stream = self.lock(py)?;
        let live = &mut *stream;
        py.detach(|| {
            *live = live.resumed(&saved, &ignore)?;
            Ok(())
        })
        .map_err(to_pyerr)
    }

    /// Stops reading and ends the worker threads; further samples are not delivered. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        if self.process != std::process::id() {
            return;
        }
        let mut stream = self
            .stream
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner);
        let live = &mut *stream;
        py.detach(|| live.close());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl Drop for SampleIterator {
    /// Ends the threads: the dataset keeps the stream for its position, not for its samples.
    fn drop(&mut self) {
        if let Ok(mut stream) = self.stream.try_lock() {
            if self.process == std::process::id() {
                stream.close();
            } else {
                stream.abandon();
            }
        }
    }
}
