//! The order of one epoch: which row each position draws.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::alias::AliasTable;
use super::permutation::Permutation;
use super::quota::QuotaTable;
use super::rng::{Purpose, Stream};
use super::uniform;
use crate::error::{CacheError, Result};
use crate::sync::{Mutex, lock};

/// The order of one epoch: position to row, in constant time wherever one starts. May be shared between threads.
#[derive(Debug)]
pub struct EpochOrder {
    rows: u64,
    len: u64,
    seed: u64,
    epoch: u32,
    pub(super) draws: Draws,
}

/// Where an epoch's rows come from.
#[derive(Debug)]
pub(super) enum Draws {
    Physical,
    Uniform,
    Weighted(Arc<AliasTable>),
    Quota {
        table: Arc<QuotaTable>,
        offset: u64,
        permutation: Arc<Permutation>,
    },
    Passes {
        first: Arc<Permutation>,
        /// The last even and the last odd pass used: threads near the end of one pass work on two at a time.
        later: Mutex<[Option<Pass>; 2]>,
    },
}

/// A later pass over the rows, once somebody works on it.
#[derive(Debug)]
pub(super) struct Pass {
    number: u64,
    permutation: Arc<Permutation>,
}

impl EpochOrder {
    /// Epoch `epoch` of `len` positions over `0..rows`.
    pub(super) fn new(rows: u64, len: u64, seed: u64, epoch: u32, draws: Draws) -> Self {
        Self {
            rows,
            len,
            seed,
            epoch,
            draws,
        }
    }

    /// How many positions the epoch has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the epoch has no positions.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The epoch's number.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The row drawn at a position below [`len`](Self::len).
    pub fn get(&self, position: u64) -> Result<u64> {
        let mut row = [0];
        self.fill(position, &mut row)?;
        let [row] = row;
        Ok(row)
    }

    /// The row drawn in the place of that at a position whose sample is damaged: any row, all with the same probability to
    /// within one in 2^16, whatever their weights. `attempt` counts the rows that were damaged too.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] in an epoch over no rows.
    pub fn substitute(&self, position: u64, attempt: u32) -> Result<u64> {
        let words = Stream::new(self.seed, self.epoch, Purpose::Substitute);
        let [low, high, _, _] = words.block(position, attempt);
        let bits = u64::from(low) | u64::from(high) << 32;
        if self.rows == 0 {
            return Err(CacheError::OutOfRange { index: 0, len: 0 });
        }
        Ok(((u128::from(bits) * u128::from(self.rows)) >> 64) as u64)
    }

    /// The rows drawn at positions `start..start + out.len()`, which have to be within the epoch.
    pub fn fill(&self, start: u64, out: &mut [u64]) -> Result<()> {
        let end = start.checked_add(out.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(CacheError::OutOfRange {
                index: i128::from(start) + out.len() as i128 - 1,
                len: self.len,
            });
        }
        match &self.draws {
            Draws::Physical => {
                let mut row = start.checked_rem(self.rows).unwrap_or_default();
                for out in out {
                    *out = row;
                    row += 1;
                    if row == self.rows {
                        row = 0;
                    }
                }
                Ok(())
            }
            Draws::Uniform => {
                if let [row] = out {
                    *row = uniform::draw(self.seed, self.epoch, self.rows, start);
                } else {
                    uniform::fill(self.seed, self.epoch, self.rows, start, out);
                }
                Ok(())
            }
            Draws::Weighted(table) => {
                if let [row] = out {
                    *row = table.draw(self.seed, self.epoch, start);
                } else {
                    table.fill(self.seed, self.epoch, start, out);
                }
                Ok(())
            }
            Draws::Quota {
                table,
                offset,
                permutation,
            } => {
                permutation.fill(start, out)?;
                table.look_up(*offset, out);
                Ok(())
            }
            Draws::Passes { first, later } => self.fill_passes(first, later, start, out),
        }
    }

