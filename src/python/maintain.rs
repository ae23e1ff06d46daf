//! Operations on caches that exist, as `dataset_rt.cache` calls them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use super::buffer::{Numbers, numbers};
use super::signals::detached;
use crate::maintain::compact::{CompactOptions, compact};
use crate::maintain::lease::{self, Lease};
use crate::maintain::repair::{Repaired, repair};
use crate::maintain::vacuum::{VacuumOptions, Vacuumed, vacuum};
use crate::maintain::{Changed, delete};
use crate::store::change::{Change as Begun, now_unix};
use crate::store::generations::Wanted;
use crate::store::lock::this_process;
use crate::store::vfs::OsVfs;

/// Path, operation, generation, the one before, samples, added, deleted, bytes written.
pub type Change = (OsString, &'static str, u64, u64, u64, u64, u64, u64);

/// A change as Python takes it.
pub fn told(changed: Changed) -> Change {
    (
        changed.path.into_os_string(),
        changed.operation.name(),
        changed.generation,
        changed.previous,
        changed.samples,
        changed.added,
        changed.deleted,
        changed.bytes_written,
    )
}

/// Takes the samples with these ids out of a cache.
#[pyfunction]
pub fn delete_samples(py: Python<'_>, path: PathBuf, ids: PyBuffer<u64>) -> PyResult<Change> {
    let ids = ids.to_vec(py)?;
    detached(py, |_| delete::delete(Arc::new(OsVfs), &path, ids)).map(told)
}

/// What was changed, the generation from which the repair started, the lost samples, generations that are lost and why, and
/// damaged files.
type Repair = (Change, u64, Numbers, Vec<(u64, String)>, Vec<PathBuf>);

/// Keeps what can be trusted of a damaged cache.
#[pyfunction]
pub fn repair_cache(py: Python<'_>, path: PathBuf) -> PyResult<Repair> {
    let Repaired {
        changed,
        started_from,
        lost,
        lost_generations,
        damaged,
    } = detached(py, |interrupt| repair(Arc::new(OsVfs), &path, interrupt))?;
    let lost = numbers(py, lost);
    Ok((told(changed), started_from, lost, lost_generations, damaged))
}

/// Leaves the records and the metadata of deleted samples behind.
#[pyfunction]
pub fn compact_cache(py: Python<'_>, path: PathBuf, min_dead_fraction: f64) -> PyResult<Change> {
    let options = CompactOptions {
        min_dead_fraction,
        ..CompactOptions::default()
    };
    detached(py, |interrupt| {
        compact(Arc::new(OsVfs), &path, options, interrupt)
    })
    .map(told)
}

/// Path, generations that are kept and why, those that are given up, files and bytes that are removed.
type Vacuum = (OsString, Vec<(u64, &'static str)>, Vec<u64>, u64, u64);

/// Removes files that no generation needs which is to be kept.
#[pyfunction]
pub fn vacuum_cache(
    py: Python<'_>,
    path: PathBuf,
    grace_seconds: u64,
    keep_previous: bool,
    dry_run: bool,
) -> PyResult<Vacuum> {
    let options = VacuumOptions {
        grace: Duration::from_secs(grace_seconds),
        keep_previous,
        dry_run,
    };
    let Vacuumed {
        path,
        kept,
        removed,
        files,
        bytes,
    } = detached(py, |interrupt| {
        vacuum(Arc::new(OsVfs), &path, options, interrupt)
    })?;
    Ok((path.into_os_string(), kept, removed, files, bytes))
}

/// Keeps a generation, or the newest, from being vacuumed; returns its number, when that ends, in seconds since 1970, and
/// the file that stands for it.
#[pyfunction]
pub fn lease_generation(
    py: Python<'_>,
    path: PathBuf,
    generation: Option<u64>,
    seconds: u64,
) -> PyResult<(u64, u64, OsString)> {
    let wanted = generation.map_or(Wanted::Newest, Wanted::Number);
    detached(py, |interrupt| {
        let change = Begun::begin_waiting(Arc::new(OsVfs), &path, wanted, interrupt)?;
        let lease = Lease {
            generation: change.cache().manifest().number(),
            expires_unix: now_unix().saturating_add(seconds),
            holder: this_process(),
        };
        let file = lease::grant(&change, &lease)?;
        Ok((lease.generation, lease.expires_unix, file.into_os_string()))
    })
}

/// Ends a lease, by the file that stands for it.
#[pyfunction]
pub fn release_lease(py: Python<'_>, file: PathBuf) -> PyResult<()> {
    detached(py, |_| lease::release(&OsVfs, &file))
}
