//! How the positions of an epoch become steps, and the steps of a job become the batches of its ranks.
//!
//! Step s covers the next `batch * world` positions; each rank takes a contiguous slice of them, in rank order. All ranks
//! make the same number of steps. Concatenating the ranks' slices, step by step, gives the order itself.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::error::{CacheError, Result};

/// What happens to the positions that do not fill a global batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// The last global batch is short and split evenly in rank order, earlier ranks getting one row more; a rank may get
    /// none.
    Keep,
    /// They are left out.
    Drop,
    /// The last global batch is filled up with the epoch's positions from its beginning, flagged as not valid.
    Pad,
}

/// The split of one epoch over the ranks of a job, from some position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    len: u64,
    start: u64,
    batch: u64,
    world: u64,
    remainder: Remainder,
}

impl Split {
    /// Splits positions `start..len` of an epoch into steps of `batch` rows on each of `world` ranks. A start beyond the
    /// end gives no steps. Errors: a batch or world of zero, or of which the product does not fit 63 bits.
    pub fn new(len: u64, start: u64, batch: u64, world: u64, remainder: Remainder) -> Result<Self> {
        for (option, value) in [("batch_size", batch), ("world_size", world)] {
            if value == 0 {
                return Err(CacheError::option(option, "at least 1", value));
            }
        }
        let global = batch.checked_mul(world).filter(|&rows| rows <= 1 << 62);
        if global.is_none() || len > 1 << 62 {
            return Err(CacheError::limit(
                "the number of rows of a step on all ranks, or of an epoch,",
                batch.saturating_mul(world).max(len),
                1 << 62,
            ));
        }
        Ok(Self {
            len,
            start: start.min(len),
            batch,
            world,
            remainder,
        })
    }

    /// Rows of a full step on all ranks.
    pub fn global_batch(&self) -> u64 {
        self.batch * self.world
    }

    /// How many steps every rank makes.
    pub fn steps(&self) -> u64 {
        let open = self.len - self.start;
        match self.remainder {
            Remainder::Drop => open / self.global_batch(),
            Remainder::Keep | Remainder::Pad => open.div_ceil(self.global_batch()),
        }
    }

    /// The position at which a step begins; for the number of steps and beyond, where the epoch ends for this split. The
    /// position to resume from after step s is that of step s + 1.
    pub fn position(&self, step: u64) -> u64 {
        let end = match self.remainder {
            Remainder::Drop => self.start + self.steps() * self.global_batch(),
            Remainder::Keep | Remainder::Pad => self.len,
        };
        step.checked_mul(self.global_batch())
            .and_then(|rows| rows.checked_add(self.start))
            .map_or(end, |position| position.min(end))
    }

    /// The slice of a rank in a step; empty where the step or the rank does not exist.
    pub fn slice(&self, step: u64, rank: u64) -> Slice {
        if step >= self.steps() || rank >= self.world {
            return Slice {
                start: self.len,
                rows: 0,
                len: self.len,
            };
        }
        let first = self.start + step * self.global_batch();
        let left = self.len - first;
        let (before, rows) = if self.remainder == Remainder::Keep && left < self.global_batch() {
            let (share, more) = (left / self.world, left % self.world);
            (
                rank * share + rank.min(more),
                share + u64::from(rank < more),
            )
        } else {
            (rank * self.batch, self.batch)
        };
        Slice {
            start: first + before,
            rows,
            len: self.len,
        }
    }
}

/// The rows of one rank in one step: positions from `start` on, those past the end of the epoch wrapping around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    start: u64,
    rows: u64,
    len: u64,
}

impl Slice {
    /// How many rows the rank gets, padding included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The first position; beyond the end of the epoch where the rank has only padding.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many of them are not padding; they come first.
    pub fn valid(&self) -> u64 {
        self.len.saturating_sub(self.start).min(self.rows)
    }

    /// The positions that are not padding.
    pub fn range(&self) -> Range<u64> {
        let start = self.start.min(self.len);
        start..start + self.valid()
    }

