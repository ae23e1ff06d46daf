//! Iteration over the samples of an epoch.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use super::errors::to_pyerr;
use super::sample::SampleBuilder;
use super::signals::detached;
use crate::error::CacheError;
use crate::reader::{Chunk, SampleReader};

/// Samples of one epoch, in order. Threads may share it: each sample goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct SampleIterator {
    builder: Arc<SampleBuilder>,
    state: Mutex<State>,
    process: u32,
}

struct State {
    /// `None` once the epoch ended, an error was raised, or the iterator was closed.
    reader: Option<SampleReader>,
    chunk: Chunk,
    position: usize,
}

impl SampleIterator {
    /// An iterator over what `reader` delivers.
    pub fn new(reader: SampleReader, builder: Arc<SampleBuilder>) -> Self {
        let state = State {
            reader: Some(reader),
            chunk: Chunk::default(),
            position: 0,
        };
        Self {
            builder,
            state: Mutex::new(state),
            process: std::process::id(),
        }
    }
}

#[pymethods]
impl SampleIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self
            .state
            .lock_py_attached(py)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            let State {
                reader,
                chunk,
                position,
            } = &mut *state;
            if let Some(sample) = chunk.get(*position) {
                *position += 1;
                return self.builder.build(py, sample).map(Some);
            }
            let Some(live) = reader else { return Ok(None) };
            if self.process != std::process::id() {
                // The threads of the reader stayed in the parent; waiting for them would never end.
                std::mem::forget(reader.take());
                return Err(to_pyerr(CacheError::ForkedIterator));
            }
            live.recycle(std::mem::take(chunk));
            *position = 0;
            match detached(py, |interrupt| live.next_chunk(interrupt)) {
                Ok(Some(next)) => *chunk = next,
                Ok(None) => *reader = None,
                Err(error) => {
                    let ended = reader.take();
                    py.detach(|| drop(ended));
                    return Err(error);
                }
            }
        }
    }

    /// Stops reading and ends the worker threads; further samples are not delivered. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        let mut state = self
            .state
            .lock_py_attached(py)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let ended = state.reader.take();
        state.chunk = Chunk::default();
        drop(state);
        self.end(py, ended);
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
    fn end(&self, py: Python<'_>, reader: Option<SampleReader>) {
        if self.process == std::process::id() {
            py.detach(|| drop(reader));
        } else {
            std::mem::forget(reader);
        }
    }
}

impl Drop for SampleIterator {
    fn drop(&mut self) {
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let reader = state.reader.take();
        if reader.is_some() {
            // Workers never need the interpreter, so waiting for them while attached cannot deadlock.
            match Python::try_attach(|_| ()) {
                _ if self.process != std::process::id() => std::mem::forget(reader),
                _ => drop(reader),
            }
        }
    }
}