    fn fill_passes(
        &self,
        first: &Arc<Permutation>,
        later: &Mutex<[Option<Pass>; 2]>,
        start: u64,
        out: &mut [u64],
    ) -> Result<()> {
        let mut position = start;
        let mut rest = out;
        while !rest.is_empty() {
            let number = position / self.rows.max(1);
            let place = position % self.rows.max(1);
            let usable = usize::try_from(self.rows - place).unwrap_or(usize::MAX);
            let (now, after) = rest.split_at_mut(usable.min(rest.len()));
            if number == 0 {
                first.fill(place, now)?;
            } else {
                self.pass(later, number)?.fill(place, now)?;
            }
            position += now.len() as u64;
            rest = after;
        }
        Ok(())
    }

    fn pass(&self, later: &Mutex<[Option<Pass>; 2]>, number: u64) -> Result<Arc<Permutation>> {
        let mut later = lock(later);
        let [even, odd] = &mut *later;
        let slot = if number & 1 == 0 { even } else { odd };
        if let Some(pass) = slot.as_ref().filter(|pass| pass.number == number) {
            return Ok(Arc::clone(&pass.permutation));
        }
        let permutation = Arc::new(Permutation::new(self.seed, self.epoch, number, self.rows)?);
        *slot = Some(Pass {
            number,
            permutation: Arc::clone(&permutation),
        });
        Ok(permutation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::order::{Mode, Order};

    const MODES: [Mode; 3] = [
        Mode::Physical,
        Mode::WithReplacement,
        Mode::WithoutReplacement,
    ];

    fn rows_of(order: &Order, epoch: u32) -> Vec<u64> {
        let mut rows = vec![u64::MAX; order.len() as usize];
        order.epoch(epoch).unwrap().fill(0, &mut rows).unwrap();
        rows
    }

    fn counts(rows: &[u64], of: u64) -> Vec<u64> {
        let mut counts = vec![0; of as usize];
        rows.iter().for_each(|&row| counts[row as usize] += 1);
        counts
    }

    fn weights(rows: u64) -> Arc<[f64]> {
        (0..rows).map(|row| 1.0 + (row % 7) as f64).collect()
    }

    #[test]
    fn any_part_of_an_epoch_equals_that_part_of_the_whole() {
        for mode in MODES {
            for weighted in [false, true] {
                for length in [None, Some(1), Some(250), Some(1234)] {
                    let weights = weighted.then(|| weights(300));
                    let order = Order::new(mode, 300, weights, 42, length).unwrap();
                    let whole = rows_of(&order, 3);
                    assert_eq!(whole.len() as u64, length.unwrap_or(300));
                    let epoch = order.epoch(3).unwrap();
                    for (position, &row) in (0..).zip(&whole) {
                        assert_eq!(epoch.get(position).unwrap(), row);
                    }
                    for start in (0..whole.len()).step_by(37).rev() {
                        let mut part = vec![0; 100.min(whole.len() - start)];
                        epoch.fill(start as u64, &mut part).unwrap();
                        assert_eq!(part, whole[start..start + part.len()]);
                    }
                }
            }
        }
    }

    #[test]
    fn positions_outside_the_epoch_are_refused() {
        for mode in MODES {
            let epoch = Order::new(mode, 10, None, 1, None)
                .unwrap()
                .epoch(0)
                .unwrap();
            assert!(epoch.fill(8, &mut [0; 2]).is_ok());
            assert!(epoch.fill(10, &mut []).is_ok());
            for (start, length) in [(8, 3), (10, 1), (u64::MAX, 1), (u64::MAX, 5)] {
                let error = epoch.fill(start, &mut vec![0; length]).unwrap_err();
                assert!(matches!(error, CacheError::OutOfRange { len: 10, .. }));
            }
            assert!(matches!(
                epoch.get(10),
                Err(CacheError::OutOfRange { index: 10, len: 10 })
            ));
        }
    }

    #[test]
    fn without_replacement_every_pass_is_another_permutation() {
        for rows in [1, 2, 100, 70_000] {
            let length = Some(rows * 11 / 2);
            let order = Order::new(Mode::WithoutReplacement, rows, None, 5, length).unwrap();
            let drawn = rows_of(&order, 1);
            let passes: Vec<&[u64]> = drawn.chunks(rows as usize).collect();
            assert_eq!(passes.len() as u64, (rows * 11 / 2).div_ceil(rows));
            for (number, pass) in (0..).zip(&passes) {
                let mut expected = vec![0; pass.len()];
                let permutation = Permutation::new(5, 1, number, rows).unwrap();
                permutation.fill(0, &mut expected).unwrap();
                assert_eq!(*pass, expected);
                if number < 5 {
                    assert_eq!(counts(pass, rows), vec![1; rows as usize]);
                }
                assert!(rows < 100 || number == 0 || pass[..] != passes[0][..pass.len()]);
            }
            assert!(rows < 100 || rows_of(&order, 2) != drawn);
        }
    }

    #[test]
    fn quotas_hold_over_an_epoch_of_any_length() {
        for length in [None, Some(7), Some(4000), Some(100_000)] {
            let weights = weights(1000);
            let total: f64 = weights.iter().sum();
            let order = Order::new(
                Mode::WithoutReplacement,
                1000,
                Some(weights.clone()),
                2,
                length,
            );
            let order = order.unwrap();
            let (first, second) = (rows_of(&order, 0), rows_of(&order, 1));
            for (count, weight) in counts(&first, 1000).into_iter().zip(&*weights) {
                let expected = order.len() as f64 * weight / total;
                assert!(count as f64 >= expected.floor() && count as f64 <= expected.ceil());
            }
            assert_ne!(first, second);
        }
    }

    #[test]
    fn threads_that_share_an_epoch_see_the_same_rows() {
        let order = Order::new(Mode::WithoutReplacement, 50, None, 5, Some(5000)).unwrap();
        let whole = rows_of(&order, 0);
        let epoch = order.epoch(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (epoch, whole) = (&epoch, &whole);
                scope.spawn(move || {
                    for position in (thread..5000).step_by(4) {
                        assert_eq!(epoch.get(position as u64).unwrap(), whole[position]);
                    }
                });
            }
        });
    }

