//! `CachedDataset` as Python sees it; the class of the same name in `dataset_rt.dataset` wraps it.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use super::arrow::{ArrowTable, import};
use super::errors::to_pyerr;
use super::iterator::SampleIterator;
use super::options;
use super::sample::SampleBuilder;
use crate::dataset::Dataset;
use crate::error::CacheError;

/// Open caches and the state of their sampling.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct CachedDataset {
    inner: Dataset,
    builder: Arc<SampleBuilder>,
}

#[pymethods]
impl CachedDataset {
    /// Opens caches; `reader_config` is the JSON form of a `ReaderConfig`.
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>, reader_config: &str) -> PyResult<Self> {
        let options = options::parse(reader_config)?;
        let inner = py
            .detach(|| Dataset::open(&paths, options))
            .map_err(to_pyerr)?;
        let builder = Arc::new(SampleBuilder::new(py, inner.schema())?);
        Ok(Self { inner, builder })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.inner.len()).unwrap_or(usize::MAX)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<SampleIterator> {
        let reader = py.detach(|| self.inner.iterate()).map_err(to_pyerr)?;
        Ok(SampleIterator::new(reader, Arc::clone(&self.builder)))
    }

    /// The sample of one row; a negative row counts from the end.
    fn sample<'py>(&self, py: Python<'py>, row: i128) -> PyResult<Bound<'py, PyAny>> {
        let len = self.inner.len();
        let wrapped = if row < 0 { row + i128::from(len) } else { row };
        let position = u64::try_from(wrapped)
            .ok()
            .filter(|position| *position < len);
        let position =
            position.ok_or_else(|| to_pyerr(CacheError::OutOfRange { index: row, len }))?;
        let chunk = py
            .detach(|| self.inner.sample(position))
            .map_err(to_pyerr)?;
        let sample = chunk
            .get(0)
            .ok_or_else(|| to_pyerr(CacheError::internal("a row without a sample")))?;
        self.builder.build(py, sample)
    }

    fn set_epoch(&self, epoch: u32) {
        self.inner.set_epoch(epoch);
    }

    fn next_epoch(&self) -> u32 {
        self.inner.next_epoch()
    }

    fn samples_metadata(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let (schema, batches) = py
            .detach(|| self.inner.samples_metadata())
            .map_err(to_pyerr)?;
        Ok(ArrowTable::new(schema, batches))
    }

    fn set_samples_metadata(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<()> {
        let batches = import(table)?;
        py.detach(|| self.inner.set_samples_metadata(batches))
            .map_err(to_pyerr)
    }
}
