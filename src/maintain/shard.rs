//! Reads a shard once, from front to back: the same bytes are hashed and, record by record, checked.

use std::path::Path;

use super::contents::{INDEX, Present};
use super::findings::{Kind, Place};
use super::record::{Records, Scratch as RecordScratch};
use super::rows::{Entry, Rows};
use super::scan::Window;
use super::tables::compare_sha256;
use crate::error::{CacheError, Result};
use crate::format::checksum::Sha256Hasher;
use crate::limits::{METADATA_JSON_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::store::file::FileReader;

/// Longest record that there can be, in bytes: the parts of one, and what compression adds to a payload it cannot shrink.
const RECORD_BYTES_MAX: u64 =
    PAYLOAD_BYTES_MAX + PAYLOAD_BYTES_MAX / 128 + METADATA_JSON_BYTES_MAX + 1024;

/// Memory used again for each shard.
#[derive(Debug, Default)]
pub struct Scratch {
    window: Window,
    single: Vec<u8>,
    record: RecordScratch,
}

/// Checks shard number `shard`, which is `present`.
pub fn check_shard(
    records: &Records<'_>,
    present: Present,
    shard: usize,
    scratch: &mut Scratch,
) -> Result<()> {
    let check = records.check;
    let place = Place::File(present.number, 0);
    let file = match check.contents.open(present) {
        Ok(file) => file,
        Err(error) => return check.cannot_read(place, error),
    };
    let span = records.tables.spans.get(shard).copied().unwrap_or_default();
    let mut own = Own {
        rows: records.tables.rows.rows(match span.is_scattered() {
            true => 0..0,
            false => span.first..span.end,
        }),
        records,
        shard: shard as u64,
        next: None,
    };
    own.advance()?;
    let Scratch {
        window,
        single,
        record,
    } = scratch;
    window.clear();
    let uncached = check.uncached(&file);
    let mut hasher = Some(Sha256Hasher::default());
    while window.end() < file.len() {
        match window.fill(&file, uncached.as_ref()) {
            Ok(block) => {
                if let Some(hasher) = &mut hasher {
                    hasher.update(block);
                }
                check.read(block.len() as u64)?;
            }
            Err(error) => {
                check.cannot_read(place, error)?;
                hasher = None;
                break;
            }
        }
        while let Some(entry) = own.next {
            let (offset, end) = (entry.row.offset, entry.row.offset + entry.row.byte_len);
            if let Some(bytes) = window.get(offset, end) {
                records.check(entry, file.path(), bytes, record);
            } else if offset < window.start() || entry.row.byte_len > RECORD_BYTES_MAX {
                check_single(records, &file, entry, single, record);
            } else {
                break;
            }
            check.go_on()?;
            own.advance()?;
        }
        window.forget_before(own.next.map_or(u64::MAX, |entry| entry.row.offset));
    }
    // Those behind the end of a file that was cut, or behind what could not be read.
    while let Some(entry) = own.next {
        check_single(records, &file, entry, single, record);
        check.go_on()?;
        own.advance()?;
    }
    let expected = check.contents.file(present.number)?.byte_len;
    if let (Some(hasher), true) = (hasher, expected == Some(file.len())) {
        compare_sha256(check, present.number, hasher.finish())?;
        records.is_read(shard);
    }
    Ok(())
}

/// Reads and checks one record by itself.
pub fn check_single(
    records: &Records<'_>,
    file: &FileReader,
    entry: Entry,
    bytes: &mut Vec<u8>,
    scratch: &mut RecordScratch,
) {
    let (offset, len) = (entry.row.offset, entry.row.byte_len);
    let find = |kind, found: String| records.find(entry, file.path(), kind, "record", found);
    if len > RECORD_BYTES_MAX {
        let found = format!("a record of {len} bytes, more than {RECORD_BYTES_MAX}");
        return find(Kind::RecordFormat, found);
    }
    if offset.checked_add(len).is_none_or(|end| end > file.len()) {
        let found = format!("{len} bytes in a file that ends at byte {}", file.len());
        return find(Kind::RecordFormat, found);
    }
    match file.view(offset, len, bytes) {
        Ok(bytes) => records.check(entry, file.path(), bytes, scratch),
        Err(CacheError::Io { source, .. }) => find(Kind::Unreadable, source.to_string()),
        Err(error) => find(Kind::RecordFormat, error.to_string()),
    }
}

/// The rows of one shard, in id order.
struct Own<'a> {
    rows: Rows<'a>,
    records: &'a Records<'a>,
    shard: u64,
    next: Option<Entry>,
}

impl Own<'_> {
    /// Goes to the next row.
    fn advance(&mut self) -> Result<()> {
        self.next = None;
        while let Some(entry) = next(self.records, &mut self.rows)? {
            if entry.row.shard == self.shard && is_inside(self.records, entry) {
                self.next = Some(entry);
                break;
            }
        }
        Ok(())
    }
}

/// The next row. That there are no more since the index cannot be read is noted.
fn next(records: &Records<'_>, rows: &mut Rows<'_>) -> Result<Option<Entry>> {
    rows.next().or_else(|error| {
        records.check.cannot_read(Place::File(INDEX, 0), error)?;
        Ok(None)
    })
}

/// Whether the row is one of a sample that is not gone, and the walk over the index found it to be sound.
fn is_inside(records: &Records<'_>, entry: Entry) -> bool {
    let shards = &records.check.contents.manifest.shards;
    if records.tables.gone.covers(entry.sample, entry.row) {
        return false;
    }
    entry.row.check(shards, Path::new(""), entry.sample).is_ok()
}

/// Ids of which the records are checked together where shards hold records of ids far apart.
pub const SCATTERED_IDS: usize = 65_536;

/// Checks the records of the ids from `first` on that lie in such shards, one by one; their shards are hashed by themselves.
pub fn check_scattered(records: &Records<'_>, first: u64, scratch: &mut Scratch) -> Result<()> {
    let check = records.check;
    let mut rows = records
        .tables
        .rows
        .rows(first..first.saturating_add(SCATTERED_IDS as u64));
    let mut open: Option<(u64, Option<FileReader>)> = None;
    while let Some(entry) = next(records, &mut rows)? {
        check.go_on()?;
        let shard = entry.row.shard;
        let span = usize::try_from(shard)
            .ok()
            .and_then(|shard| records.tables.spans.get(shard));
        if !span.is_some_and(|span| span.is_scattered()) || !is_inside(records, entry) {
            continue;
        }
        if open.as_ref().is_none_or(|(known, _)| *known != shard) {
            open = Some((shard, check.contents.open_shard(shard).ok()));
        }
        // Why a shard cannot be opened was told when it was hashed.
        if let Some((_, Some(file))) = &open {
            let Scratch { single, record, .. } = scratch;
            check_single(records, file, entry, single, record);
        }
    }
    Ok(())
}
