//! Everything of a cache but its shards: read in full, and kept as far as records are compared with it.

use arrow_array::RecordBatch;

use super::contents::{Present, Role};
use super::findings::{Kind, Place};
use super::rows::{RowFiles, WINDOW_ROWS};
use super::verify::Check;
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Crc32cHasher, Sha256Digest, Sha256Hasher};
use crate::format::compression::Dictionary;
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::{generation, metadata};
use crate::store::file::{FileReader, Purpose};
use crate::store::locality::resolve;
use crate::types::Io;

/// What records are compared with.
#[derive(Debug)]
pub struct Tables {
    pub rows: RowFiles,
    /// Which ids lie in each shard; all nothing without an index.
    pub spans: Vec<Span>,
    /// The metadata table: batches by their first id.
    metadata: Vec<(u64, RecordBatch)>,
    pub dictionary: Option<Dictionary>,
    pub gone: Gone,
}

/// The ids that are gone: nothing is wrong with what is left of them.
#[derive(Debug, Default)]
pub struct Gone {
    ids: Vec<u64>,
    /// Whether some cannot be told.
    is_partial: bool,
}

impl Gone {
    /// Whether the row of `sample` and what it points at do not count.
    pub fn covers(&self, sample: u64, row: IndexRow) -> bool {
        let is_known = !self.ids.is_empty() && self.ids.binary_search(&sample).is_ok();
        is_known || (self.is_partial && row == IndexRow::GONE)
    }
}

/// The ids of the sound rows that point into a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub first: u64,
    /// One more than the last.
    pub end: u64,
    pub rows: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

/// What one file gave.
pub enum Read {
    Nothing,
    Spans(Vec<Span>),
    Metadata(Vec<(u64, RecordBatch)>),
    Dictionary(Dictionary),
    Deleted(Vec<u64>),
}

impl Span {
    /// Whether so many ids of other shards lie between that to walk over them for this one shard does not pay.
    pub fn is_scattered(&self) -> bool {
        const FOREIGN: u64 = 4;
        let walked = self.end - self.first;
        walked
            > self
                .rows
                .saturating_mul(FOREIGN)
                .saturating_add(WINDOW_ROWS)
    }

