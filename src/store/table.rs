//! The metadata table of a cache: read, compared with its checksum, decoded.

use std::path::Path;

use arrow_array::RecordBatch;

use super::file::{FileReader, Purpose};
use super::folder::file_len;
use super::verify::{check_crc32c, check_sha256};
use crate::error::{CacheError, Result};
use crate::format::manifest::Manifest;
use crate::format::{metadata, names};
use crate::sync::{available_threads, try_map_on_threads};
use crate::types::Io;

/// Bytes from which on one thread compares a file with its checksum while another decodes it.
const SHARED_BYTES: usize = 4 << 20;

/// What is done with the bytes of a table, in the order in which failures count.
enum Step {
    Check,
    Decode,
}

/// The table of the cache in `folder`, which has `rows` samples, in batches that point into the file.
///
/// # Errors
/// [`CacheError::DamagedFile`] if the checksum, the columns or the number of rows differ from the manifest.
pub fn read(folder: &Path, io: Io, manifest: &Manifest, rows: u64) -> Result<Vec<RecordBatch>> {
    let path = folder.join(names::METADATA);
    let file = FileReader::open(&path, file_len(&path)?, io, Purpose::Table)?;
    if manifest.metadata_crc32c.is_none() {
        check_sha256(&file, manifest.metadata_sha256, &mut || Ok(()))?;
    }
    let bytes = file.into_buffer()?;
    let threads = if bytes.len() < SHARED_BYTES {
        1
    } else {
        available_threads()
    };
    let outcomes = try_map_on_threads(threads, &[Step::Check, Step::Decode], |step| match step {
        Step::Check => match manifest.metadata_crc32c {
            Some(expected) => check_crc32c(&path, &bytes, expected).map(|()| None),
            None => Ok(None),
        },
        // The decoder takes bytes from anywhere, so it need not wait for the checksum.
        Step::Decode => metadata::decode(&bytes, &manifest.metadata_schema, rows)
            .map(Some)
            .map_err(|found| {
                let expected = "what the manifest describes";
                CacheError::damaged(&path, "metadata table", expected, found)
            }),
    })?;
    let decoded = outcomes.into_iter().flatten().next();
    decoded.ok_or_else(|| CacheError::internal("a metadata table that nobody decoded"))
}
