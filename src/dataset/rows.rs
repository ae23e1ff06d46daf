//! Physical rows: numbers `0..len` for all samples of all caches.

use crate::error::{CacheError, Result};
use crate::types::SampleRef;

/// All samples of all caches, in cache order and sample order.
#[derive(Debug)]
pub struct PhysicalRows {
    /// First row of each cache, and the number of rows at the end.
    starts: Vec<u64>,
    /// For each run of `1 << shift` rows, the cache that holds its first row.
    guide: Vec<u32>,
    shift: u32,
}

impl PhysicalRows {
    /// Rows of caches with these numbers of samples.
    ///
    /// # Errors
    /// [`CacheError::Limit`] for more than 2^32 caches or 2^63 rows.
    pub fn new(counts: impl IntoIterator<Item = u64>) -> Result<Self> {
        let mut starts = vec![0];
        let mut total: u64 = 0;
        for count in counts {
            total = total
                .checked_add(count)
                .filter(|total| i64::try_from(*total).is_ok())
                .ok_or_else(|| CacheError::limit("number of rows", u64::MAX, i64::MAX as u64))?;
            starts.push(total);
        }
        let caches = starts.len() as u64 - 1;
        if caches > u64::from(u32::MAX) {
            return Err(CacheError::limit(
                "number of caches",
                caches,
                u64::from(u32::MAX),
            ));
        }
        let mut shift = 0;
        while total >> shift > 4 * caches.max(1) {
            shift += 1;
        }
        let mut cache = 0;
        let mut guide = Vec::new();
        for run in 0..=total >> shift {
            // The last cache that starts at or before the run's first row.
            while starts
                .get(cache + 1)
                .is_some_and(|next| *next <= run << shift)
                && cache as u64 + 1 < caches
            {
                cache += 1;
            }
            guide.push(cache as u32);
        }
        Ok(Self {
            starts,
            guide,
            shift,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The physical sample of `row`.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for a row beyond the last.
    pub fn sample(&self, row: u64) -> Result<SampleRef> {
        let out_of_range = || CacheError::OutOfRange {
            index: i128::from(row),
            len: self.len(),
        };
        if row >= self.len() {
            return Err(out_of_range());
        }
        let run = usize::try_from(row >> self.shift).map_err(|_| out_of_range())?;
        let mut cache = self.guide.get(run).copied().ok_or_else(out_of_range)?;
        loop {
            let start = self.start(cache).ok_or_else(out_of_range)?;
            let end = self.start(cache + 1).ok_or_else(out_of_range)?;
            if row < end {
                return Ok(SampleRef {
                    cache,
                    sample: row - start,
                });
            }
            cache += 1;
        }
    }

    /// The row of a physical sample, or `None` if there is no such sample.
    pub fn row(&self, cache: u64, sample: u64) -> Option<u64> {
        let (start, count) = self.cache(cache)?;
        (sample < count).then_some(start + sample)
    }

    /// First row and number of rows of a cache.
    pub fn cache(&self, cache: u64) -> Option<(u64, u64)> {
        let cache = u32::try_from(cache).ok()?;
        let start = self.start(cache)?;
        Some((start, self.start(cache.checked_add(1)?)? - start))
    }

    fn start(&self, cache: u32) -> Option<u64> {
        self.starts.get(cache as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_samples_correspond_whatever_the_cache_sizes() {
        for counts in [
            vec![],
            vec![0],
            vec![5],
            vec![1, 0, 0, 3, 1000, 0, 2],
            vec![100; 300],
            vec![0, 7],
        ] {
            let rows = PhysicalRows::new(counts.iter().copied()).unwrap();
            let naive: Vec<SampleRef> = counts
                .iter()
                .enumerate()
                .flat_map(|(cache, count)| {
                    (0..*count).map(move |sample| SampleRef {
                        cache: cache as u32,
                        sample,
                    })
                })
                .collect();
            assert_eq!(rows.len(), naive.len() as u64);
            for (row, sample) in naive.iter().enumerate() {
                assert_eq!(rows.sample(row as u64).unwrap(), *sample);
                assert_eq!(
                    rows.row(u64::from(sample.cache), sample.sample),
                    Some(row as u64)
                );
            }
            assert!(rows.sample(rows.len()).is_err());
            for (cache, count) in counts.iter().enumerate() {
                assert_eq!(rows.row(cache as u64, *count), None);
            }
            assert_eq!(rows.row(counts.len() as u64, 0), None);
        }
    }

    #[test]
    fn too_many_rows_are_refused() {
        assert!(PhysicalRows::new([u64::MAX / 2, u64::MAX / 2]).is_err());
    }
}
