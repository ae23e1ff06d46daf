//! Iteration over batches.

use std::sync::Arc;

use pyo3::prelude::*;

use super::batch::{NativeBatch, Place};
use super::corrupt;
use super::errors::to_pyerr;
use super::iteration::Iteration;
use super::profile;
use crate::dataset::{Batch, BatchStream, Polled};
use crate::error::CacheError;
use crate::reader::{CorruptSamples, Snapshot};
use crate::sync::{Mutex, lock};

/// Batches of one rank, in order. Threads may share it: each batch goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct BatchIterator {
    iteration: Iteration<BatchStream>,
    /// Makes the batch that Python sees of its parts.
    build: Py<PyAny>,
}

/// What asking for a batch came to.
enum Next {
    Batch(Batch, Place),
    /// Nothing was asked for yet: the consumer is to be warned first, so that no batch is lost if the warning is an error.
    Starving(Snapshot),
    /// Likewise: damaged samples were met for the first time.
    Damaged(Arc<CorruptSamples>),
    Waiting,
    Ended,
}

impl BatchIterator {
    /// An iterator over what `stream` delivers, each batch as `build` makes it of a [`NativeBatch`].
    pub fn new(stream: Arc<Mutex<BatchStream>>, build: Py<PyAny>, is_watched: bool) -> Self {
        Self {
            iteration: Iteration::new(stream, BatchStream::close, is_watched),
            build,
        }
    }
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.iteration.home.check()?;
        self.iteration.check_failure(py)?;
        loop {
            let polled: Result<_, CacheError> = py.detach(|| {
                let mut stream = lock(&self.iteration.stream);
                if stream.corrupt().is_news() {
                    return Ok(Next::Damaged(Arc::clone(stream.corrupt())));
                }
                if self.iteration.is_watched && stream.profile().is_newly_starving() {
                    return Ok(Next::Starving(stream.profile().snapshot()));
                }
                match stream.poll()? {
                    Polled::Batch(step, batch) => {
                        let recipe = Arc::clone(stream.recipe());
                        Ok(Next::Batch(batch, Place { step, recipe }))
                    }
                    Polled::Waiting => Ok(Next::Waiting),
                    Polled::Ended => Ok(Next::Ended),
                }
            });
            match polled {
                Ok(Next::Batch(batch, place)) => {
                    let parts = NativeBatch::new(batch, Some(place));
                    return self.build.bind(py).call1((parts,)).map(Some);
                }
                Ok(Next::Damaged(found)) => corrupt::warn_once(py, &found)?,
                Ok(Next::Ended) => return Ok(None),
                Ok(Next::Starving(snapshot)) => profile::warn_starving(py, &snapshot)?,
                // A signal handler may want the state, so nothing is held while signals are looked for.
                Ok(Next::Waiting) => py.check_signals()?,
                Err(error) => return Err(self.iteration.fail(py, error)),
            }
        }
    }

    /// Batches left, or `None` if they never end.
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.iteration.home.check()?;
        py.detach(|| lock(&self.iteration.stream).remaining())
            .map_err(to_pyerr)
    }

    /// Where to resume after the last batch received.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iteration.state_dict(py, BatchStream::state)
    }

    /// Starts again where `state` was taken.
    #[pyo3(signature = (state, *, ignore = Vec::new()))]
    fn load_state_dict(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        ignore: Vec<String>,
    ) -> PyResult<()> {
        let resumed = |stream: &BatchStream, saved: &_| stream.resumed(saved, &ignore);
        self.iteration.load_state_dict(py, state, resumed)
    }

    /// Stops reading and ends the worker threads; further batches are not delivered. Closing twice does nothing.
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
