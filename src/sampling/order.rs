//! The order of a dataset: which row each position of each epoch draws, as a function.
//!
//! * `Physical`: rows in table order, again and again if the epoch is longer.
//! * `WithReplacement`: position k is draw k of `uniform`, or of the alias table where weights differ.
//! * `WithoutReplacement` with equal weights: pass p over the rows is permutation p of the epoch, and positions
//!   `p * rows..(p + 1) * rows` belong to it; the last pass may be cut short. Where weights differ, position k is draw
//!   number `permutation(k)` of the quota table, the permutation (pass 0) being over all draws of the epoch.

#![forbid(unsafe_code)]

use std::sync::Arc;

use super::alias::AliasTable;
use super::permutation::{PASSES_MAX, Permutation, ROWS_MAX};
use super::quota::QuotaTable;
use super::{uniform, weights};
use crate::error::{CacheError, Result};
use crate::limits::WEIGHTED_ROWS_MAX;
use crate::sync::{Mutex, lock};

/// How an epoch goes through the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In table order; weights are not looked at.
    Physical,
    /// Independent draws by weight: a row may come several times and another not at all.
    WithReplacement,
    /// Every row its expected number of times, rounded down or up, in a pseudo-random permutation.
    WithoutReplacement,
}

/// The order of all epochs of one set of rows. Cheap to clone; clones share the tables.
#[derive(Clone, Debug)]
pub struct Order {
    mode: Mode,
    rows: u64,
    seed: u64,
    len: u64,
    tables: Arc<Mutex<Tables>>,
}

/// Weights until their table is built, and the table from then on: nobody needs both.
#[derive(Debug)]
enum Tables {
    /// Weights make no difference.
    None,
    Weights(Arc<[f64]>),
    Built(Table),
}

/// What weights are turned into once and for all epochs.
#[derive(Clone, Debug)]
enum Table {
    Alias(Arc<AliasTable>),
    Quota(Arc<QuotaTable>),
}

impl Order {
    /// The order over `0..rows`, without building tables. `weights`, one per row, all positive and finite, count as
    /// absent where they are all equal. `epoch_length` is the number of positions of an epoch, by default `rows`.
    ///
    /// Errors: weights that cannot be drawn from, an epoch over no rows, more rows or positions than this build handles.
    pub fn new(
        mode: Mode,
        rows: u64,
        weights: Option<Arc<[f64]>>,
        seed: u64,
        epoch_length: Option<u64>,
    ) -> Result<Self> {
        let len = epoch_length.unwrap_or(rows);
        limit("rows of a dataset", rows, ROWS_MAX)?;
        limit("positions of an epoch", len, ROWS_MAX)?;
        if rows == 0 && len > 0 {
            return Err(CacheError::option(
                "epoch_length",
                "0 for a dataset without rows",
                len,
            ));
        }
        if mode == Mode::WithoutReplacement {
            limit("passes of an epoch", len.div_ceil(rows.max(1)), PASSES_MAX)?;
        }
        if let Some(weights) = &weights {
            if weights.len() as u64 != rows {
                return Err(CacheError::Weights {
                    fault: format!("expected {rows} weights, found {}", weights.len()),
                    rows: Vec::new(),
                });
            }
            weights::check(weights, false)?;
        }
        let weights =
            weights.filter(|weights| mode != Mode::Physical && !weights::all_equal(weights));
        if weights.is_some() {
            limit("rows drawn by weight", rows, WEIGHTED_ROWS_MAX)?;
        }
        Ok(Self {
            mode,
            rows,
            seed,
            len,
            tables: Arc::new(Mutex::new(weights.map_or(Tables::None, Tables::Weights))),
        })
    }

    /// How many positions an epoch has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether epochs are empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many rows there are to draw from.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How an epoch goes through the rows.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The seed of all draws.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Builds the table that unequal weights need, once; O(rows), 8 to 10 bytes a row. [`epoch`](Self::epoch) does it
    /// otherwise; call this where a long computation is welcome.
    pub fn prepare(&self) -> Result<()> {
        self.table().map(drop)
    }

    fn table(&self) -> Result<Option<Table>> {
        let mut tables = lock(&self.tables);
        let table = match &*tables {
            Tables::None => return Ok(None),
            Tables::Built(table) => return Ok(Some(table.clone())),
            Tables::Weights(weights) if self.mode == Mode::WithoutReplacement => {
                Table::Quota(Arc::new(QuotaTable::build(weights, self.len)?))
            }
            Tables::Weights(weights) => Table::Alias(Arc::new(AliasTable::build(weights)?)),
        };
        *tables = Tables::Built(table.clone());
        Ok(Some(table))
    }

