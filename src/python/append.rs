//! `append_cache`: one source pulled in the calling thread, its samples put behind those of a cache.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::errors::to_pyerr;
use super::fault::Fault;
use super::maintain::{Change, told};
use super::pull::pull;
use super::signals::stoppable;
use super::source::Source;
use super::writer::warn;
use super::writer_config as config;
use crate::format::generation::Operation;
use crate::maintain::Changed;
use crate::store::vfs::OsVfs;
use crate::writer::profiler::Profile;
use crate::writer::progress::Progress;
use crate::writer::{AppendRequest, CacheWriter, WriteSummary, WriterOptions};

/// Appends the samples of a source to a cache. What goes wrong is raised, and nothing is changed then.
#[pyfunction]
pub fn append_cache(
    py: Python<'_>,
    source: Bound<'_, PyAny>,
    path: PathBuf,
    writer_config: &str,
) -> PyResult<Change> {
    let config = config::parse(writer_config).map_err(to_pyerr)?;
    let source = match Source::inspect(0, source)? {
        Ok(source) => source,
        Err(bad) => {
            let text = format!("{} cannot be appended: {}", bad.label, bad.fault);
            return Err(PyTypeError::new_err(text));
        }
    };
    let profile: Arc<Profile> = Arc::default();
    let mut progress = Progress::new(1, config.show_progress);
    let is_timed = config.profile_path.is_some();
    let request = (path, config.options);
    let outcome = append(py, &source, request, (&profile, is_timed), &mut progress);
    progress.finish();
    let (status, detail) = match &outcome {
        Ok(changed) => ("appended", changed.path.display().to_string()),
        Err(error) => ("error", error.to_string()),
    };
    profile.note_source(&source.name, status, &detail);
    if let Some(profile_path) = config.profile_path {
        let status = if outcome.is_ok() { "ok" } else { "failed" };
        if let Err(error) = profile.write_report(&profile_path, status) {
            warn(py, &error)?;
        }
    }
    outcome.map(told)
}

fn append<'py>(
    py: Python<'py>,
    source: &Source<'py>,
    (path, options): (PathBuf, WriterOptions),
    (profile, is_timed): (&Arc<Profile>, bool),
    progress: &mut Progress,
) -> PyResult<Changed> {
    let request = AppendRequest {
        vfs: Arc::new(OsVfs),
        path: &path,
        options,
        schema: source.schema.clone(),
        payload: source.payload.clone(),
        profile: Arc::clone(profile),
    };
    let mut writer = stoppable(py, |_| CacheWriter::append(request))
        .map_err(|stopped| raised(stopped.into()))?;
    if let Err(fault) = pull(py, source, &mut writer, (profile, is_timed), progress) {
        py.detach(|| drop(writer));
        return Err(raised(fault));
    }
    let finished = stoppable(py, |interrupt| writer.finish(interrupt));
    finished
        .map(changed)
        .map_err(|stopped| raised(stopped.into()))
}

fn raised(fault: Fault) -> PyErr {
    match fault {
        Fault::Core(error) | Fault::Unusable(error) => to_pyerr(error),
        Fault::Raised(exception) | Fault::Caller(exception) => exception,
    }
}

fn changed(summary: WriteSummary) -> Changed {
    let generation = summary.manifest.number();
    Changed {
        path: summary.path,
        operation: Operation::Append,
        generation,
        previous: summary.previous.unwrap_or(generation),
        samples: summary.manifest.sample_count,
        added: summary.added,
        deleted: 0,
        bytes_written: summary.bytes_written,
    }
}
