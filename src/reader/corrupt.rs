//! Samples whose records are damaged: which this process has met, and what is delivered in their place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pipeline::Run;
use crate::error::{CacheError, Result};
use crate::limits::{CORRUPT_SAMPLES_MAX, SUBSTITUTES_MAX};
use crate::store::cache::Cache;
use crate::sync::{Mutex, lock};
use crate::types::{OnCorrupt, SampleRef};

/// A damaged sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorruptSample {
    /// Which one.
    pub sample: SampleRef,
    /// The file that is damaged.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// The damaged samples that were left out or replaced in this process.
#[derive(Debug, Default)]
pub struct CorruptSamples {
    found: Mutex<BTreeMap<SampleRef, (PathBuf, String)>>,
    /// Whether there are some that nobody was warned of.
    is_news: AtomicBool,
}

impl CorruptSamples {
    /// All of them, by cache and sample.
    pub fn list(&self) -> Vec<CorruptSample> {
        let found = lock(&self.found);
        let each = found.iter().map(|(sample, (path, reason))| CorruptSample {
            sample: *sample,
            path: path.clone(),
            reason: reason.clone(),
        });
        each.collect()
    }

    /// Whether there are some and nobody was warned yet.
    #[inline]
    pub fn is_news(&self) -> bool {
        self.is_news.load(Ordering::Relaxed)
    }

    /// One of them, if nobody was warned yet; nobody is again.
    pub fn take_news(&self) -> Option<CorruptSample> {
        let is_news = self.is_news.swap(false, Ordering::Relaxed);
        is_news.then(|| self.list().into_iter().next()).flatten()
    }

    fn add(&self, sample: SampleRef, path: PathBuf, reason: String) {
        let mut found = lock(&self.found);
        let is_first = found.is_empty();
        if found.len() < CORRUPT_SAMPLES_MAX {
            found.entry(sample).or_insert((path, reason));
        }
        drop(found);
        if is_first {
            self.is_news.store(true, Ordering::Relaxed);
        }
    }
}

/// What a loader does about damaged samples.
#[derive(Clone, Debug)]
pub(super) struct Mending {
    caches: Arc<[Arc<Cache>]>,
    on_corrupt: OnCorrupt,
    corrupt: Arc<CorruptSamples>,
}

/// What stands in the place of a damaged sample.
pub(super) enum Mended<T> {
    /// Nothing.
    LeftOut,
    /// Another sample, and what was made of it.
    With(SampleRef, T),
}

impl Mending {
    pub fn new(
        caches: &Arc<[Arc<Cache>]>,
        on_corrupt: OnCorrupt,
        corrupt: &Arc<CorruptSamples>,
    ) -> Self {
        Self {
            caches: Arc::clone(caches),
            on_corrupt,
            corrupt: Arc::clone(corrupt),
        }
    }

    /// Whether anything is done about an error: it says that a record is damaged, and that is not to be raised.
    pub fn is_due(&self, error: &CacheError) -> bool {
        self.on_corrupt != OnCorrupt::Raise && self.damage(error).is_some()
    }

    /// What stands in the place of `sample`, which is number `place` of `run` and could not be read: `read` is given others
    /// until one can be.
    ///
    /// # Errors
    /// `error`, if it is to be raised; [`CacheError::NoSubstitute`] if too many others are damaged too; what else `read`
    /// fails with.
    pub fn mend<T>(
        &self,
        run: &Run,
        place: usize,
        sample: SampleRef,
        error: CacheError,
        mut read: impl FnMut(SampleRef) -> Result<T>,
    ) -> Result<Mended<T>> {
        let Some((path, reason)) = self.damage(&error) else {
            return Err(error);
        };
        match self.on_corrupt {
            OnCorrupt::Raise => return Err(error),
            OnCorrupt::Skip => {
                self.corrupt.add(sample, path, reason);
                return Ok(Mended::LeftOut);
            }
            OnCorrupt::Substitute => self.corrupt.add(sample, path.clone(), reason),
        }
        for attempt in 0..SUBSTITUTES_MAX {
            let other = run.plan.substitute(run.start + place as u64, attempt)?;
            let outcome = read(other);
            match outcome {
                Ok(made) => return Ok(Mended::With(other, made)),
                Err(other_error) => match self.damage(&other_error) {
                    Some((path, reason)) => self.corrupt.add(other, path, reason),
                    None => return Err(other_error),
                },
            }
        }
        Err(CacheError::NoSubstitute {
            path,
            sample_id: sample.sample,
            attempts: SUBSTITUTES_MAX,
            fault: Box::new(error),
        })
    }

    /// The file and what is wrong with it, if the error says that a record is damaged: the record itself, or, where records
    /// have no checksums of their own, the shard that holds it.
    fn damage(&self, error: &CacheError) -> Option<(PathBuf, String)> {
        let told = |path: &PathBuf, subject: &str, expected: &str, found: &str| {
            let reason = format!("{subject}: expected {expected}, found {found}");
            Some((path.clone(), reason))
        };
        match error {
            CacheError::DamagedRecord {
                path,
                subject,
                expected,
                found,
                ..
            } => told(path, subject, expected, found),
            CacheError::DamagedFile {
                path,
                subject,
                expected,
                found,
            } if self.is_unchecked_shard(path) => told(path, subject, expected, found),
            _ => None,
        }
    }

    fn is_unchecked_shard(&self, path: &PathBuf) -> bool {
        let mut unchecked = self.caches.iter().filter(|cache| {
            cache.manifest().record_checksums.is_none() && path.starts_with(cache.path())
        });
        unchecked.any(|cache| {
            let mut shards = cache.manifest().shards.iter();
            shards.any(|shard| cache.path().join(shard.file()) == *path)
        })
    }
}
