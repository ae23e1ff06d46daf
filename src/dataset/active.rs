//! Active rows: which physical samples a dataset or view can draw, in its own order.

use std::sync::Arc;

use super::caches::Caches;
use super::fingerprint::{Fingerprint, Fingerprinter};
use crate::error::{CacheError, Result};
use crate::types::SampleRef;

/// The rows of a dataset or view. Clones share the memory.
#[derive(Clone, Debug)]
pub enum ActiveRows {
    /// Every physical sample once, in table order.
    All,
    /// These physical samples, by number; some may be missing and some repeated.
    Chosen(Arc<[u64]>),
}

impl ActiveRows {
    /// Number of rows.
    pub fn len(&self, caches: &Caches) -> u64 {
        match self {
            Self::All => caches.rows().len(),
            Self::Chosen(rows) => rows.len() as u64,
        }
    }

    /// Number of the physical sample that `row` stands for.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last row.
    pub fn physical(&self, caches: &Caches, row: u64) -> Result<u64> {
        let found = match self {
            Self::All => Some(row).filter(|row| *row < caches.rows().len()),
            Self::Chosen(rows) => usize::try_from(row)
                .ok()
                .and_then(|row| rows.get(row))
                .copied(),
        };
        found.ok_or_else(|| CacheError::OutOfRange {
            index: i128::from(row),
            len: self.len(caches),
        })
    }

    /// The physical sample that `row` stands for.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last row.
    pub fn sample(&self, caches: &Caches, row: u64) -> Result<SampleRef> {
        caches.sample(self.physical(caches, row)?)
    }

    /// Appends the physical samples that `rows` stand for; on an error, those before it.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for the first row beyond the last.
    pub fn extend_samples(
        &self,
        caches: &Caches,
        rows: impl IntoIterator<Item = u64>,
        samples: &mut Vec<SampleRef>,
    ) -> Result<()> {
        let [only] = &**caches.list() else {
            for row in rows {
                samples.push(self.sample(caches, row)?);
            }
            return Ok(());
        };
        // Looked up once: for each row it would take as long as the rest of this loop.
        let live = only.live()?;
        let len = only.len();
        let chosen = match self {
            Self::All => None,
            Self::Chosen(rows) => Some(rows),
        };
        for row in rows {
            let physical = match chosen {
                None => Some(row),
                Some(rows) => usize::try_from(row)
                    .ok()
                    .and_then(|row| rows.get(row))
                    .copied(),
            };
            samples.push(match (physical.filter(|row| *row < len), live) {
                (Some(sample), None) => SampleRef { cache: 0, sample },
                (Some(position), Some(live)) => SampleRef {
                    cache: 0,
                    sample: live.id(position),
                },
                (None, _) => self.sample(caches, row)?,
            });
        }
        Ok(())
    }

    /// Names the rows and their order.
    pub fn fingerprint(&self, caches: &Caches) -> Fingerprint {
        let mut name = Fingerprinter::new("rows");
        let len = self.len(caches);
        name.number(len);
        match self {
            // The same rows get the same name however they were chosen.
            Self::Chosen(rows) if !rows.iter().copied().eq(0..caches.rows().len()) => {
                name.numbers(rows.iter().copied());
            }
            Self::All | Self::Chosen(_) => {}
        }
        name.finish()
    }
}
