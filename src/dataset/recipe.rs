//! What decides the order of an epoch, frozen: an iterator keeps its recipe whatever happens to the dataset.

use std::sync::Arc;

use super::active::ActiveRows;
use super::caches::Caches;
use super::fingerprint::{Fingerprint, Fingerprinter};
use super::history;
use super::plan::{EpochPlan, Path};
use super::state::{Cursor, SavedState};
use super::weights::Weights;
use crate::error::{CacheError, Result};
use crate::sampling::epoch::EpochOrder;
use crate::sampling::order::{Mode, Order};
use crate::sync::OnceLock;

/// How epochs are drawn.
#[derive(Clone, Copy, Debug)]
pub struct OrderOptions {
    /// Rows in table order, drawn with replacement, or without.
    pub mode: Mode,
    /// Seed of every random choice.
    pub seed: u64,
    /// Draws of an epoch, if not the number of rows.
    pub epoch_length: Option<u64>,
}

/// Caches, rows, weights and options: the order is a pure function of these and of epoch and position.
#[derive(Debug)]
pub struct Recipe {
    pub caches: Arc<Caches>,
    pub rows: ActiveRows,
    pub weights: Weights,
    pub options: OrderOptions,
    order: OnceLock<Order>,
    row_name: OnceLock<Fingerprint>,
    weight_name: OnceLock<Fingerprint>,
}

impl Recipe {
    pub fn new(
        caches: Arc<Caches>,
        rows: ActiveRows,
        weights: Weights,
        options: OrderOptions,
    ) -> Self {
        Self {
            caches,
            rows,
            weights,
            options,
            order: OnceLock::new(),
            row_name: OnceLock::new(),
            weight_name: OnceLock::new(),
        }
    }

    /// Number of active rows.
    pub fn row_count(&self) -> u64 {
        self.rows.len(&self.caches)
    }

    /// The order of all epochs. Tables that weights cost are built when the first epoch needs them.
    ///
    /// # Errors
    /// As [`Order::new`].
    pub fn order(&self) -> Result<&Order> {
        if let Some(order) = self.order.get() {
            return Ok(order);
        }
        let OrderOptions {
            mode,
            seed,
            epoch_length,
        } = self.options;
        let each = self.weights.each().filter(|_| mode != Mode::Physical);
        let weights = each.map(Arc::clone);
        let order = Order::new(mode, self.row_count(), weights, seed, epoch_length)?;
        Ok(self.order.get_or_init(|| order))
    }

    /// The order of one epoch.
    ///
    /// # Errors
    /// As [`Order::epoch`].
    pub fn epoch(&self, epoch: u32) -> Result<Arc<EpochOrder>> {
        self.order()?.epoch(epoch).map(Arc::new)
    }

    /// A plan of some positions of an epoch.
    pub fn plan(&self, order: Arc<EpochOrder>, path: Path) -> EpochPlan {
        EpochPlan::new(Arc::clone(&self.caches), self.rows.clone(), order, path)
    }

    /// Number of positions of an epoch.
    pub fn epoch_len(&self) -> Result<u64> {
        Ok(self.order()?.len())
    }

    /// The cursor after position `position` of an epoch: the end of one epoch is the start of the next.
    ///
    /// # Errors
    /// [`CacheError::Limit`] after the last epoch number.
    pub fn cursor(&self, epoch: u32, position: u64) -> Result<Cursor> {
        // The start of an epoch is its start, however short the epoch is.
        if position == 0 || position < self.epoch_len()? {
            return Ok(Cursor { epoch, position });
        }
        let epoch = epoch.checked_add(1).ok_or_else(|| CacheError::Limit {
            what: "epoch".to_owned(),
            found: u64::from(epoch) + 1,
            limit: u64::from(u32::MAX),
        })?;
        Ok(Cursor { epoch, position: 0 })
    }

    /// The state that resumes at `cursor`.
    pub fn state(&self, cursor: Cursor) -> SavedState {
        SavedState::new(
            cursor,
            &self.options,
            self.caches.contents().clone(),
            self.row_name
                .get_or_init(|| self.rows.fingerprint(&self.caches))
                .clone(),
            self.weight_name
                .get_or_init(|| weight_name(&self.weights))
                .clone(),
            history::later(&self.caches),
        )
    }

    /// Where `saved` resumes in this recipe.
    ///
    /// # Errors
    /// [`CacheError::State`] listing every field that differs and is not in `ignore`; [`CacheError::OutOfRange`] for a
    /// position beyond the epoch.
    pub fn resume(&self, saved: &SavedState, ignore: &[String]) -> Result<Cursor> {
        saved
            .check(&self.state(Cursor::default()), ignore)
            .map_err(|error| history::explain(error, saved, &self.caches))?;
        let len = self.epoch_len()?;
        if saved.position > len {
            return Err(CacheError::OutOfRange {
                index: i128::from(saved.position),
                len,
            });
        }
        self.cursor(saved.epoch, saved.position)
    }
}

fn weight_name(weights: &Weights) -> Fingerprint {
    let mut name = Fingerprinter::new("weights");
    if let Some(weights) = weights.each() {
        name.number(weights.len() as u64);
        name.numbers(weights.iter().map(|weight| weight.to_bits()));
    }
    name.finish()
}
