//! Compaction: a generation without the records and the metadata of deleted samples. Everything else is the same, byte by
//! byte, and ids never change.

use std::path::Path;
use std::sync::Arc;

use super::Changed;
use super::blank;
use super::copier::{Copier, dissect};
use super::usage::{ShardUse, for_each_row, usage};
use super::window::Windows;
use crate::error::{CacheError, Result};
use crate::format::generation::{MetadataPart, Operation};
use crate::format::index::IndexRow;
use crate::format::manifest::{CHECKSUM_BYTES, Compression, Manifest};
use crate::format::names::{CHECKSUMS, INDEX};
use crate::limits::SHARD_BYTES_DEFAULT;
use crate::store::cache::Cache;
use crate::store::change::Change;
use crate::store::file::FileReader;
use crate::store::generations::Wanted;
use crate::store::outflow::failure::Failure;
use crate::store::outflow::flow::{Flow, supervised};
use crate::store::outflow::manifest::{NewShard, digest, entries};
use crate::store::outflow::output::{OutFile, Outputs, Tag};
use crate::store::pool::FilePool;
use crate::store::publish::Staging;
use crate::store::verify::check_sha256;
use crate::store::vfs::Vfs;
use crate::types::{Io, Verify};

/// What is rewritten, and into what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactOptions {
    /// A shard is rewritten if it has dead bytes, and at least this fraction of it is dead.
    pub min_dead_fraction: f64,
    /// Length of new shards, in bytes. By default 64 MiB, or that of the longest shard of the cache if it is longer.
    pub max_shard_bytes: Option<u64>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            min_dead_fraction: 0.2,
            max_shard_bytes: None,
        }
    }
}

/// Leaves behind what deleted samples still take in the cache at `path`. Nothing is done where no shard has enough of it and
/// no metadata of theirs is left.
///
/// `interrupt` is called at least every 50 ms, but no more once publication has begun.
///
/// # Errors
/// [`CacheError::Option`] for a fraction outside 0 to 1; [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] for
/// what would be copied and is not what its checksum says; the error of `interrupt`; as [`Change::begin`] and
/// [`Change::publish`]. Nothing is changed then, but as that says.
pub fn compact(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    options: CompactOptions,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Changed> {
    let fraction = options.min_dead_fraction;
    if !(0.0..=1.0).contains(&fraction) {
        return Err(CacheError::option("min_dead_fraction", "0 to 1", fraction));
    }
    let change = Change::begin(vfs, path, Wanted::Newest)?;
    let prepared = supervised("compact", interrupt, move |failure| {
        prepare(change, options, failure)
    })?;
    match prepared {
        Prepared::Nothing(changed) => Ok(changed),
        Prepared::Ready(ready) => {
            let Ready {
                change,
                staging,
                manifest,
                changed,
            } = *ready;
            change.publish(staging, &manifest)?;
            Ok(changed)
        }
    }
}

enum Prepared {
    Nothing(Changed),
    Ready(Box<Ready>),
}

/// A generation that lacks nothing but its name.
struct Ready {
    change: Change,
    staging: Staging,
    manifest: Manifest,
    changed: Changed,
}

fn prepare(
    mut change: Change,
    options: CompactOptions,
    failure: &Arc<Failure>,
) -> Result<Prepared> {
    let cache = change.cache();
    let shards = usage(cache, &mut || failure.check())?;
    let plan = Plan::new(cache.manifest(), &shards, options);
    let is_blank_due = blank::is_due(cache)?;
    if !plan.rewrites() && !is_blank_due {
        return Ok(Prepared::Nothing(Changed::nothing(
            &change,
            Operation::Compact,
        )));
    }
    let next = change.next();
    let mut manifest = change.successor(Operation::Compact);
    let staging = change.stage()?;
    let cache = change.cache();
    let flow = Flow::start(staging, failure)?;
    let new = match plan.rewrites() {
        true => rewrite(cache, &plan, flow.outputs()?)?,
        false => Vec::new(),
    };
    // Whoever rewrites the index may as well leave one table behind.
    let is_merged = plan.rewrites() && manifest.metadata_parts().len() > 1;
    let is_tabled = is_blank_due || is_merged;
    if is_tabled {
        blank::write(cache, flow.outputs()?)?;
    }
    let contents = cache.manifest().contents();
    let (staging, digests) = flow.finish()?;

    let before = manifest.shards.iter().zip(&plan.shards);
    let kept = before.filter(|(_, fate)| matches!(fate, Fate::Kept(_)));
    let mut all: Vec<_> = kept.map(|(entry, _)| entry.clone()).collect();
    all.extend(entries(&new, &digests, next)?);
    manifest.shards = all;
    let rows = manifest.sample_ids();
    let own = manifest.generation.as_mut();
    let own = own.ok_or_else(|| CacheError::internal("a generation without a number"))?;
    own.contents = Some(contents);
    if plan.rewrites() {
        own.index = next;
        manifest.index_sha256 = digest(&digests, Tag::Index)?.sha256;
        if let Some(checksums) = &mut manifest.record_checksums {
            own.checksums = next;
            checksums.sha256 = digest(&digests, Tag::Checksums)?.sha256;
        }
    }
    if is_tabled {
        let table = digest(&digests, Tag::Metadata)?;
        own.metadata = vec![MetadataPart {
            generation: next,
            rows,
            sha256: table.sha256,
            crc32c: table.crc32c,
        }];
        manifest.metadata_sha256 = table.sha256;
        manifest.metadata_crc32c = table.crc32c;
    }
    let changed = Changed {
        generation: next,
        bytes_written: digests.values().map(|digest| digest.byte_len).sum(),
        ..Changed::nothing(&change, Operation::Compact)
    };
    Ok(Prepared::Ready(Box::new(Ready {
        change,
        staging,
        manifest,
        changed,
    })))
}

/// What becomes of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It stays, at this position in the list.
    Kept(u64),
    /// Its records are copied.
    Rewritten,
}

