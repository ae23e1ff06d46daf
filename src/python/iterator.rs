//! Iteration over the samples of an epoch.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use super::corrupt;
use super::iteration::Iteration;
use super::profile;
use super::sample::SampleBuilder;
use crate::dataset::{Loaded, SampleStream};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Samples of one epoch, in order. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct SampleIterator {
    iteration: Iteration<SampleStream>,
    builder: Arc<SampleBuilder>,
}

impl SampleIterator {
    /// An iterator over what `stream` delivers.
    pub fn new(
        stream: Arc<Mutex<SampleStream>>,
        builder: Arc<SampleBuilder>,
        is_watched: bool,
    ) -> Self {
        Self {
            iteration: Iteration::new(stream, SampleStream::close, is_watched),
            builder,
        }
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, SampleStream> {
        self.iteration
            .stream
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
        self.iteration.home.check_quickly()?;
        loop {
            let mut stream = self.lock(py);
            if let Some(sample) = stream.take() {
                return self.builder.build(py, sample).map(Some);
            }
            self.iteration.check_failure(py)?;
            self.iteration.home.check()?;
            if self.iteration.is_watched && stream.profile().is_newly_starving() {
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
                Err(error) => return Err(self.iteration.fail(py, error)),
            }
        }
    }

    /// Positions passed since the start: of samples received, and of damaged ones left out before them.
    fn passed(&self, py: Python<'_>) -> PyResult<u64> {
        self.iteration.home.check()?;
        Ok(self.lock(py).passed())
    }

    /// Where to resume after the last sample received.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iteration.state_dict(py, SampleStream::state)
    }

    /// Starts again where `state` was taken.
    #[pyo3(signature = (state, *, ignore = Vec::new()))]
    fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        ignore: Vec<String>,
    ) -> PyResult<()> {
        let resumed = |stream: &SampleStream, saved: &_| stream.resumed(saved, &ignore);
        self.iteration.load_state_dict(py, state, resumed)
    }

    /// Stops reading and ends the worker threads; further samples are not delivered. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        self.iteration.close(py);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
