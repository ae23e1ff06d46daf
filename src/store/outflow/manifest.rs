//! The manifest of a cache whose files are written.

use std::collections::HashMap;

use super::files::Digest;
use super::output::Tag;
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::manifest::{
    CREATED_BY, ChecksumAlgorithm, Compression, DictionaryEntry, Manifest, RecordChecksums,
    ShardEntry,
};
use crate::format::names::shard;
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;

/// A shard as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewShard {
    /// How its payloads are stored.
    pub compression: Compression,
    /// Sum of its payload lengths, in bytes.
    pub payload_bytes: u64,
    /// Length of the file, in bytes.
    pub byte_len: u64,
}

/// What the files of a new cache hold.
#[derive(Debug)]
pub struct Contents {
    /// Number of samples.
    pub samples: u64,
    /// Metadata columns.
    pub schema: Schema,
    /// Fields of the payloads; none for plain bytes.
    pub payload: Option<PayloadSchema>,
    /// The shards in order.
    pub shards: Vec<NewShard>,
    /// Whether a float was NaN or infinite.
    pub non_finite: bool,
}

/// What a manifest says about new shards of generation `generation`.
///
/// # Errors
/// Only internal ones.
pub fn entries(
    shards: &[NewShard],
    digests: &HashMap<Tag, Digest>,
    generation: u64,
) -> Result<Vec<ShardEntry>> {
    let entry = |(id, new): (u64, &NewShard)| {
        Ok(ShardEntry {
            name: shard(id),
            uncompressed_byte_len: new.payload_bytes,
            byte_len: new.byte_len,
            compression: new.compression,
            sha256: digest(digests, Tag::Shard(id))?.sha256,
            generation,
        })
    };
    (0..).zip(shards).map(entry).collect()
}

/// What the closed file `tag` holds.
///
/// # Errors
/// Only internal ones.
pub fn digest(digests: &HashMap<Tag, Digest>, tag: Tag) -> Result<Digest> {
    let found = digests.get(&tag).copied();
    found.ok_or_else(|| CacheError::internal("a file without a digest"))
}

/// The manifest of a new cache but for the name of its source.
///
/// # Errors
/// Only internal ones.
pub fn manifest(contents: Contents, digests: &HashMap<Tag, Digest>) -> Result<Manifest> {
    let shards = entries(&contents.shards, digests, 0)?;
    let is_zstd = |shard: &ShardEntry| shard.compression.algo == Algorithm::Zstd;
    let payload = contents.payload;
    // Nulls, non-finite floats, zstd and fields of open shape are what published releases cannot read.
    let needs_newest = contents.schema.columns().iter().any(|c| c.nullable)
        || contents.non_finite
        || shards.iter().any(is_zstd)
        || payload.as_ref().is_some_and(|p| p.open_axes() > 0)
        || digests.contains_key(&Tag::Dictionary);
    let table = digest(digests, Tag::Metadata)?;
    Ok(Manifest {
        format_version: if needs_newest { 4 } else { 2 },
        cache_id: None,
        source_name: String::new(),
        sample_count: contents.samples,
        metadata_sha256: table.sha256,
        metadata_crc32c: table.crc32c,
        index_sha256: digest(digests, Tag::Index)?.sha256,
        shards,
        payload,
        record_checksums: Some(RecordChecksums {
            algo: ChecksumAlgorithm::Crc32c,
            sha256: digest(digests, Tag::Checksums)?.sha256,
        }),
        metadata_schema: contents.schema,
        dictionary: digests.get(&Tag::Dictionary).map(|found| DictionaryEntry {
            byte_len: found.byte_len,
            sha256: found.sha256,
        }),
        source_version: None,
        created_by: Some(CREATED_BY.to_owned()),
        generation: None,
        removed: false,
    })
}
