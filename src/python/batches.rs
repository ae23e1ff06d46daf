//! Iteration over batches.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arrow::ArrowTable;
use super::buffer::NativeArray;
use super::errors::to_pyerr;
use super::fork::Home;
use super::state;
use crate::dataset::{BatchStream, Polled, Step};
use crate::error::CacheError;
use crate::format::metadata::rows_to_batch;
use crate::format::row::Rows;
use crate::format::schema::Schema;
use crate::reader::Chunk;
use crate::sync::{Mutex, lock};

/// Batches of one rank, in order. Threads may share it: each batch goes to one of them.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct BatchIterator {
    stream: Arc<Mutex<BatchStream>>,
    schema: Arc<Schema>,
    /// Why it ended early: raised again rather than mistaken for the last batch.
    failure: Mutex<Option<PyErr>>,
    home: Home,
}

impl BatchIterator {
    /// An iterator over what `stream` delivers.
    pub fn new(stream: Arc<Mutex<BatchStream>>, schema: Arc<Schema>) -> Self {
        Self {
            stream,
            schema,
            failure: Mutex::default(),
            home: Home::here(),
        }
    }

    fn end(&self) {
        if self.home.is_here() {
            lock(&self.stream).close();
        }
    }
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.home.check()?;
        if let Some(failure) = lock(&self.failure).as_ref() {
            return Err(failure.clone_ref(py));
        }
        loop {
            // The state is computed where the interpreter does not wait: its first names may cost a pass over the weights.
            let polled = py.detach(|| {
                let mut stream = lock(&self.stream);
                match stream.poll()? {
                    Polled::Batch(step, chunk) => Ok(Some((step, chunk, stream.state()?))),
                    Polled::Waiting => Err(CacheError::Interrupted),
                    Polled::Ended => Ok(None),
                }
            });
            match polled {
                Ok(Some((step, chunk, saved))) => {
                    return build(py, &step, chunk, &self.schema, state::to_json(&saved)?)
                        .map(Some);
                }
                Ok(None) => return Ok(None),
                // A signal handler may want the state, so nothing is held while signals are looked for.
                Err(CacheError::Interrupted) => py.check_signals()?,
                Err(error) => {
                    let failure = to_pyerr(error);
                    *lock(&self.failure) = Some(failure.clone_ref(py));
                    return Err(failure);
                }
            }
        }
    }

    /// Batches left, or `None` if they never end.
    fn remaining(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.home.check()?;
        py.detach(|| lock(&self.stream).remaining())
            .map_err(to_pyerr)
    }

    /// Where to resume after the last batch received.
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

    /// Stops reading and ends the worker threads; further batches are not delivered. Closing twice does nothing.
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

impl Drop for BatchIterator {
    /// Ends the threads: the dataset keeps the stream for its position, not for its batches. Other Python threads go on
    /// while a worker finishes its record.
    fn drop(&mut self) {
        if Python::try_attach(|py| py.detach(|| self.end())).is_none() {
            self.end();
        }
    }
}

/// The parts of a `CachedBatch` that Python has not asked for yet.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct BatchMetadata {
    schema: Arc<Schema>,
    rows: Rows,
    len: usize,
}

#[pymethods]
impl BatchMetadata {
    /// Metadata of the batch as a table, in batch order.
    fn table(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let batch = py.detach(|| rows_to_batch(&self.rows, &self.schema, self.len));
        let batch = batch.map_err(|error| {
            to_pyerr(CacheError::internal(format!(
                "metadata of a batch: {error}"
            )))
        })?;
        Ok(ArrowTable::new(batch.schema(), vec![batch]))
    }
}

fn build<'py>(
    py: Python<'py>,
    step: &Step,
    chunk: Chunk,
    schema: &Arc<Schema>,
    state: String,
) -> PyResult<Bound<'py, PyAny>> {
    let len = chunk.len();
    let mut cache_ids = Vec::with_capacity(len);
    let mut sample_ids = Vec::with_capacity(len);
    for reference in chunk.samples() {
        cache_ids.push(u64::from(reference.cache));
        sample_ids.push(reference.sample);
    }
    let offsets = chunk
        .offsets()
        .ok_or_else(|| to_pyerr(CacheError::internal("a batch that is not in one buffer")))?;
    let (bytes, rows) = chunk.into_parts();
    let metadata = BatchMetadata {
        schema: Arc::clone(schema),
        rows,
        len,
    };
    let fields = PyDict::new(py);
    fields.set_item("values", Py::new(py, NativeArray::from_bytes(bytes))?)?;
    fields.set_item("offsets", Py::new(py, NativeArray::from_i64(offsets))?)?;
    fields.set_item("cache_id", Py::new(py, NativeArray::from_u64(cache_ids))?)?;
    fields.set_item("sample_id", Py::new(py, NativeArray::from_u64(sample_ids))?)?;
    fields.set_item("valid", step.valid)?;
    fields.set_item("epoch", step.epoch)?;
    fields.set_item("step", step.step)?;
    let positions = step.positions().collect();
    fields.set_item("position", Py::new(py, NativeArray::from_u64(positions))?)?;
    fields.set_item("metadata", Py::new(py, metadata)?)?;
    fields.set_item("state", state)?;
    py.import("dataset_rt.batch")?
        .getattr("build_batch")?
        .call((), Some(&fields))
}
