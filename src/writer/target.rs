//! What the samples become: a new cache or the next generation of one, and its publication.

use std::path::PathBuf;

use super::manifest::Written;
use super::options::WriterOptions;
use super::profiler::{Profile, Stage};
use crate::error::{CacheError, Result};
use crate::format::manifest::Manifest;
use crate::format::names::MANIFEST;
use crate::format::payload::PayloadSchema;
use crate::store::change::Change;
use crate::store::publish::Staging;

/// What was written.
#[derive(Clone, Debug)]
pub struct WriteSummary {
    /// The cache directory.
    pub path: PathBuf,
    /// The manifest of what it holds now.
    pub manifest: Manifest,
    /// The generation before this one; none of a new cache. The same as this one if nothing was appended.
    pub previous: Option<u64>,
    /// Samples that were added.
    pub added: u64,
    /// Bytes of the files that were written, but for the manifest.
    pub bytes_written: u64,
}

/// What the samples become.
pub(super) enum Target {
    /// A cache, of a source with this name and version.
    Cache(String, Option<String>),
    /// The next generation of one.
    Generation(Box<Change>),
}

impl Target {
    /// What comes of a source without samples: no cache, and no generation either.
    ///
    /// # Errors
    /// [`CacheError::EmptySource`] for a cache.
    pub fn without_samples(self) -> Result<WriteSummary> {
        let change = match self {
            Self::Cache(name, _) => return Err(CacheError::EmptySource { name }),
            Self::Generation(change) => change,
        };
        let manifest = change.cache().manifest();
        Ok(WriteSummary {
            path: change.path().to_path_buf(),
            manifest: manifest.clone(),
            previous: Some(manifest.number()),
            added: 0,
            bytes_written: 0,
        })
    }

    /// Publishes the files in `staging`, which `written` tells of; `payload` holds the fields of a new cache.
    ///
    /// # Errors
    /// As [`Staging::publish`] and [`Change::publish`].
    pub fn publish(
        self,
        staging: Staging,
        written: Written,
        payload: Option<PayloadSchema>,
        options: &WriterOptions,
        profile: &Profile,
    ) -> Result<WriteSummary> {
        let (added, bytes_written) = (written.committed.rows, written.byte_len());
        let (path, manifest, previous) = match self {
            Self::Cache(source_name, source_version) => {
                let manifest = Manifest {
                    source_name,
                    source_version,
                    ..written.cache(options, payload)?
                };
                let text = manifest.to_bytes()?;
                let publish = || staging.publish(MANIFEST, &text);
                let path = profile.time(Stage::Publish, publish)?;
                (path, manifest, None)
            }
            Self::Generation(change) => {
                let manifest = written.appended(options, &change)?;
                let path = change.path().to_path_buf();
                let previous = change.cache().manifest().number();
                let publish = || change.publish(staging, &manifest);
                profile.time(Stage::Publish, publish)?;
                (path, manifest, Some(previous))
            }
        };
        Ok(WriteSummary {
            path,
            manifest,
            previous,
            added,
            bytes_written,
        })
    }
}
