//! Where an order meets the rows: which physical sample stands at each position of an epoch.

use std::sync::Arc;

use super::active::ActiveRows;
use super::caches::Caches;
use crate::error::{CacheError, Result};
use crate::reader::Plan;
use crate::sampling::epoch::EpochOrder;
use crate::types::SampleRef;

/// Some positions of one epoch, as the reader asks for them.
pub struct EpochPlan {
    caches: Arc<Caches>,
    rows: ActiveRows,
    order: Arc<EpochOrder>,
    path: Path,
}

/// Which positions a consumer visits: of the positions `first`, `first + stride`, ... the blocks of `block` that fall to
/// it, namely those after the first `share.skip`, and of these every `share.step`-th. Past the end of the epoch they wrap
/// around, for consumers that are filled up.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    first: u64,
    stride: u64,
    block: u64,
    share: Share,
    len: u64,
}

/// The part that one of several workers takes of what all of them take in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How many come before the first.
    pub skip: u64,
    /// 1 takes every one from there, 2 every other, and so on.
    pub step: u64,
}

impl Share {
    /// Everything: there are no other workers.
    pub const ALL: Self = Self { skip: 0, step: 1 };

    /// # Errors
    /// [`CacheError::Option`] for a step of 0.
    pub fn check(self) -> Result<()> {
        if self.step == 0 {
            return Err(CacheError::option("step", "at least 1", 0));
        }
        Ok(())
    }
}

impl Path {
    /// `count` positions from `first` on, `stride` apart, dealt out in blocks. A stride, block or step of 0 counts as 1.
    pub fn new(first: u64, stride: u64, count: u64, block: u64, share: Share) -> Self {
        let (stride, block) = (stride.max(1), block.max(1));
        let share = Share {
            step: share.step.max(1),
            ..share
        };
        let (whole, rest) = (count / block, count % block);
        let taken = whole.saturating_sub(share.skip).div_ceil(share.step);
        let has_rest = whole
            .checked_sub(share.skip)
            .is_some_and(|open| open % share.step == 0);
        Self {
            first,
            stride,
            block,
            share,
            len: taken * block + if has_rest { rest } else { 0 },
        }
    }

    /// Every position of an epoch.
    pub fn whole(order: &EpochOrder) -> Self {
        Self::new(0, 1, order.len(), 1, Share::ALL)
    }

    /// How many of the positions dealt out come before the one that this consumer visits as number `index`.
    pub fn before(&self, index: u64) -> u64 {
        if self.share == Share::ALL {
            return index;
        }
        let block = (index / self.block)
            .saturating_mul(self.share.step)
            .saturating_add(self.share.skip);
        block
            .saturating_mul(self.block)
            .saturating_add(index % self.block)
    }

    fn position(&self, index: u64) -> u64 {
        self.first + self.before(index) * self.stride
    }

    /// How many positions from number `index` on follow each other directly.
    fn run(&self, index: u64) -> u64 {
        match (self.stride, self.share.step) {
            (1, 1) => u64::MAX,
            (1, _) => self.block - index % self.block,
            _ => 1,
        }
    }
}

/// Room for `count` numbers.
///
/// # Errors
/// [`CacheError::Memory`] where it does not suffice, which would otherwise end the process.
pub fn zeros(count: usize) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    numbers
        .try_reserve_exact(count)
        .map_err(|_| CacheError::memory("a list of rows", count.saturating_mul(8)))?;
    numbers.resize(count, 0);
    Ok(numbers)
}

impl EpochPlan {
    /// The positions of `path` in an epoch.
    pub fn new(caches: Arc<Caches>, rows: ActiveRows, order: Arc<EpochOrder>, path: Path) -> Self {
        Self {
            caches,
            rows,
            order,
            path,
        }
    }
}

impl Plan for EpochPlan {
    fn len(&self) -> u64 {
        self.path.len
    }

    fn fill(&self, start: u64, count: usize, out: &mut Vec<SampleRef>) -> Result<()> {
        let mut drawn = zeros(count)?;
        let end = self.order.len().max(1);
        let mut index = start;
        let mut rest = drawn.as_mut_slice();
        while !rest.is_empty() {
            let position = self.path.position(index) % end;
            let run = self.path.run(index).min(end - position);
            let run = usize::try_from(run).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(run);
            self.order.fill(position, now)?;
            index += run as u64;
            rest = later;
        }
        out.clear();
        self.rows.extend_samples(&self.caches, drawn, out)
    }

    fn substitute(&self, position: u64, attempt: u32) -> Result<SampleRef> {
        let position = self.path.position(position) % self.order.len().max(1);
        let row = self.order.substitute(position, attempt)?;
        self.rows.sample(&self.caches, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_dealt_out_in_turns_and_together_are_everything() {
        for count in 0..23 {
            for block in 1..5 {
                for step in 1..5 {
                    let mut seen = Vec::new();
                    for skip in 0..step {
                        let path = Path::new(0, 1, count, block, Share { skip, step });
                        let naive: Vec<u64> = (0..count)
                            .filter(|place| place / block % step == skip)
                            .collect();
                        let found: Vec<u64> = (0..path.len).map(|i| path.position(i)).collect();
                        assert_eq!(found, naive, "{count} {block} {skip} of {step}");
                        seen.extend(found);
                    }
                    seen.sort_unstable();
                    assert_eq!(seen, (0..count).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn skipping_more_than_a_turn_continues_where_a_worker_stood() {
        let whole = Path::new(3, 5, 40, 4, Share { skip: 1, step: 3 });
        let later = Path::new(3, 5, 40, 4, Share { skip: 7, step: 3 });
        assert_eq!(later.len, whole.len - 8);
        for index in 0..later.len {
            assert_eq!(later.position(index), whole.position(index + 8));
        }
        assert_eq!(Path::new(0, 1, 40, 4, Share { skip: 11, step: 3 }).len, 0);
        assert_eq!(
            Path::new(
                0,
                1,
                40,
                4,
                Share {
                    skip: u64::MAX,
                    step: 1
                }
            )
            .len,
            0
        );
    }
}