    /// The positions of all rows, padding included, as ranges in order; none is empty.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let len = self.len;
        let mut next = self.start.checked_rem(len).unwrap_or_default();
        let mut left = if len == 0 { 0 } else { self.rows };
        std::iter::from_fn(move || {
            let rows = left.min(len - next);
            let range = next..next + rows;
            left -= rows;
            next = 0;
            (rows > 0).then_some(range)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Remainder; 3] = [Remainder::Keep, Remainder::Drop, Remainder::Pad];

    fn small_cases() -> impl Iterator<Item = (u64, u64, u64, u64)> {
        (0..50u64).flat_map(|len| {
            let starts = [0, 1, len / 2, len.saturating_sub(1), len];
            (1..=8).flat_map(move |world| {
                (1..=7)
                    .flat_map(move |batch| starts.map(|start| (len, start.min(len), world, batch)))
            })
        })
    }

    /// Each rank's positions with their flags, step by step, then rank by rank.
    fn concatenated(split: &Split) -> Vec<(u64, bool)> {
        let mut all = Vec::new();
        for step in 0..split.steps() {
            for rank in 0..split.world {
                let slice = split.slice(step, rank);
                let positions: Vec<u64> = slice.ranges().flatten().collect();
                assert_eq!(positions.len() as u64, slice.rows());
                assert!(slice.rows() <= split.batch);
                let valid = slice.valid() as usize;
                assert_eq!(slice.range().collect::<Vec<_>>(), positions[..valid]);
                all.extend((0..).zip(positions).map(|(row, p)| (p, row < valid)));
            }
        }
        all
    }

    #[test]
    fn the_ranks_together_give_the_order_in_every_small_case() {
        for (len, start, world, batch) in small_cases() {
            let global = world * batch;
            for remainder in ALL {
                let split = Split::new(len, start, batch, world, remainder).unwrap();
                let open = len - start;
                let expected: Vec<(u64, bool)> = match remainder {
                    Remainder::Keep => (start..len).map(|p| (p, true)).collect(),
                    Remainder::Drop => (start..len - open % global).map(|p| (p, true)).collect(),
                    Remainder::Pad => (start..start + open.div_ceil(global) * global)
                        .map(|p| (p % len, p < len))
                        .collect(),
                };
                assert_eq!(concatenated(&split), expected, "{split:?}");
            }
        }
    }

    #[test]
    fn kept_remainders_are_split_evenly_and_earlier_ranks_get_more() {
        for (len, start, world, batch) in small_cases() {
            let split = Split::new(len, start, batch, world, Remainder::Keep).unwrap();
            for step in 0..split.steps() {
                let rows: Vec<u64> = (0..world)
                    .map(|rank| split.slice(step, rank).rows())
                    .collect();
                assert!(rows.is_sorted_by(|a, b| a >= b));
                assert!(rows[0] - rows[world as usize - 1] <= 1);
                assert!(rows[0] > 0);
            }
        }
        let split = Split::new(10, 0, 4, 4, Remainder::Keep).unwrap();
        assert_eq!(
            [0, 1, 2, 3].map(|rank| split.slice(0, rank).range()),
            [0..3, 3..6, 6..8, 8..10]
        );
    }

    #[test]
    fn any_step_can_be_resumed_from_with_another_batch_and_world() {
        for (len, start, world, batch) in small_cases().filter(|case| case.1 * 5 % 7 < 2) {
            for remainder in ALL {
                let split = Split::new(len, start, batch, world, remainder).unwrap();
                let all = concatenated(&split);
                for step in 0..=split.steps() + 1 {
                    let position = split.position(step);
                    let done = ((position - start) as usize).min(all.len());
                    let rest = Split::new(len, position, batch, world, remainder).unwrap();
                    if step < split.steps() {
                        assert_eq!(concatenated(&rest), all[done..]);
                    } else {
                        assert_eq!(concatenated(&rest), []);
                    }
                    let other = Split::new(len, position, 3, 5, Remainder::Keep).unwrap();
                    let positions: Vec<u64> = concatenated(&other).iter().map(|p| p.0).collect();
                    assert_eq!(positions, (position..len).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn steps_and_ranks_that_do_not_exist_are_empty() {
        for remainder in ALL {
            let split = Split::new(20, 0, 4, 2, remainder).unwrap();
            for slice in [
                split.slice(3, 0),
                split.slice(u64::MAX, 0),
                split.slice(0, 2),
            ] {
                assert_eq!(
                    (slice.rows(), slice.valid(), slice.ranges().count()),
                    (0, 0, 0)
                );
                assert!(slice.range().is_empty());
            }
            assert_eq!(split.position(u64::MAX), split.position(3));
        }
    }

    #[test]
    fn nothing_overflows_and_nonsense_is_refused() {
        assert!(Split::new(5, 0, 0, 1, Remainder::Keep).is_err());
        assert!(Split::new(5, 0, 1, 0, Remainder::Keep).is_err());
        assert!(Split::new(5, 0, u64::MAX, 2, Remainder::Keep).is_err());
        assert!(Split::new(u64::MAX, 0, 1, 1, Remainder::Keep).is_err());
        for remainder in ALL {
            let split = Split::new(1 << 62, 0, 1 << 31, 1 << 31, remainder).unwrap();
            assert_eq!(split.slice(0, (1 << 31) - 1).range().end, 1 << 62);
            let padded = Split::new(3, 9, 1 << 31, 1 << 31, remainder).unwrap();
            assert_eq!(padded.steps(), 0);
        }
        let slice = Split::new(3, 0, 5, 2, Remainder::Pad).unwrap().slice(0, 1);
        assert_eq!((slice.rows(), slice.valid()), (5, 0));
        assert_eq!(slice.ranges().collect::<Vec<_>>(), [2..3, 0..3, 0..1]);
    }
}