/// What becomes of all shards.
struct Plan {
    shards: Vec<Fate>,
    kept: u64,
    max_shard_bytes: u64,
}

impl Plan {
    fn new(manifest: &Manifest, shards: &[ShardUse], options: CompactOptions) -> Self {
        let mut kept = 0;
        let fates = manifest.shards.iter().zip(shards).map(|(entry, found)| {
            let dead = entry.byte_len.saturating_sub(found.live_bytes);
            if dead > 0 && dead as f64 >= options.min_dead_fraction * entry.byte_len as f64 {
                return Fate::Rewritten;
            }
            kept += 1;
            Fate::Kept(kept - 1)
        });
        let fates = fates.collect();
        let longest = manifest.shards.iter().map(|shard| shard.byte_len).max();
        let usual = SHARD_BYTES_DEFAULT.max(longest.unwrap_or(0));
        Self {
            shards: fates,
            kept,
            max_shard_bytes: options.max_shard_bytes.unwrap_or(usual),
        }
    }

    fn rewrites(&self) -> bool {
        self.shards.contains(&Fate::Rewritten)
    }

    /// What becomes of the shard of an index row; none for a row that points nowhere.
    fn of(&self, row: IndexRow) -> Option<Fate> {
        let shard = usize::try_from(row.shard).ok();
        shard.and_then(|shard| self.shards.get(shard)).copied()
    }
}