    /// The order of one epoch. Needs constant time once [`prepare`](Self::prepare) has run, except that a permutation of
    /// up to 65,536 rows is written down first.
    pub fn epoch(&self, epoch: u32) -> Result<EpochOrder> {
        let permutation = |rows| Permutation::new(self.seed, epoch, 0, rows).map(Arc::new);
        let draws = match (self.mode, self.table()?) {
            (Mode::Physical, _) => Draws::Physical,
            (Mode::WithReplacement, Some(Table::Alias(table))) => Draws::Weighted(table),
            (Mode::WithReplacement, _) => Draws::Uniform,
            (Mode::WithoutReplacement, Some(Table::Quota(table))) => Draws::Quota {
                offset: table.offset(self.seed, epoch),
                table,
                permutation: permutation(self.len)?,
            },
            (Mode::WithoutReplacement, _) => Draws::Passes {
                first: permutation(self.rows)?,
                later: Mutex::default(),
            },
        };
        Ok(EpochOrder {
            rows: self.rows,
            len: self.len,
            seed: self.seed,
            epoch,
            draws,
        })
    }
}

fn limit(what: &str, found: u64, limit: u64) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(CacheError::limit(
        format!("the number of {what}"),
        found,
        limit,
    ))
}

/// The order of one epoch: position to row, in constant time wherever one starts. May be shared between threads.
#[derive(Debug)]
pub struct EpochOrder {
    rows: u64,
    len: u64,
    seed: u64,
    epoch: u32,
    draws: Draws,
}

#[derive(Debug)]
enum Draws {
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

#[derive(Debug)]
struct Pass {
    number: u64,
    permutation: Arc<Permutation>,
}

impl EpochOrder {
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
    fn physical_order_is_table_order_over_and_over() {
        let order = Order::new(Mode::Physical, 4, Some(weights(4)), 9, Some(10)).unwrap();
        assert_eq!(rows_of(&order, 5), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]);
        assert!(matches!(*lock(&order.tables), Tables::None));
    }

    #[test]
    fn equal_weights_change_nothing_and_need_no_table() {
        for mode in MODES {
            let plain = Order::new(mode, 1000, None, 1, Some(1500)).unwrap();
            let equal =
                Order::new(mode, 1000, Some(vec![0.3; 1000].into()), 1, Some(1500)).unwrap();
            assert!(matches!(*lock(&equal.tables), Tables::None));
            assert_eq!(rows_of(&plain, 0), rows_of(&equal, 0));
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
    fn tables_are_built_once_and_shared_by_clones_and_epochs() {
        let order = Order::new(Mode::WithReplacement, 100, Some(weights(100)), 1, None).unwrap();
        assert!(matches!(*lock(&order.tables), Tables::Weights(_)));
        order.clone().prepare().unwrap();
        let table = |order: &Order| match order.table().unwrap() {
            Some(Table::Alias(table)) => table,
            other => panic!("{other:?}"),
        };
        assert!(Arc::ptr_eq(&table(&order), &table(&order.clone())));
        let epoch = order.epoch(0).unwrap();
        assert!(matches!(&epoch.draws, Draws::Weighted(t) if Arc::ptr_eq(t, &table(&order))));
    }

    #[test]
    fn empty_datasets_have_empty_epochs_and_nothing_else() {
        for mode in MODES {
            let order = Order::new(mode, 0, Some(Arc::default()), 1, None).unwrap();
            assert!(order.is_empty());
            assert!(order.epoch(0).unwrap().is_empty());
            assert!(Order::new(mode, 0, None, 1, Some(1)).is_err());
            let none = Order::new(mode, 5, Some(weights(5)), 1, Some(0)).unwrap();
            assert!(none.epoch(0).unwrap().get(0).is_err());
        }
    }

    #[test]
    fn what_cannot_be_ordered_is_refused() {
        let new = |rows, weights: Option<Vec<f64>>, length| {
            Order::new(
                Mode::WithoutReplacement,
                rows,
                weights.map(Into::into),
                0,
                length,
            )
        };
        assert!(new(3, Some(vec![1.0, 0.0, 2.0]), None).is_err());
        assert!(new(3, Some(vec![1.0, 2.0]), None).is_err());
        assert!(new(ROWS_MAX + 1, None, None).is_err());
        assert!(new(5, None, Some(ROWS_MAX + 1)).is_err());
        assert!(new(1, None, Some(PASSES_MAX + 1)).is_err());
        assert!(new(5, None, Some(ROWS_MAX)).is_ok());
        let far = new(5, None, Some(ROWS_MAX)).unwrap().epoch(0).unwrap();
        assert!(far.get(ROWS_MAX - 1).unwrap() < 5);
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
}
