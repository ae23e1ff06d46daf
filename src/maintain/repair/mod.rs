//! Repair: a generation with everything of a damaged cache that can be trusted, and a list of what is lost.
//!
//! The damaged files stay where they are, in the generations that name them; a vacuum removes them in its time.

mod newer;
mod restore;
mod taken;
mod wreck;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::newer::Newer;
use self::restore::restore;
use self::wreck::Wreck;
use super::Changed;
use crate::error::{CacheError, Result};
use crate::format::checksum::Sha256Digest;
use crate::format::generation::{
    Cause, DeletedPart, MetadataPart, Operation, deleted_byte_len, encode_deleted,
};
use crate::format::manifest::Manifest;
use crate::format::names::{DELETED, MANIFEST};
use crate::store::change::Change;
use crate::store::generations::{self, Wanted};
use crate::store::outflow::failure::Failure;
use crate::store::outflow::flow::{Flow, supervised};
use crate::store::outflow::manifest::{digest, entries};
use crate::store::outflow::output::Tag;
use crate::store::publish::Staging;
use crate::store::vfs::Vfs;

/// What a repair came to.
#[derive(Debug)]
pub struct Repaired {
    /// The change; the generations are the same if there was nothing to repair.
    pub changed: Changed,
    /// The generation whose manifest could be trusted, from which the repair started.
    pub started_from: u64,
    /// Ids of samples that were there and are lost, in ascending order.
    pub lost: Vec<u64>,
    /// Newer generations whose manifest could not be trusted, and why. What they added is lost; what they deleted is
    /// deleted again.
    pub lost_generations: Vec<(u64, String)>,
    /// Files that were not what they should be.
    pub damaged: Vec<PathBuf>,
}

/// Keeps what can be trusted of the cache at `path`, if anything of it is damaged.
///
/// `interrupt` is called at least every 50 ms, but no more once publication has begun.
///
/// # Errors
/// As [`generations::choose`] if no manifest can be trusted: nothing says then what is in the files. As [`Change::begin`]
/// and [`Change::publish`]; the error of `interrupt`; [`CacheError::DamagedFile`] if no sample would be left, or if it cannot
/// be known which were deleted. Nothing is changed then, but as that says.
pub fn repair(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Repaired> {
    let change = Change::begin(vfs, path, Wanted::Salvage)?;
    let (repaired, ready) =
        supervised("repair", interrupt, move |failure| prepare(change, failure))?;
    if let Some(ready) = ready {
        let (change, staging, manifest) = *ready;
        change.publish(staging, &manifest)?;
    }
    Ok(repaired)
}

/// A generation that lacks nothing but its name.
type Ready = Box<(Change, Staging, Manifest)>;

fn prepare(mut change: Change, failure: &Arc<Failure>) -> Result<(Repaired, Option<Ready>)> {
    let before = change.cache().manifest().clone();
    let folder = generations::open_folder(change.path())?;
    let newer = Newer::look(&folder, change.path(), before.number(), before.sample_ids())?;
    let wreck = Wreck::look(change.shared(), &|| failure.check())?;
    let mut damaged = wreck.damaged().to_vec();
    if before.number() > 0 && generations::read_manifest(&folder, change.path(), 0).is_err() {
        damaged.push(change.path().join(MANIFEST));
    }
    let mut repaired = Repaired {
        changed: Changed {
            previous: newer.newest,
            generation: newer.newest,
            ..Changed::nothing(&change, Operation::Repair)
        },
        started_from: before.number(),
        lost: Vec::new(),
        lost_generations: newer.lost.clone(),
        damaged,
    };
    if repaired.damaged.is_empty() && newer.lost.is_empty() {
        return Ok((repaired, None));
    }

    let never_kept = before.sample_ids()..newer.sample_ids;
    let gone = wreck.gone().iter().chain(&newer.deleted).copied();
    let gone: BTreeSet<u64> = gone.chain(never_kept).collect();
    let mut manifest = change.successor(Operation::Repair);
    let flow = Flow::start(change.stage()?, failure)?;
    let restored = restore(&wreck, &manifest, newer.sample_ids, &gone, flow.outputs()?)?;
    let (staging, digests) = flow.finish()?;
    if restored.kept == 0 && !restored.lost.is_empty() {
        return Err(nothing_left(&repaired));
    }

    let next = change.next();
    let told: BTreeSet<u64> = wreck.told().iter().copied().collect();
    let newly = gone.into_iter().chain(restored.lost.iter().copied());
    let newly: BTreeSet<u64> = newly.filter(|id| !told.contains(id)).collect();
    let mut deleted = wreck.sound_parts().to_vec();
    let mut bytes_written = digests.values().map(|digest| digest.byte_len).sum();
    if !newly.is_empty() {
        let part = take_out(&staging, next, newly.iter().copied().collect())?;
        bytes_written += deleted_byte_len(part.count).unwrap_or(0);
        deleted.push(part);
    }
    let kept = (0..).zip(&before.shards);
    let kept = kept.filter(|(number, _)| wreck.is_shard_sound(*number));
    let kept = kept.map(|(_, entry)| entry.clone());
    manifest.shards = kept
        .chain(entries(&restored.shards, &digests, next)?)
        .collect();
    manifest.sample_count = newer.sample_ids - told.len() as u64 - newly.len() as u64;
    manifest.index_sha256 = digest(&digests, Tag::Index)?.sha256;
    if !wreck.is_dictionary_sound() {
        manifest.dictionary = None;
    }
    if let Some(checksums) = &mut manifest.record_checksums {
        checksums.sha256 = digest(&digests, Tag::Checksums)?.sha256;
    }
    let table = digest(&digests, Tag::Metadata)?;
    let own = manifest.generation.as_mut();
    let own = own.ok_or_else(|| CacheError::internal("a generation without a number"))?;
    own.sample_ids = newer.sample_ids;
    (own.index, own.checksums) = (next, next);
    own.metadata = vec![MetadataPart {
        generation: next,
        rows: newer.sample_ids,
        sha256: table.sha256,
        crc32c: table.crc32c,
    }];
    own.deleted = deleted;
    repaired.lost = restored.lost;
    repaired.changed = Changed {
        generation: next,
        samples: manifest.sample_count,
        deleted: newly.len() as u64,
        bytes_written,
        ..repaired.changed
    };
    Ok((repaired, Some(Box::new((change, staging, manifest)))))
}

/// The error for a cache of which no sample would be left.
fn nothing_left(repaired: &Repaired) -> CacheError {
    let named = repaired.damaged.first();
    let path = named.unwrap_or(&repaired.changed.path);
    CacheError::damaged(
        path,
        "repair",
        "at least one sample that can be kept",
        "none, so nothing was changed; restore this file from a copy",
    )
}

/// Writes the file of ids that generation `number` takes out.
fn take_out(staging: &Staging, number: u64, ids: Vec<u64>) -> Result<DeletedPart> {
    let bytes = encode_deleted(&ids);
    let mut file = staging.create_file(DELETED)?;
    file.write_all(&bytes)?;
    file.finish()?;
    Ok(DeletedPart {
        generation: number,
        count: ids.len() as u64,
        sha256: Sha256Digest::of(&bytes),
        cause: Cause::Lost,
    })
}
