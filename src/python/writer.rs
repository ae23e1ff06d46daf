//! `write_cache`: sources pulled one after the other in the calling thread, each into its own cache.

use std::ffi::{CString, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;

use super::errors::to_pyerr;
use super::fault::Fault;
use super::pull::pull;
use super::signals::{Stopped, stoppable};
use super::source::{Source, describe};
use super::views;
use super::writer_config as config;
use crate::error::{CacheError, Result};
use crate::maintain::validate;
use crate::store::cache::{Cache, read_manifest};
use crate::store::lock::CacheLock;
use crate::store::pool::FilePool;
use crate::store::vfs::OsVfs;
use crate::types::Io;
use crate::writer::profiler::Profile;
use crate::writer::progress::Progress;
use crate::writer::{CacheWriter, WriteRequest, WriterOptions};

/// Everything that the sources of one call share.
struct Job {
    base: PathBuf,
    options: WriterOptions,
    reuse: bool,
    validate: bool,
    timed: bool,
    profile: Arc<Profile>,
}

/// A cache that is there now.
struct Done {
    path: PathBuf,
    reused: bool,
}

/// Per source: whether its cache is there, its name, and the path or the reason.
type Outcome = (bool, String, OsString);

/// Writes one cache per source; the outcomes are in the order of the sources.
///
/// With `reuse_existing`, a cache that exists is opened, checked and counted as a success, and a cache that another
/// process is writing is waited for; one that exists and fails the check is raised after the other sources are done.
/// Without, both are errors of that source.
#[pyfunction]
pub fn write_cache(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    base: PathBuf,
    writer_config: &str,
    reuse_existing: bool,
) -> PyResult<Vec<Outcome>> {
    let config = config::parse(writer_config).map_err(to_pyerr)?;
    let job = Job {
        base,
        options: config.options,
        reuse: reuse_existing,
        validate: config.validate_cache,
        timed: config.profile_path.is_some(),
        profile: Arc::default(),
    };
    let mut progress = Progress::new(sources.len() as u64, config.show_progress);
    let outcome = write_all(py, sources, &job, &mut progress);
    progress.finish();
    if let Some(profile_path) = config.profile_path {
        let status = match &outcome {
            Ok(outcomes) if outcomes.iter().all(|(success, ..)| *success) => "ok",
            Ok(_) => "failed",
            Err(_) => "interrupted",
        };
        if let Err(error) = job.profile.write_report(&profile_path, status) {
            warn(py, &error)?;
        }
    }
    outcome
}

/// A report that cannot be written must not hide what became of the caches.
pub fn warn(py: Python<'_>, error: &CacheError) -> PyResult<()> {
    let text = CString::new(error.to_string()).unwrap_or_default();
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
}

fn write_all(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    job: &Job,
    progress: &mut Progress,
) -> PyResult<Vec<Outcome>> {
    let sources = sources.into_iter().enumerate();
    let sources = sources
        .map(|(position, object)| Source::inspect(position, object))
        .collect::<PyResult<Vec<_>>>()?;
    let mut names: Vec<&str> = sources.iter().flatten().map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    if let Some(name) = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
        return Err(to_pyerr(CacheError::SourceName {
            name: (*name.0).to_owned(),
            fault: "two sources have it, and each needs a directory of its own".to_owned(),
        }));
    }
    let mut outcomes = Vec::with_capacity(sources.len());
    let mut unusable = None;
    for source in sources {
        let (label, outcome) = match source {
            Err(bad) => (bad.label, Err(bad.fault)),
            Ok(source) => {
                let outcome = settle(py, job.cache(py, &source, progress), &mut unusable);
                if let Err(exception) = &outcome {
                    let detail = exception.to_string();
                    job.profile
                        .note_source(&source.name, "interrupted", &detail);
                }
                (source.name, outcome?)
            }
        };
        progress.source_done();
        let (status, detail) = match &outcome {
            Ok(done) if done.reused => ("reused", done.path.clone().into_os_string()),
            Ok(done) => ("written", done.path.clone().into_os_string()),
            Err(fault) => ("error", fault.into()),
        };
        job.profile
            .note_source(&label, status, &detail.to_string_lossy());
        outcomes.push((outcome.is_ok(), label, detail));
    }
    // A dataset that silently lacks a cache its caller has paid for would be worse than none.
    match unusable {
        Some(error) => Err(to_pyerr(error)),
        None => Ok(outcomes),
    }
}

