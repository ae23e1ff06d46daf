//! The identity columns of the samples metadata table. Most parts of it lie within one cache and are consecutive, so that
//! their numbers are slices of two sequences which all such parts share.

use arrow_buffer::ScalarBuffer;

use super::active::ActiveRows;
use super::caches::Caches;
use crate::error::{CacheError, Result};

/// Cache and sample numbers of some rows.
#[derive(Clone)]
pub struct Identity {
    /// Position of the cache.
    pub cache_ids: ScalarBuffer<u64>,
    /// Row in the cache.
    pub sample_ids: ScalarBuffer<u64>,
}

/// Identities of the parts of a table.
pub struct Identities(Vec<Identity>);

impl Identities {
    /// Identities of `parts`, each a first row and a number of rows.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for rows that are not active.
    pub fn new(
        caches: &Caches,
        rows: &ActiveRows,
        parts: impl Iterator<Item = (u64, usize)> + Clone,
    ) -> Result<Self> {
        let within: Vec<Option<Within>> = parts
            .clone()
            .map(|part| Within::of(caches, rows, part))
            .collect();
        let last_sample = within
            .iter()
            .flatten()
            .map(|part| part.first_sample + part.count)
            .max()
            .unwrap_or(0);
        let all_samples: ScalarBuffer<u64> = (0..last_sample as u64).collect();
        let mut cache_ids: (u64, ScalarBuffer<u64>) = (u64::MAX, ScalarBuffer::from(Vec::new()));
        let mut identities = Vec::with_capacity(within.len());
        for (part, within) in parts.zip(within) {
            let Some(Within {
                cache,
                first_sample,
                count,
            }) = within
            else {
                identities.push(one_by_one(caches, rows, part)?);
                continue;
            };
            if cache_ids.0 != cache || cache_ids.1.len() < count {
                cache_ids = (cache, ScalarBuffer::from(vec![cache; count]));
            }
            identities.push(Identity {
                cache_ids: cache_ids.1.slice(0, count),
                sample_ids: all_samples.slice(first_sample, count),
            });
        }
        Ok(Self(identities))
    }

    /// Identity of part number `part`.
    pub fn get(&self, part: usize) -> Result<&Identity> {
        self.0
            .get(part)
            .ok_or_else(|| CacheError::internal("a part of the table without identity"))
    }
}

/// A part that is a run of samples of one cache.
struct Within {
    cache: u64,
    first_sample: usize,
    count: usize,
}

impl Within {
    fn of(caches: &Caches, rows: &ActiveRows, (first_row, count): (u64, usize)) -> Option<Self> {
        if !matches!(rows, ActiveRows::All) {
            return None;
        }
        let first = caches.sample(first_row).ok()?;
        let cache = u64::from(first.cache);
        let (_, len) = caches.rows().cache(cache)?;
        let first_sample = usize::try_from(first.sample).ok()?;
        (first.sample + count as u64 <= len).then_some(Self {
            cache,
            first_sample,
            count,
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
