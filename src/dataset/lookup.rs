//! From physical samples to active rows, without scanning.

use super::active::ActiveRows;
use super::caches::Caches;

/// What a sample of a user's table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This active row.
    Row(usize),
    /// Active rows that have all been named before.
    Taken,
    /// No active row.
    Unknown,
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
    pub fn find(
        &mut self,
        cache: u64,
        sample: u64,
        hint: u64,
        is_free: impl Fn(usize) -> bool,
    ) -> Found {
        if self.last.0 != cache {
            let (start, count) = self.caches.rows().cache(cache).unwrap_or((0, 0));
            self.last = (cache, start, count);
        }
        let (_, start, count) = self.last;
        if sample >= count {
            return Found::Unknown;
        }
        let physical = start + sample;
        let found = |row: usize| {
            if is_free(row) {
                Found::Row(row)
            } else {
                Found::Taken
            }
        };
        match self.rows {
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
        }
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
