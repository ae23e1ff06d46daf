//! Looking at caches without opening a dataset: what manifests say, and tables of the index as arrays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyString;

use super::buffer::{Numbers, numbers};
use super::errors::to_pyerr;
use super::signals::detached;
use crate::error::{CacheError, Result};
use crate::store::cache::Cache;
use crate::store::pool::FilePool;
use crate::store::summary;
use crate::types::Io;

/// The caches that lie at or directly in `path`.
#[pyfunction]
pub fn find_caches(py: Python<'_>, path: PathBuf) -> PyResult<Vec<PathBuf>> {
    detached(py, |_| summary::find(&path))
}

/// What the manifest of each cache says, as JSON, or the exception that reading it gives.
#[pyfunction]
pub fn cache_summaries(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<Py<PyAny>>> {
    let found = detached(py, |interrupt| {
        let mut found = Vec::with_capacity(paths.len());
        for path in &paths {
            interrupt()?;
            found.push(summary_as_json(path));
        }
        Ok(found)
    })?;
    let convert = |outcome: Result<String>| match outcome {
        Ok(json) => PyString::new(py, &json).into_any().unbind(),
        Err(error) => to_pyerr(error).into_value(py).into_any(),
    };
    Ok(found.into_iter().map(convert).collect())
}

fn summary_as_json(path: &Path) -> Result<String> {
    serde_json::to_string(&summary::summary(path)?).map_err(|error| {
        CacheError::internal(format!("a summary cannot be written as JSON: {error}"))
    })
}

/// Stored bytes of each record, by sample id.
#[pyfunction]
pub fn record_lengths(py: Python<'_>, path: PathBuf) -> PyResult<Numbers> {
    let lengths = detached(py, |_| summary::record_lengths(&open(&path)?))?;
    Ok(numbers(py, lengths))
}

/// The checksum of each record, by sample id, or nothing for a cache without them.
#[pyfunction]
pub fn record_checksums(py: Python<'_>, path: PathBuf) -> PyResult<Option<Numbers>> {
    let checksums = detached(py, |_| summary::record_checksums(&open(&path)?))?;
    Ok(checksums.map(|checksums| numbers(py, checksums)))
}

fn open(path: &Path) -> Result<Cache> {
    Cache::open(path, Arc::new(FilePool::new(Io::Auto)))
}
