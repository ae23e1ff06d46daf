//! Memory that batches are read into, used again once its last owner is gone.
//!
//! A fresh page costs more than filling it, so memory of dropped batches is kept for the next ones. Large blocks are
//! aligned to huge pages and ask for them.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};

use crate::error::{CacheError, Result};
use crate::limits::SLOT_BYTES_KEPT_MAX;
use crate::sync::{Mutex, lock, process_id};

/// Alignment of large blocks, in bytes: the size of a huge page.
const HUGE: usize = 2 << 20;
/// Smallest block, in bytes.
const LEAST: usize = 4 << 10;

/// Blocks that nobody uses at the moment.
pub struct SlotPool {
    free: Mutex<Free>,
    /// The process whose threads may hold the lock.
    process: u32,
}

#[derive(Default)]
struct Free {
    blocks: Vec<Block>,
    bytes: usize,
}

struct Block {
    map: MmapMut,
    /// The aligned part of the map.
    used: Range<usize>,
}

/// Memory of a batch: zeros, or what an earlier batch left there. Aligned to 4 KiB at least.
pub struct Slot {
    block: Option<Block>,
    len: usize,
    pool: Arc<SlotPool>,
}

impl SlotPool {
    /// A pool that keeps nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::default(),
            process: process_id(),
        })
    }

    /// Memory of `len` bytes.
    ///
    /// # Errors
    /// [`CacheError::Memory`] where the system has not that much left.
    pub fn take(self: &Arc<Self>, len: usize) -> Result<Slot> {
        let block = match (len, self.recycled(len)) {
            (0, _) => None,
            (_, Some(block)) => Some(block),
            (_, None) => Some(Block::new(capacity(len))?),
        };
        Ok(Slot {
            block,
            len,
            pool: Arc::clone(self),
        })
    }

    /// The smallest free block that holds `len` bytes without wasting more than as many again.
    fn recycled(&self, len: usize) -> Option<Block> {
        if self.is_foreign() {
            return None;
        }
        let mut free = lock(&self.free);
        let fits =
            |block: &Block| block.used.len() >= len && block.used.len() / 4 <= len.max(LEAST);
        let (position, _) = free
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| fits(block))
            .min_by_key(|(_, block)| block.used.len())?;
        let block = free.blocks.swap_remove(position);
        free.bytes -= block.used.len();
        Some(block)
    }

    /// Keeps `block` for later. The oldest blocks make room for it, since sizes that are no longer asked for end up there.
    fn put_back(&self, block: Block) {
        if self.is_foreign() || block.used.len() > SLOT_BYTES_KEPT_MAX {
            return;
        }
        let mut given_up = Vec::new();
        let mut free = lock(&self.free);
        free.bytes += block.used.len();
        free.blocks.push(block);
        while free.bytes > SLOT_BYTES_KEPT_MAX {
            let oldest = free.blocks.remove(0);
            free.bytes -= oldest.used.len();
            given_up.push(oldest);
        }
        drop(free);
    }

    /// Whether this is a forked child, in which another thread of the parent may hold the lock for ever.
    fn is_foreign(&self) -> bool {
        self.process != process_id()
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPool").finish_non_exhaustive()
    }
}

/// Room for `len` bytes and a little growth: batches of records of different lengths mostly fit the same blocks.
fn capacity(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(LEAST);
    let step = if len >= HUGE { step.max(HUGE) } else { step };
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl Block {
    fn new(len: usize) -> Result<Self> {
        let refuse = |_| CacheError::memory("a batch", len);
        if len < HUGE {
            let map = MmapOptions::new().len(len).map_anon().map_err(refuse)?;
            return Ok(Self { map, used: 0..len });
        }
        let with_slack = len.saturating_add(HUGE);
        let map = MmapOptions::new()
            .len(with_slack)
            .map_anon()
            .map_err(refuse)?;
        let start = map.as_ptr().align_offset(HUGE);
        let block = Self {
            map,
            used: start..start + len,
        };
        block.advise();
        Ok(block)
    }

    /// Asks for huge pages. They are wanted, not needed.
    #[cfg(target_os = "linux")]
    fn advise(&self) {
        let Range { start, .. } = self.used;
        let len = self.used.len();
        let _ = self.map.advise_range(memmap2::Advice::HugePage, start, len);
    }

    #[cfg(not(target_os = "linux"))]
    fn advise(&self) {}
}

impl Slot {
    /// Forgets all bytes from `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.block.as_ref().and_then(|block| {
            let start = block.used.start;
            block.map.get(start..start + self.len)
        });
        bytes.unwrap_or_default()
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        let bytes = self.block.as_mut().and_then(|block| {
            let start = block.used.start;
            block.map.get_mut(start..start + len)
        });
        bytes.unwrap_or_default()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({} bytes)", self.len)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.put_back(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_slot_is_used_again_and_a_kept_one_is_not() {
        let pool = SlotPool::new();
        for len in [1, 100_000, 3 << 20] {
            let mut kept = pool.take(len).unwrap();
            kept.fill(7);
            let address = kept.as_ptr();
            let mut other = pool.take(len).unwrap();
            assert_ne!(other.as_ptr(), address);
            other.fill(8);
            assert!(kept.iter().all(|byte| *byte == 7));
            drop(kept);
            assert_eq!(pool.take(len).unwrap().as_ptr(), address, "{len}");
        }
    }

    #[test]
    fn large_slots_are_aligned_to_huge_pages_and_empty_ones_cost_nothing() {
        let pool = SlotPool::new();
        let slot = pool.take(HUGE + 1).unwrap();
        assert_eq!(slot.as_ptr() as usize % HUGE, 0);
        assert_eq!(slot.len(), HUGE + 1);
        assert!(pool.take(0).unwrap().block.is_none());
    }

    #[test]
    fn a_small_batch_does_not_take_the_memory_of_a_large_one() {
        let pool = SlotPool::new();
        drop(pool.take(64 << 20).unwrap());
        let small = pool.take(1 << 20).unwrap();
        assert!(small.block.as_ref().unwrap().used.len() < 2 << 20);
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let pool = SlotPool::new();
        let each = SLOT_BYTES_KEPT_MAX / 4;
        let slots: Vec<_> = (0..6).map(|_| pool.take(each).unwrap()).collect();
        drop(slots);
        assert_eq!(lock(&pool.free).blocks.len(), 4);
        drop(pool.take(SLOT_BYTES_KEPT_MAX + 1).unwrap());
        assert_eq!(lock(&pool.free).blocks.len(), 4);
    }

    #[test]
    fn capacities_have_room_and_waste_little() {
        for len in [1, 4096, 5000, HUGE - 1, HUGE, 3 << 20, 100 << 20] {
            assert!(
                capacity(len) >= len && capacity(len) < 2 * len + 2 * LEAST,
                "{len}"
            );
        }
    }
}