/// What a source's failure means: a reason for its result, or an exception for the caller. The first cache that exists
/// and cannot be reused is kept in `unusable`, to be raised once the other sources are done.
fn settle(
    py: Python<'_>,
    outcome: std::result::Result<Done, Failed>,
    unusable: &mut Option<CacheError>,
) -> PyResult<std::result::Result<Done, String>> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(Failed { fault, row }) => match fault {
            Fault::Core(error) => Ok(Err(error.to_string())),
            Fault::Unusable(error) => {
                let reason = error.to_string();
                unusable.get_or_insert(error);
                Ok(Err(reason))
            }
            Fault::Raised(exception) => {
                Ok(Err(format!("sample {row}: {}", describe(py, exception)?)))
            }
            Fault::Caller(exception) => Err(exception),
        },
    }
}

/// How a source failed, and how many samples it had given.
struct Failed {
    fault: Fault,
    row: u64,
}

impl<F: Into<Fault>> From<F> for Failed {
    fn from(fault: F) -> Self {
        let fault = fault.into();
        Self { fault, row: 0 }
    }
}

impl Job {
    /// Brings about the cache of one source.
    fn cache(
        &self,
        py: Python<'_>,
        source: &Source<'_>,
        progress: &mut Progress,
    ) -> std::result::Result<Done, Failed> {
        let path = self.base.join(&source.name);
        if fs::symlink_metadata(&path).is_ok() {
            return self.existing(py, source, &path);
        }
        let lock = if self.reuse {
            let name = source.name.as_str();
            let lock = stoppable(py, |interrupt| {
                CacheLock::acquire(&self.base, name, &mut |_| interrupt())
            })?;
            // Whoever held the lock may have written the cache meanwhile.
            if fs::symlink_metadata(&path).is_ok() {
                drop(lock);
                return self.existing(py, source, &path);
            }
            lock
        } else {
            CacheLock::try_acquire(&self.base, &source.name)?
        };
        if let Some(view) = views::of(&source.object)? {
            let place = (self.base.as_path(), source.name.as_str());
            let path = views::copy(&view, place, lock, self.options.max_shard_bytes())?;
            return Ok(Done {
                path,
                reused: false,
            });
        }
        let request = WriteRequest {
            vfs: Arc::new(OsVfs),
            base: &self.base,
            name: &source.name,
            options: self.options,
            schema: source.schema.clone(),
            payload: source.payload.clone(),
            source_version: source.version.clone(),
            lock,
            profile: Arc::clone(&self.profile),
        };
        let mut writer = stoppable(py, |_| CacheWriter::create(request))?;
        let counters = (&*self.profile, self.timed);
        if let Err(fault) = pull(py, source, &mut writer, counters, progress) {
            let row = writer.rows();
            py.detach(|| drop(writer));
            return Err(Failed { fault, row });
        }
        match stoppable(py, |interrupt| writer.finish(interrupt)) {
            Ok(summary) => Ok(Done {
                path: summary.path,
                reused: false,
            }),
            // Without locks two processes may both have written it: the first one's cache serves both.
            Err(Stopped::Failed(CacheError::Exists { .. })) if self.reuse => {
                self.existing(py, source, &path)
            }
            Err(stopped) => Err(Fault::from(stopped).into()),
        }
    }

    /// A cache that exists already: good to use, or a reason why not. It is never changed.
    fn existing(
        &self,
        py: Python<'_>,
        source: &Source<'_>,
        path: &Path,
    ) -> std::result::Result<Done, Failed> {
        if !self.reuse {
            return Err(CacheError::Exists {
                path: path.to_path_buf(),
            }
            .into());
        }
        let version = source.version.as_deref();
        let checked = stoppable(py, |interrupt| {
            check_existing(path, version, self.validate, interrupt)
        });
        checked.map_err(|stopped| match stopped {
            Stopped::Failed(error) => Fault::Unusable(error),
            stopped => stopped.into(),
        })?;
        Ok(Done {
            path: path.to_path_buf(),
            reused: true,
        })
    }
}

/// Checks that a cache to be reused has a sound manifest and holds the wanted version; in full if asked to. Whether its
/// files are there is seen when it is opened.
fn check_existing(
    path: &Path,
    version: Option<&str>,
    in_full: bool,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let manifest = read_manifest(path)?;
    let found = manifest.source_version.as_deref();
    if let Some(expected) = version
        && found != Some(expected)
    {
        return Err(CacheError::SourceVersion {
            path: path.to_path_buf(),
            expected: expected.to_owned(),
            found: found.unwrap_or("none").to_owned(),
        });
    }
    if in_full {
        let cache = Cache::open(path, Arc::new(FilePool::new(Io::Auto)))?;
        validate(&cache, interrupt)?;
    }
    Ok(())
}