    fn add(&mut self, sample: u64, bytes: u64) {
        if self.rows == 0 {
            self.first = sample;
        }
        self.end = sample + 1;
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Tables {
    /// The files with a row per sample, open; nothing is read yet.
    pub fn open(check: &Check<'_>, present: &[Present]) -> Result<Self> {
        let mut rows = RowFiles::default();
        for file in present {
            let slot = match check.contents.file(file.number)?.role {
                Role::Index => &mut rows.index,
                Role::Checksums => &mut rows.checksums,
                _ => continue,
            };
            match check.contents.open(*file) {
                Ok(file) => *slot = Some(file),
                Err(error) => check.cannot_read(Place::Shape(file.number), error)?,
            }
        }
        Ok(Self {
            rows,
            spans: vec![Span::default(); check.contents.manifest.shards.len()],
            metadata: Vec::new(),
            dictionary: None,
            gone: Gone::default(),
        })
    }

    /// Keeps what a file gave.
    pub fn add(&mut self, read: Read) {
        match read {
            Read::Nothing => {}
            Read::Spans(spans) => self.spans = spans,
            Read::Metadata(batches) => {
                self.metadata.extend(batches);
                self.metadata.sort_by_key(|(first, _)| *first);
            }
            Read::Dictionary(dictionary) => self.dictionary = Some(dictionary),
            Read::Deleted(ids) => self.gone.ids.extend(ids),
        }
    }

    /// Puts the ids in order that are gone.
    pub fn finish_gone(&mut self, check: &Check<'_>) {
        let ids = &mut self.gone.ids;
        ids.sort_unstable();
        let manifest = check.contents.manifest;
        let parts = manifest.deleted_parts().iter().map(|part| part.count);
        let expected = parts.fold(0u64, u64::saturating_add);
        self.gone.is_partial = ids.len() as u64 != expected;
        let is_strict = ids.is_sorted_by(|a, b| a < b);
        let is_inside = ids.last().is_none_or(|last| *last < manifest.sample_ids());
        if is_strict && is_inside {
            return;
        }
        if let Some((number, file)) = check.contents.first(Role::Deleted) {
            let expected = format!("distinct ones below {}", manifest.sample_ids());
            let error = CacheError::damaged(&file.path, "deleted ids", expected, "others");
            check.find(Place::File(number, 3), Kind::FileFormat, error);
        }
    }

    /// The batch that holds the metadata of `sample`, and the row in it; nothing if the table could not be trusted.
    pub fn metadata(&self, sample: u64) -> Option<(&RecordBatch, usize)> {
        let after = self.metadata.partition_point(|(first, _)| *first <= sample);
        let (first, batch) = self.metadata.get(after.checked_sub(1)?)?;
        let row = usize::try_from(sample - first).ok()?;
        (row < batch.num_rows()).then_some((batch, row))
    }
}

/// Reads one file, notes what is wrong with it, and returns what records need of it. Of `tables`, the index rows and the ids
/// that are gone are used.
pub fn read(check: &Check<'_>, tables: &Tables, file: Present) -> Result<Read> {
    let role = check.contents.file(file.number)?.role;
    if role == Role::Index {
        return read_index(check, tables, file);
    }
    let opened = match check.contents.open(file) {
        Ok(opened) => opened,
        Err(error) => {
            check.cannot_read(Place::File(file.number, 0), error)?;
            return Ok(Read::Nothing);
        }
    };
    if !is_sound(check, &opened, file)? {
        return Ok(Read::Nothing);
    }
    match role {
        Role::Metadata { first, rows } => read_metadata(check, file, first, rows),
        Role::Dictionary => read_dictionary(check, &opened, file),
        Role::Deleted => read_deleted(check, &opened, file),
        _ => Ok(Read::Nothing),
    }
}

/// Walks over the index: which rows are sound, where they point, and whether all is as the manifest says.
fn read_index(check: &Check<'_>, tables: &Tables, file: Present) -> Result<Read> {
    let rows = &tables.rows;
    let manifest = check.contents.manifest;
    let mut spans = vec![Span::default(); manifest.shards.len()];
    let path = &check.contents.file(file.number)?.path;
    let mut walk = rows.rows(0..manifest.sample_ids());
    loop {
        let entry = match walk.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(error) => {
                check.cannot_read(Place::File(file.number, 0), error)?;
                break;
            }
        };
        if entry.sample.is_multiple_of(WINDOW_ROWS) {
            let left = rows.len() - entry.sample;
            check.read(WINDOW_ROWS.min(left) * ROW_BYTES)?;
        }
        if tables.gone.covers(entry.sample, entry.row) {
            continue;
        }
        if let Err(error) = entry.row.check(&manifest.shards, path, entry.sample) {
            check.find(Place::Row(entry.sample), Kind::IndexRow, error);
            continue;
        }
        let shard = usize::try_from(entry.row.shard).ok();
        if let Some(span) = shard.and_then(|shard| spans.get_mut(shard)) {
            span.add(entry.sample, entry.row.byte_len);
        }
    }
    if let (Some(index), true) = (&rows.index, check.full) {
        is_sound(check, index, file)?;
    }
    Ok(Read::Spans(spans))
}

/// Whether a file is what the manifest describes; notes it if not.
fn is_sound(check: &Check<'_>, opened: &FileReader, present: Present) -> Result<bool> {
    let file = check.contents.file(present.number)?;
    if file
        .byte_len
        .is_some_and(|expected| expected != present.byte_len)
    {
        return Ok(false);
    }
    let (mut sha256, mut crc32c) = (Sha256Hasher::default(), Crc32cHasher::default());
    let mut stopped = None;
    let read = opened.for_each_piece(|piece| {
        sha256.update(piece);
        if file.crc32c.is_some() {
            crc32c.update(piece);
        }
        check
            .read(piece.len() as u64)
            .inspect_err(|_| stopped = Some(CacheError::Interrupted))
    });
    if let Some(stopped) = stopped {
        return Err(stopped);
    }
    if let Err(error) = read {
        check.cannot_read(Place::File(present.number, 0), error)?;
        return Ok(false);
    }
    let differs = compare_sha256(check, present.number, sha256.finish())?
        | compare_crc32c(check, present.number, crc32c.finish())?;
    Ok(!differs)
}

/// Whether a file has another SHA-256 than the manifest says; notes it then.
pub fn compare_sha256(check: &Check<'_>, number: usize, found: Sha256Digest) -> Result<bool> {
    let file = check.contents.file(number)?;
    let (expected, found) = (format!("sha256 {}", file.sha256), format!("sha256 {found}"));
    compare(check, number, 0, expected, found)
}

fn compare_crc32c(check: &Check<'_>, number: usize, found: Crc32c) -> Result<bool> {
    match check.contents.file(number)?.crc32c {
        None => Ok(false),
        Some(expected) => {
            let (expected, found) = (format!("crc32c {expected}"), format!("crc32c {found}"));
            compare(check, number, 1, expected, found)
        }
    }
}

fn compare(
    check: &Check<'_>,
    number: usize,
    which: u64,
    expected: String,
    found: String,
) -> Result<bool> {
    let differs = expected != found;
    if differs {
        let path = &check.contents.file(number)?.path;
        let error = CacheError::damaged(path, "checksum of the file", expected, found);
        check.find(Place::File(number, which), Kind::Checksum, error);
    }
    Ok(differs)
}

/// Decodes a metadata file that was just read to its end and found to be what it should be.
fn read_metadata(check: &Check<'_>, present: Present, first: u64, rows: u64) -> Result<Read> {
    let path = &check.contents.file(present.number)?.path;
    let io = resolve(Io::Auto, path);
    let opened = FileReader::open(path, present.byte_len, io, Purpose::Table);
    let bytes = match opened.and_then(FileReader::into_buffer) {
        Ok(bytes) => bytes,
        Err(error) => {
            check.cannot_read(Place::File(present.number, 0), error)?;
            return Ok(Read::Nothing);
        }
    };
    let schema = &check.contents.manifest.metadata_schema;
    match metadata::decode(&bytes, schema, rows) {
        Ok(batches) => {
            let mut next = first;
            let placed = batches.into_iter().map(|batch| {
                let start = next;
                next = next.saturating_add(batch.num_rows() as u64);
                (start, batch)
            });
            Ok(Read::Metadata(placed.collect()))
        }
        Err(found) => {
            let expected = "what the manifest describes";
            let error = CacheError::damaged(path, "metadata table", expected, found);
            check.find(Place::File(present.number, 2), Kind::FileFormat, error);
            Ok(Read::Nothing)
        }
    }
}

fn read_dictionary(check: &Check<'_>, opened: &FileReader, present: Present) -> Result<Read> {
    let dictionary = decode(check, opened, present, "a dictionary", Dictionary::digest)?;
    Ok(dictionary.map_or(Read::Nothing, Read::Dictionary))
}

fn read_deleted(check: &Check<'_>, opened: &FileReader, present: Present) -> Result<Read> {
    let ids = decode(
        check,
        opened,
        present,
        "deleted ids",
        generation::decode_deleted,
    )?;
    Ok(ids.map_or(Read::Nothing, Read::Deleted))
}

/// What a whole file holds; nothing, which is noted, if it cannot be decoded.
fn decode<T>(
    check: &Check<'_>,
    opened: &FileReader,
    present: Present,
    expected: &str,
    decode: impl FnOnce(&[u8]) -> std::result::Result<T, String>,
) -> Result<Option<T>> {
    let mut bytes = Vec::new();
    let bytes = match opened.view(0, opened.len(), &mut bytes) {
        Ok(bytes) => bytes,
        Err(error) => {
            check.cannot_read(Place::File(present.number, 0), error)?;
            return Ok(None);
        }
    };
    decode(bytes).map(Some).or_else(|found| {
        let error = CacheError::damaged(opened.path(), "content of the file", expected, found);
        check.find(Place::File(present.number, 2), Kind::FileFormat, error);
        Ok(None)
    })
}