/// Copies the records of live samples out of the shards that are rewritten, and writes index and checksums anew.
fn rewrite(cache: &Cache, plan: &Plan, outputs: &Arc<Outputs>) -> Result<Vec<NewShard>> {
    let manifest = cache.manifest();
    let stop = || outputs.failure.check();
    // Rows that are not followed here are copied on trust, and would be sealed by a new hash.
    check_sha256(&*cache.index()?, manifest.index_sha256, &mut || stop())?;
    let checksums = cache.checksums()?;
    if let (Some(file), Some(entry)) = (&checksums, &manifest.record_checksums) {
        check_sha256(file, entry.sha256, &mut || stop())?;
    }
    // What is read once from start to end is read faster than mapped, and a file that is cut meanwhile is an error.
    let pool = Arc::new(FilePool::new(Io::Pread));
    let read = Cache::open_generation(cache.path(), pool, Wanted::Number(manifest.number()))?;
    let mut records = Records {
        index: cache.index()?,
        checksums,
        hashed: vec![false; manifest.shards.len()],
        windows: Windows::default(),
        cache: &read,
    };
    let mut copier = Copier::new(outputs, plan.max_shard_bytes);
    let mut tables = Tables::open(outputs, records.checksums.clone())?;
    for_each_row(cache, &mut || stop(), |id, row, is_live| {
        match plan.of(row) {
            Some(Fate::Kept(shard)) => tables.append(id, IndexRow { shard, ..row }),
            Some(Fate::Rewritten) if is_live => {
                stop()?;
                let (record, compression, payload_len) = records.verified(row, id, &stop)?;
                let place = copier.push(compression, &[record], payload_len)?;
                let moved = IndexRow {
                    shard: plan.kept.saturating_add(place.shard),
                    offset: place.offset,
                    byte_len: row.byte_len,
                };
                tables.append(id, moved)
            }
            _ => tables.append(id, IndexRow::GONE),
        }
    })?;
    let new = copier.close()?;
    tables.close()?;
    Ok(new)
}

/// Records of a cache that are what their checksums say.
struct Records<'a> {
    cache: &'a Cache,
    index: Arc<FileReader>,
    checksums: Option<Arc<FileReader>>,
    /// Shards that were compared as a whole, of a cache without record checksums.
    hashed: Vec<bool>,
    windows: Windows,
}

impl Records<'_> {
    fn verified(
        &mut self,
        row: IndexRow,
        id: u64,
        stop: &dyn Fn() -> Result<()>,
    ) -> Result<(&[u8], Compression, u64)> {
        let position = usize::try_from(row.shard).ok();
        let entry = position.and_then(|shard| self.cache.manifest().shards.get(shard));
        let entry = entry.ok_or_else(|| CacheError::internal("a record of no shard"))?;
        if self.checksums.is_none()
            && let Some(hashed) = position.and_then(|shard| self.hashed.get_mut(shard))
            && !*hashed
        {
            check_sha256(&*self.cache.shard(row.shard)?, entry.sha256, &mut || stop())?;
            *hashed = true;
        }
        let (shard, record) =
            self.windows
                .record((0, self.cache), row.shard, row.offset, row.byte_len)?;
        if let Some(checksums) = &self.checksums {
            let files = (&*self.index, Some(&**checksums), shard);
            self.cache
                .verify_record(files, row, id, record, Verify::Always)?;
        }
        let (_, _, payload_len) =
            dissect(entry.compression.algo, record).map_err(|found| CacheError::DamagedRecord {
                path: shard.path().to_path_buf(),
                sample_id: id,
                offset: row.offset,
                subject: "record".to_owned(),
                expected: "metadata and payload as the manifest describes them".to_owned(),
                found,
            })?;
        Ok((record, entry.compression, payload_len))
    }
}

/// Index and checksums as they are written.
struct Tables {
    index: OutFile,
    checksums: Option<(OutFile, Arc<FileReader>)>,
}

impl Tables {
    fn open(outputs: &Arc<Outputs>, checksums: Option<Arc<FileReader>>) -> Result<Self> {
        let checksums = checksums.map(|old| {
            let file = outputs.open(Tag::Checksums, CHECKSUMS)?;
            Ok::<_, CacheError>((file, old))
        });
        Ok(Self {
            index: outputs.open(Tag::Index, INDEX)?,
            checksums: checksums.transpose()?,
        })
    }

    /// Takes the next row. A checksum covers the bytes of a record and its id, so it stays what it was.
    fn append(&mut self, id: u64, row: IndexRow) -> Result<()> {
        self.index.append(&row.to_bytes())?;
        let Some((file, old)) = &mut self.checksums else {
            return Ok(());
        };
        if row == IndexRow::GONE {
            return file.append(&[0; CHECKSUM_BYTES as usize]);
        }
        let mut scratch = Vec::new();
        file.append(old.view(id * CHECKSUM_BYTES, CHECKSUM_BYTES, &mut scratch)?)
    }

    fn close(self) -> Result<()> {
        self.index.close()?;
        match self.checksums {
            Some((file, _)) => file.close(),
            None => Ok(()),
        }
    }
}
