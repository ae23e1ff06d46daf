//! Where an order meets the rows: which physical sample stands at each position of an epoch.

use std::sync::Arc;

use super::active::ActiveRows;
use super::caches::Caches;
use crate::error::Result;
use crate::reader::Plan;
use crate::sampling::order::EpochOrder;
use crate::types::SampleRef;

/// Positions `first`, `first + stride`, ... of one epoch, as the reader asks for them.
pub struct EpochPlan {
    caches: Arc<Caches>,
    rows: ActiveRows,
    order: Arc<EpochOrder>,
    first: u64,
    stride: u64,
    len: u64,
}

impl EpochPlan {
    /// Every `stride`-th position from `first` on. Positions past the end wrap around, for batches that are filled up.
    pub fn new(
        caches: Arc<Caches>,
        rows: ActiveRows,
        order: Arc<EpochOrder>,
        first: u64,
        stride: u64,
    ) -> Self {
        let stride = stride.max(1);
        let len = order.len().saturating_sub(first).div_ceil(stride);
        Self {
            caches,
            rows,
            order,
            first,
            stride,
            len,
        }
    }
}

impl Plan for EpochPlan {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, count: usize, out: &mut Vec<SampleRef>) -> Result<()> {
        let mut drawn = vec![0; count];
        let end = self.order.len();
        let mut position = self.first + start * self.stride;
        if self.stride == 1 {
            let mut rest = drawn.as_mut_slice();
            while !rest.is_empty() {
                position %= end.max(1);
                let run = usize::try_from(end - position)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                let (now, later) = rest.split_at_mut(run.max(1));
                self.order.fill(position, now)?;
                position += run as u64;
                rest = later;
            }
        } else {
            for row in &mut drawn {
                *row = self.order.get(position)?;
                position += self.stride;
            }
        }
        out.clear();
        for row in drawn {
            out.push(self.rows.sample(&self.caches, row)?);
        }
        Ok(())
    }
}
