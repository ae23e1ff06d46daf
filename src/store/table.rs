//! The metadata table of a cache: read, compared with its checksum, decoded.

use std::path::Path;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBufferBuilder;
use arrow_select::filter::filter_record_batch;

use super::file::{FileReader, Purpose};
use super::folder::file_len;
use super::live::LiveIds;
use super::verify::{check_crc32c, check_sha256};
use crate::error::{CacheError, Result};
use crate::format::generation::MetadataPart;
use crate::format::manifest::Manifest;
use crate::format::metadata;
use crate::sync::{available_threads, try_map_on_threads};
use crate::types::Io;

/// Bytes from which on one thread compares a file with its checksum while another decodes it.
const SHARED_BYTES: usize = 4 << 20;

/// What is done with the bytes of a table, in the order in which failures count.
enum Step {
    Check,
    Decode,
}

/// The rows of one metadata file, in batches that point into it.
///
/// # Errors
/// [`CacheError::DamagedFile`] if the checksum, the columns or the number of rows differ from the manifest.
pub fn read(
    path: &Path,
    io: Io,
    manifest: &Manifest,
    part: &MetadataPart,
) -> Result<Vec<RecordBatch>> {
    let file = FileReader::open(path, file_len(path)?, io, Purpose::Table)?;
    if part.crc32c.is_none() {
        check_sha256(&file, part.sha256, &mut || Ok(()))?;
    }
    let bytes = file.into_buffer()?;
    let threads = if bytes.len() < SHARED_BYTES {
        1
    } else {
        available_threads()
    };
    let outcomes = try_map_on_threads(threads, &[Step::Check, Step::Decode], |step| match step {
        Step::Check => match part.crc32c {
            Some(expected) => check_crc32c(path, &bytes, expected).map(|()| None),
            None => Ok(None),
        },
        // The decoder takes bytes from anywhere, so it need not wait for the checksum.
        Step::Decode => metadata::decode(&bytes, &manifest.metadata_schema, part.rows)
            .map(Some)
            .map_err(|found| {
                let expected = "what the manifest describes";
                CacheError::damaged(path, "metadata table", expected, found)
            }),
    })?;
    let decoded = outcomes.into_iter().flatten().next();
    decoded.ok_or_else(|| CacheError::internal("a metadata table that nobody decoded"))
}

/// The rows of the ids that are left.
///
/// # Errors
/// Only internal ones.
pub fn without(batches: &[RecordBatch], live: &LiveIds) -> Result<Vec<RecordBatch>> {
    let mut deleted = live.deleted().peekable();
    let mut first = 0;
    let mut left = Vec::with_capacity(batches.len());
    for batch in batches {
        let rows = batch.num_rows();
        let end = first + rows as u64;
        let mut keep = BooleanBufferBuilder::new(rows);
        keep.append_n(rows, true);
        let mut is_whole = true;
        while let Some(id) = deleted.next_if(|id| *id < end) {
            keep.set_bit((id - first) as usize, false);
            is_whole = false;
        }
        first = end;
        left.push(match is_whole {
            true => batch.clone(),
            false => filter_record_batch(batch, &BooleanArray::new(keep.finish(), None)).map_err(
                |error| CacheError::internal(format!("rows cannot be left out: {error}")),
            )?,
        });
    }
    Ok(left)
}
