//! Records of one length that lie one behind the other: where each of them lies is a multiplication then, and no look at
//! the index, which costs about as much time as copying a record of a few hundred bytes.
//!
//! Whether a cache is like that is learned from its index, a piece with each gather, so that nobody waits for it. All rows
//! are looked at before the first answer: what is answered is what the index says, for every row.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::format::index::{IndexRow, ROW_BYTES};
use crate::sync::{Mutex, OnceLock, TryLockError};

/// A row of the index as stored.
pub type RowBytes = [u8; ROW_BYTES as usize];

/// Runs that are followed at most. A shard is one, and what has more of them has larger records than those that gain here.
const RUNS_MAX: usize = 256;

/// Rows one after the other whose records lie one behind the other in one shard and have one length.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The row that begins it.
    pub start: u64,
    /// What the index says of that row.
    pub first: IndexRow,
}

/// The whole index as runs.
#[derive(Debug)]
pub struct Runs {
    /// In row order; the first begins at row 0.
    runs: Box<[Run]>,
    rows: u64,
}

/// What is known of the index of a cache so far.
#[derive(Debug, Default)]
pub struct Stride {
    scan: Mutex<Scan>,
    /// Nothing is left to look at.
    is_over: AtomicBool,
    found: OnceLock<Runs>,
}

#[derive(Debug, Default)]
struct Scan {
    runs: Vec<Run>,
    rows: usize,
}

impl Stride {
    /// The index as runs, once all of it was looked at, if it has so few.
    #[inline]
    pub fn runs(&self) -> Option<&Runs> {
        self.found.get()
    }

    /// Looks at up to `most` more rows of `index`, which is the same every time, unless another thread is at it.
    pub fn learn(&self, index: &[RowBytes], most: usize) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let mut scan = match self.scan.try_lock() {
            Ok(scan) => scan,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let rest = index.get(scan.rows..).unwrap_or_default();
        let piece = rest.get(..most).unwrap_or(rest);
        if !scan.follow(piece) {
            scan.runs = Vec::new();
            self.is_over.store(true, Ordering::Relaxed);
        } else if scan.rows == index.len() {
            let runs = std::mem::take(&mut scan.runs).into_boxed_slice();
            let rows = scan.rows as u64;
            self.found.get_or_init(|| Runs { runs, rows });
            self.is_over.store(true, Ordering::Relaxed);
        }
    }
}

impl Scan {
    /// Continues the runs with the next rows; says whether there are still few.
    fn follow(&mut self, piece: &[RowBytes]) -> bool {
        for bytes in piece {
            let Some(row) = IndexRow::from_bytes(bytes) else {
                return false;
            };
            let position = self.rows as u64;
            let continues = self.runs.last().and_then(|run| run.row(position)) == Some(row);
            if !continues {
                if self.runs.len() == RUNS_MAX {
                    return false;
                }
                self.runs.push(Run {
                    start: position,
                    first: row,
                });
            }
            self.rows += 1;
        }
        true
    }
}

impl Run {
    /// What the index says of a row of this run, if that is possible at all.
    #[inline]
    fn row(&self, position: u64) -> Option<IndexRow> {
        let before = position.checked_sub(self.start)?;
        let bytes = before.checked_mul(self.first.byte_len)?;
        Some(IndexRow {
            offset: self.first.offset.checked_add(bytes)?,
            ..self.first
        })
    }
}

impl Runs {
    /// The runs in row order, each with the row after its last.
    pub fn all(&self) -> impl Iterator<Item = (Run, u64)> {
        let ends = self.runs.iter().skip(1).map(|next| next.start);
        self.runs
            .iter()
            .copied()
            .zip(ends.chain(std::iter::once(self.rows)))
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is no run, for an index without rows.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of shards with these numbers of records of these lengths.
    fn index(shards: &[(u64, u64)]) -> Vec<RowBytes> {
        let mut rows = Vec::new();
        for (shard, (count, byte_len)) in shards.iter().enumerate() {
            for record in 0..*count {
                rows.push(IndexRow {
                    shard: shard as u64,
                    offset: record * byte_len,
                    byte_len: *byte_len,
                });
            }
        }
        rows.into_iter().map(IndexRow::to_bytes).collect()
    }

    fn learned(index: &[RowBytes], step: usize) -> Stride {
        let stride = Stride::default();
        for _ in 0..index.len().div_ceil(step) {
            assert!(stride.runs().is_none());
            stride.learn(index, step);
        }
        stride
    }

    /// The index that runs tell of.
    fn told(runs: &Runs) -> Vec<RowBytes> {
        let rows = runs.all().flat_map(|(run, end)| {
            (run.start..end).map(move |position| run.row(position).unwrap().to_bytes())
        });
        rows.collect()
    }

    #[test]
    fn runs_say_what_the_index_says_of_every_row() {
        let many: Vec<(u64, u64)> = (0..RUNS_MAX as u64).map(|n| (n % 3 + 1, 9)).collect();
        for shards in [
            vec![(10, 7)],
            vec![(1, 0)],
            vec![(5, 7), (5, 7), (2, 7)],
            vec![(3, 0), (4, 1), (1, u64::MAX), (2, 8)],
            many,
        ] {
            let index = index(&shards);
            for step in [1, 4, 1000] {
                let stride = learned(&index, step);
                let runs = stride.runs().unwrap();
                assert_eq!(told(runs), index);
            }
        }
    }

    #[test]
    fn one_row_that_differs_is_found_wherever_it_is() {
        let even = index(&[(6, 7)]);
        let changes: [fn(&mut IndexRow); 3] = [
            |row| row.offset += 1,
            |row| row.byte_len -= 1,
            |row| row.shard += 1,
        ];
        for position in 0..even.len() {
            for change in changes {
                let mut index = even.clone();
                let mut row = IndexRow::from_bytes(&index[position]).unwrap();
                change(&mut row);
                index[position] = row.to_bytes();
                let stride = learned(&index, 2);
                let runs = stride.runs().unwrap();
                assert_eq!(told(runs), index);
            }
        }
    }

    #[test]
    fn an_index_of_many_runs_is_given_up_for_good() {
        let shards: Vec<(u64, u64)> = (0..=RUNS_MAX as u64).map(|n| (1, n)).collect();
        let index = index(&shards);
        let stride = Stride::default();
        for _ in 0..2 {
            stride.learn(&index, usize::MAX);
            assert!(stride.runs().is_none());
            assert!(stride.is_over.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn nothing_is_answered_before_the_last_row_was_looked_at() {
        let index = index(&[(5, 7)]);
        let stride = Stride::default();
        stride.learn(&index, 4);
        assert!(stride.runs().is_none());
        stride.learn(&index, 1);
        assert!(stride.runs().is_some());
    }
}
