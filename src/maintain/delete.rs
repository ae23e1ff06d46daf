//! Deletion: a generation without some samples. Their ids are written down, and nothing else but a manifest.

use std::path::Path;
use std::sync::Arc;

use super::Changed;
use crate::error::{CacheError, Result};
use crate::format::checksum::Sha256Digest;
use crate::format::generation::{Cause, DeletedPart, Operation, encode_deleted};
use crate::format::names;
use crate::store::cache::Cache;
use crate::store::change::Change;
use crate::store::generations::Wanted;
use crate::store::vfs::Vfs;

/// Takes the samples `ids` out of the cache at `path`; those that are gone already change nothing.
///
/// # Errors
/// [`CacheError::NoSample`] for an id that was never given; as [`Change::begin`] and [`Change::publish`]. Nothing is
/// changed then, but as that says.
pub fn delete(vfs: Arc<dyn Vfs>, path: &Path, ids: Vec<u64>) -> Result<Changed> {
    let mut change = Change::begin(vfs, path, Wanted::Newest)?;
    let ids = still_there(change.cache(), ids)?;
    if ids.is_empty() {
        return Ok(Changed::nothing(&change, Operation::Delete));
    }
    let bytes = encode_deleted(&ids);
    let count = ids.len() as u64;
    let mut manifest = change.successor(Operation::Delete);
    manifest.sample_count -= count;
    if let Some(generation) = &mut manifest.generation {
        generation.deleted.push(DeletedPart {
            generation: generation.number,
            count,
            sha256: Sha256Digest::of(&bytes),
            cause: Cause::Deleted,
        });
    }
    let changed = Changed {
        generation: change.next(),
        samples: manifest.sample_count,
        deleted: count,
        bytes_written: bytes.len() as u64,
        ..Changed::nothing(&change, Operation::Delete)
    };
    let staging = change.stage()?;
    let mut file = staging.create_file(names::DELETED)?;
    file.write_all(&bytes)?;
    file.finish()?;
    change.publish(staging, &manifest)?;
    Ok(changed)
}

/// The ids in ascending order, without repetitions and those that are gone.
fn still_there(cache: &Cache, mut ids: Vec<u64>) -> Result<Vec<u64>> {
    ids.sort_unstable();
    ids.dedup();
    if let Some(beyond) = ids.last().filter(|id| **id >= cache.sample_ids()) {
        return Err(CacheError::NoSample {
            path: cache.path().to_path_buf(),
            sample_id: *beyond,
            sample_ids: cache.sample_ids(),
        });
    }
    if let Some(live) = cache.live()? {
        ids.retain(|id| live.position(*id).is_some());
    }
    Ok(ids)
}
