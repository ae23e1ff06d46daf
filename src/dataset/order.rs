//! Where an order meets the rows: which physical sample stands at each position of an epoch.

use std::sync::Arc;

use super::rows::Rows;
use super::weights::Weights;
use crate::error::Result;
use crate::reader::Plan;
use crate::sampling::order::{EpochOrder, Mode, Order};
use crate::types::SampleRef;

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

/// Builds plans, and keeps the tables that weights cost as long as the weights last.
#[derive(Debug)]
pub struct Orders {
    options: OrderOptions,
    order: Option<Arc<Order>>,
}

impl Orders {
    pub fn new(options: OrderOptions) -> Self {
        Self {
            options,
            order: None,
        }
    }

    /// Drops the tables: the weights have changed.
    pub fn forget(&mut self) {
        self.order = None;
    }

    /// The plan of one epoch.
    pub fn plan(
        &mut self,
        rows: &Arc<Rows>,
        weights: &Weights,
        epoch: u32,
    ) -> Result<Arc<dyn Plan>> {
        let order = match &self.order {
            Some(order) => Arc::clone(order),
            None => {
                let OrderOptions {
                    mode,
                    seed,
                    epoch_length,
                } = self.options;
                let weights = weights.each().map(|weights| Arc::from(&weights[..]));
                let order = Arc::new(Order::new(mode, rows.len(), weights, seed, epoch_length)?);
                self.order = Some(Arc::clone(&order));
                order
            }
        };
        Ok(Arc::new(EpochPlan {
            rows: Arc::clone(rows),
            order: order.epoch(epoch)?,
        }))
    }
}

/// One epoch over all rows.
struct EpochPlan {
    rows: Arc<Rows>,
    order: EpochOrder,
}

impl Plan for EpochPlan {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn fill(&self, start: u64, count: usize, out: &mut Vec<SampleRef>) -> Result<()> {
        let mut drawn = vec![0; count];
        self.order.fill(start, &mut drawn)?;
        out.clear();
        for row in drawn {
            out.push(self.rows.sample(row)?);
        }
        Ok(())
    }
}
