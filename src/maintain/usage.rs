//! What the index says about every record: which shards hold how much of what is still wanted.

use crate::error::{CacheError, Result};
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::store::cache::Cache;
use crate::store::live::LiveIds;

/// Index rows read at once.
const ROWS_AT_ONCE: u64 = 65_536;

/// What lies in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardUse {
    /// Records that an index row points at, those of deleted samples too.
    pub records: u64,
    /// Those of samples that are there.
    pub live_records: u64,
    /// The bytes of these.
    pub live_bytes: u64,
}

/// What lies in each shard of a cache, in the order of the manifest. `pause` is called every 65,536 rows.
///
/// # Errors
/// [`CacheError::DamagedRecord`] for a sample whose index row points outside the shards, and the error of `pause`.
pub fn usage(cache: &Cache, pause: &mut dyn FnMut() -> Result<()>) -> Result<Vec<ShardUse>> {
    let mut shards = vec![ShardUse::default(); cache.manifest().shards.len()];
    for_each_row(cache, pause, |_, row, is_live| {
        let position = usize::try_from(row.shard).ok();
        if let Some(shard) = position.and_then(|position| shards.get_mut(position)) {
            shard.records += 1;
            if is_live {
                shard.live_records += 1;
                shard.live_bytes = shard.live_bytes.saturating_add(row.byte_len);
            }
        }
        Ok(())
    })?;
    Ok(shards)
}

/// Calls `visit` with every id in order, its index row, and whether its sample is there. Rows of these are checked.
///
/// # Errors
/// As [`usage`], and those of `visit`.
pub fn for_each_row(
    cache: &Cache,
    pause: &mut dyn FnMut() -> Result<()>,
    mut visit: impl FnMut(u64, IndexRow, bool) -> Result<()>,
) -> Result<()> {
    let index = cache.index()?;
    let lengths: Vec<u64> = (cache.manifest().shards.iter())
        .map(|shard| shard.byte_len)
        .collect();
    let is_within = |row: IndexRow| {
        let shard = usize::try_from(row.shard).ok();
        let len = shard.and_then(|shard| lengths.get(shard)).copied();
        let end = row.offset.checked_add(row.byte_len);
        end.zip(len).is_some_and(|(end, len)| end <= len)
    };
    let mut deleted = cache
        .live()?
        .into_iter()
        .flat_map(LiveIds::deleted)
        .peekable();
    let mut scratch = Vec::new();
    let (mut id, ids) = (0, cache.sample_ids());
    while id < ids {
        pause()?;
        let count = ROWS_AT_ONCE.min(ids - id);
        let bytes = index.view(id * ROW_BYTES, count * ROW_BYTES, &mut scratch)?;
        for bytes in bytes.chunks_exact(ROW_BYTES as usize) {
            let row = IndexRow::from_bytes(bytes)
                .ok_or_else(|| CacheError::internal("an index row of another length"))?;
            let is_live = deleted.next_if_eq(&id).is_none();
            if is_live && !is_within(row) {
                // Says what is wrong with it.
                cache.index_row(&index, id)?;
            }
            visit(id, row, is_live)?;
            id += 1;
        }
    }
    Ok(())
}
