//! The identity columns of the samples metadata table. Most parts of it lie within one cache and are consecutive, so that
//! their cache numbers are slices of a sequence which such parts share, and their sample numbers too where caches are small.

use arrow_buffer::ScalarBuffer;

use super::active::ActiveRows;
use super::caches::Caches;
use crate::error::{CacheError, Result};
use crate::limits::METADATA_BATCH_ROWS;

/// Cache and sample numbers of some rows.
#[derive(Clone)]
pub struct Identity {
    /// Position of the cache.
    pub cache_ids: ScalarBuffer<u64>,
    /// Row in the cache.
    pub sample_ids: ScalarBuffer<u64>,
}

/// Sample numbers up to here are made once for all parts: many small caches have the same.
const SHARED_SAMPLES: usize = 4 * METADATA_BATCH_ROWS;

/// Identities of the parts of a table.
pub struct Identities<'a> {
    caches: &'a Caches,
    rows: &'a ActiveRows,
    parts: Vec<Part>,
    /// The numbers from 0 on.
    shared_samples: ScalarBuffer<u64>,
}

/// What is known of a part beforehand.
enum Part {
    /// A run of samples of one cache.
    Run {
        cache_ids: ScalarBuffer<u64>,
        first_sample: usize,
        count: usize,
    },
    /// A first row and a number of rows.
    Scattered(u64, usize),
}

impl<'a> Identities<'a> {
    /// Identities of `parts`, each a first row and a number of rows.
    pub fn new(
        caches: &'a Caches,
        rows: &'a ActiveRows,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Self {
        let mut last_sample = 0;
        let mut latest: (u64, ScalarBuffer<u64>) = (u64::MAX, ScalarBuffer::from(Vec::new()));
        let parts = parts.map(|(first_row, count)| {
            let Some(within) = Within::of(caches, rows, (first_row, count)) else {
                return Part::Scattered(first_row, count);
            };
            last_sample = last_sample.max(within.first_sample + count);
            if latest.0 != within.cache || latest.1.len() < count {
                latest = (within.cache, ScalarBuffer::from(vec![within.cache; count]));
            }
            Part::Run {
                cache_ids: latest.1.slice(0, count),
                first_sample: within.first_sample,
                count,
            }
        });
        let parts = parts.collect();
        Self {
            caches,
            rows,
            parts,
            shared_samples: numbers(0, last_sample.min(SHARED_SAMPLES)),
        }
    }

    /// Identity of part number `part`.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for rows that are not active.
    pub fn get(&self, part: usize) -> Result<Identity> {
        match self.parts.get(part) {
            Some(Part::Run {
                cache_ids,
                first_sample,
                count,
            }) => Ok(Identity {
                cache_ids: cache_ids.clone(),
                sample_ids: if first_sample + count <= self.shared_samples.len() {
                    self.shared_samples.slice(*first_sample, *count)
                } else {
                    numbers(*first_sample, first_sample + count)
                },
            }),
            Some(Part::Scattered(first_row, count)) => {
                one_by_one(self.caches, self.rows, (*first_row, *count))
            }
            None => Err(CacheError::internal("a part of the table without identity")),
        }
    }
}

fn numbers(start: usize, end: usize) -> ScalarBuffer<u64> {
    (start as u64..end as u64).collect()
}

/// Where a run of samples of one cache begins.
struct Within {
    cache: u64,
    first_sample: usize,
}

impl Within {
    fn of(caches: &Caches, rows: &ActiveRows, (first_row, count): (u64, usize)) -> Option<Self> {
        if !matches!(rows, ActiveRows::All) || caches.has_deleted() {
            return None;
        }
        let first = caches.sample(first_row).ok()?;
        let cache = u64::from(first.cache);
        let (_, len) = caches.rows().cache(cache)?;
        let first_sample = usize::try_from(first.sample).ok()?;
        (first.sample + count as u64 <= len).then_some(Self {
            cache,
            first_sample,
        })
    }
}

fn one_by_one(
    caches: &Caches,
    rows: &ActiveRows,
    (first_row, count): (u64, usize),
) -> Result<Identity> {
    let (mut cache_ids, mut sample_ids) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for row in first_row..first_row + count as u64 {
        let sample = rows.sample(caches, row)?;
        cache_ids.push(u64::from(sample.cache));
        sample_ids.push(sample.sample);
    }
    Ok(Identity {
        cache_ids: cache_ids.into(),
        sample_ids: sample_ids.into(),
    })
}
