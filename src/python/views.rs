//! Views as sources of `write_cache`: their samples are copied as they are stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::intern;
use pyo3::prelude::*;

use super::dataset::CachedDataset;
use super::signals::{Stopped, stoppable};
use crate::store::lock::CacheLock;
use crate::store::vfs::OsVfs;

/// The view that a source stands for, if it stands for one.
pub fn of<'py>(source: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, CachedDataset>>> {
    let view = source.getattr_opt(intern!(source.py(), "_view"))?;
    Ok(view.and_then(|view| view.cast_into().ok()))
}

/// Writes the cache `base/name` from the rows of a view; returns its path.
pub fn copy(
    view: &Bound<'_, CachedDataset>,
    (base, name): (&Path, &str),
    lock: CacheLock,
    max_shard_bytes: u64,
) -> Result<PathBuf, Stopped> {
    let dataset = view.get().dataset();
    stoppable(view.py(), |interrupt| {
        dataset.copy_to(
            Arc::new(OsVfs),
            (base, name),
            lock,
            max_shard_bytes,
            interrupt,
        )
    })
}
