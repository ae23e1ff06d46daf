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
use super::epoch::{Draws, EpochOrder};
use super::permutation::{PASSES_MAX, Permutation, ROWS_MAX};
use super::quota::QuotaTable;
use super::weights;
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
        Ok(EpochOrder::new(
            self.rows, self.len, self.seed, epoch, draws,
        ))
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

    fn weights(rows: u64) -> Arc<[f64]> {
        (0..rows).map(|row| 1.0 + (row % 7) as f64).collect()
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
}
