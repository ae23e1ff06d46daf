//! The consumers that share one order, and how one of them takes single samples out of it.

use super::plan::{Path, Share};
use crate::error::{CacheError, Result};
use crate::sampling::position::{Remainder, Split};

/// This consumer's place among those that share one order.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// Number of this consumer.
    pub rank: u64,
    /// Number of consumers.
    pub world_size: u64,
}

impl Ranks {
    /// The only consumer.
    pub const SINGLE: Self = Self {
        rank: 0,
        world_size: 1,
    };

    /// # Errors
    /// [`CacheError::Option`] for a rank that does not exist.
    pub fn check(self) -> Result<()> {
        let Self { rank, world_size } = self;
        if world_size == 0 {
            return Err(CacheError::option("world_size", "at least 1", world_size));
        }
        if rank >= world_size {
            let allowed = format!("0 to {}", world_size - 1);
            return Err(CacheError::option("rank", allowed, rank));
        }
        Ok(())
    }
}

/// How a rank takes samples out of the global order: as batches of one, so every `world_size`-th position.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// What happens to positions that do not give each rank a sample.
    pub remainder: Remainder,
    /// Samples that a worker takes at a time.
    pub block: u64,
    /// The blocks that this worker takes.
    pub share: Share,
    /// This consumer.
    pub ranks: Ranks,
}

impl SampleOptions {
    /// Every sample of a rank, in one stream.
    pub fn plain(ranks: Ranks) -> Self {
        Self {
            remainder: Remainder::Keep,
            block: 1,
            share: Share::ALL,
            ranks,
        }
    }

    /// Which positions of the rest of an epoch of `len` positions these are, and how many the rank has before its workers
    /// share them.
    pub(super) fn path(&self, len: u64, start: u64) -> Result<(Path, u64)> {
        let Ranks { rank, world_size } = self.ranks;
        let steps = Split::new(len, start, 1, world_size, self.remainder)?.steps();
        let open = len.saturating_sub(start);
        let count = match self.remainder {
            Remainder::Keep => open.saturating_sub(rank).div_ceil(world_size),
            Remainder::Drop | Remainder::Pad => steps,
        };
        let path = Path::new(start + rank, world_size, count, self.block, self.share);
        Ok((path, count))
    }
}