    #[test]
    fn substitutes_are_pinned_and_the_same_in_every_mode() {
        for mode in MODES {
            let order = Order::new(mode, 1000, None, 7 << 32 | 5, None).unwrap();
            let epoch = order.epoch(3).unwrap();
            let found = [(0, 0), (0, 1), (1, 0), (999, 0), (999, 127)]
                .map(|(position, attempt)| epoch.substitute(position, attempt).unwrap());
            assert_eq!(found, [275, 348, 433, 595, 397]);
        }
        let empty = Order::new(Mode::Physical, 0, None, 0, None).unwrap();
        assert!(empty.epoch(0).unwrap().substitute(0, 0).is_err());
    }

    #[test]
    fn substitutes_favour_no_row_and_follow_no_other_draw() {
        let order = Order::new(Mode::WithReplacement, 50, None, 3, Some(20_000)).unwrap();
        let epoch = order.epoch(1).unwrap();
        let drawn = |attempt| -> Vec<u64> {
            let rows = (0..20_000).map(|position| epoch.substitute(position, attempt).unwrap());
            rows.collect()
        };
        let (first, second, planned) = (drawn(0), drawn(1), rows_of(&order, 1));
        // 400 each, with a deviation of 20.
        for rows in [&first, &second] {
            assert!(
                counts(rows, 50)
                    .iter()
                    .all(|count| (300..500).contains(count))
            );
        }
        for (one, other) in [(&first, &second), (&first, &planned), (&second, &planned)] {
            let equal = one
                .iter()
                .zip(other)
                .filter(|(one, other)| one == other)
                .count();
            assert!((300..500).contains(&equal), "{equal}");
        }
    }
}
