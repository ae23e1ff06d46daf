//! From physical samples to active rows, without scanning.

use super::active::ActiveRows;
use super::caches::Caches;
use super::table::Named;
use crate::error::Result;

/// What a sample of a user's table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This active row.
    Row(usize),
    /// Active rows that have all been named before.
    Taken,
    /// No active row.
    Unknown,
    /// None, because its cache has it no more.
    Deleted,
}

/// Finds active rows by sample. Tables mostly come in row order, which costs one comparison a row; the first row out of
/// order sorts an index.
pub struct Lookup<'a> {
    caches: &'a Caches,
    rows: &'a ActiveRows,
    /// The cache of the last sample, with its first physical row and its length.
    last: (u64, u64, u64),
    index: Option<Index>,
}

/// Active rows sorted by physical sample, then by row.
struct Index {
    sorted: Vec<(u64, usize)>,
    /// At the first place of each sample: how many of its rows were found taken.
    taken: Vec<usize>,
}

impl<'a> Lookup<'a> {
    /// A lookup in `rows`.
    pub fn new(caches: &'a Caches, rows: &'a ActiveRows) -> Self {
        Self {
            caches,
            rows,
            last: (u64::MAX, 0, 0),
            index: None,
        }
    }

    /// The first active row of a sample for which `is_free` holds. `hint` is the row where it is expected.
    ///
    /// # Errors
    /// As [`crate::store::cache::Cache::live`].
    pub fn find(
        &mut self,
        cache: u64,
        sample: u64,
        hint: u64,
        is_free: impl Fn(usize) -> bool,
    ) -> Result<Found> {
        if self.last.0 != cache {
            let (start, count) = self.caches.rows().cache(cache).unwrap_or((0, 0));
            self.last = (cache, start, count);
        }
        let (_, start, count) = self.last;
        let position = match self.caches.has_deleted() {
            true => self.position(cache, sample)?,
            false => Some(sample),
        };
        let Some(position) = position else {
            return Ok(Found::Deleted);
        };
        if position >= count {
            return Ok(Found::Unknown);
        }
        let physical = start + position;
        let found = |row: usize| {
            if is_free(row) {
                Found::Row(row)
            } else {
                Found::Taken
            }
        };
        Ok(match self.rows {
            ActiveRows::All => usize::try_from(physical).map_or(Found::Unknown, found),
            ActiveRows::Chosen(rows) => {
                let hinted = usize::try_from(hint)
                    .ok()
                    .filter(|hint| rows.get(*hint) == Some(&physical));
                match hinted.filter(|hint| is_free(*hint)) {
                    Some(row) => Found::Row(row),
                    None => self
                        .index
                        .get_or_insert_with(|| Index::new(rows))
                        .find(physical, is_free),
                }
            }
        })
    }

    /// The position of a sample in its cache; beyond the last if it never was there, none if it is deleted.
    fn position(&self, cache: u64, sample: u64) -> Result<Option<u64>> {
        let number = usize::try_from(cache).ok();
        let Some(cache) = number.and_then(|number| self.caches.list().get(number)) else {
            return Ok(Some(u64::MAX));
        };
        Ok(match cache.live()? {
            _ if sample >= cache.sample_ids() => Some(u64::MAX),
            None => Some(sample),
            Some(live) => live.position(sample),
        })
    }
}

impl Index {
    fn new(rows: &[u64]) -> Self {
        let mut sorted: Vec<(u64, usize)> = rows.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Self {
            taken: vec![0; sorted.len()],
            sorted,
        }
    }

    fn find(&mut self, physical: u64, is_free: impl Fn(usize) -> bool) -> Found {
        let first = self.sorted.partition_point(|(known, _)| *known < physical);
        let Some(taken) = self.taken.get_mut(first) else {
            return Found::Unknown;
        };
        if self
            .sorted
            .get(first)
            .is_none_or(|(known, _)| *known != physical)
        {
            return Found::Unknown;
        }
        while let Some((_, row)) = self
            .sorted
            .get(first + *taken)
            .filter(|(known, _)| *known == physical)
        {
            if is_free(*row) {
                return Found::Row(*row);
            }
            *taken += 1;
        }
        Found::Taken
    }
}

/// Samples of a table that the dataset does not have, and those that it has no more.
#[derive(Default)]
pub struct Unknown {
    never: Named,
    deleted: Named,
}

impl Unknown {
    /// Takes note of a sample for which no row was found.
    pub fn add(&mut self, found: Found, table_row: u64, name: impl FnOnce() -> String) {
        match found {
            Found::Deleted => self.deleted.add(table_row, name),
            _ => self.never.add(table_row, name),
        }
    }

    /// # Errors
    /// [`crate::error::CacheError::Weights`] naming the samples, if there is any.
    pub fn check(self) -> Result<()> {
        self.never.check("rows that this dataset does not have")?;
        self.deleted
            .check("samples that were deleted from their cache")
    }
}
