//! `manifest.json`: what a cache consists of. Everything in it is checked before anything else trusts it.
//!
//! Manifests written here end in a CRC-32C of all the text before it, so that a flipped letter in any name or number is
//! noticed. Published releases skip the fields they do not know.

mod check;
mod contents;
mod text;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::checksum::{Crc32c, Sha256Digest};
use super::compression::Algorithm;
use super::generation::{DeletedPart, Generation, MetadataPart, deleted_byte_len, placed};
use super::index::ROW_BYTES;
use super::names;
use super::payload::PayloadSchema;
use super::schema::Schema;

/// A checked manifest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Manifest {
    /// Lowest format version whose readers understand the cache.
    pub format_version: u32,
    /// Numeric id that format 3 carries; kept, never used for identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_id: Option<u64>,
    /// Name of the source the cache was written from.
    pub source_name: String,
    /// Number of samples.
    pub sample_count: u64,
    /// Metadata columns.
    pub metadata_schema: Schema,
    /// SHA-256 of `metadata.arrow`.
    pub metadata_sha256: Sha256Digest,
    /// SHA-256 of `index.bin`.
    pub index_sha256: Sha256Digest,
    /// Shards in id order.
    pub shards: Vec<ShardEntry>,
    /// Fields of the payloads; without it they are plain bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadSchema>,
    /// The per-record checksums, absent in caches of published releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_checksums: Option<RecordChecksums>,
    /// Fast checksum of `metadata.arrow`, absent in caches of published releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_crc32c: Option<Crc32c>,
    /// The zstd dictionary of all payloads stored as zstd frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<DictionaryEntry>,
    /// Version the source declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_version: Option<String>,
    /// Program and release that wrote the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// What a later generation says beyond that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// Whether the files that only this generation names are being removed, or are gone.
    #[serde(skip_serializing_if = "is_false")]
    pub removed: bool,
}

/// One shard file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// File name below `shards/`.
    pub name: String,
    /// Sum of the payload lengths before compression, in bytes.
    pub uncompressed_byte_len: u64,
    /// Length of the file in bytes.
    pub byte_len: u64,
    /// How its payloads are stored.
    pub compression: Compression,
    /// SHA-256 of the file.
    pub sha256: Sha256Digest,
    /// Generation whose folder holds it.
    #[serde(default, skip_serializing_if = "is_root")]
    pub generation: u64,
}

/// Compression policy of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compression {
    /// The algorithm.
    pub algo: Algorithm,
    /// Ratio the writer was told to expect; advisory, 1.0 for `none`.
    pub ratio: f64,
}

/// The file of the zstd dictionary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DictionaryEntry {
    /// Length of `dictionary.zstd` in bytes.
    pub byte_len: u64,
    /// SHA-256 of `dictionary.zstd`.
    pub sha256: Sha256Digest,
}

/// The file of per-record checksums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordChecksums {
    /// The checksum; only CRC-32C is known.
    pub algo: ChecksumAlgorithm,
    /// SHA-256 of `checksums.bin`.
    pub sha256: Sha256Digest,
}

/// Per-record checksum algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumAlgorithm {
    /// CRC-32C of the record followed by its sample id.
    Crc32c,
}

/// What manifests written here say wrote them.
pub const CREATED_BY: &str = concat!("dataset_rt ", env!("CARGO_PKG_VERSION"));

/// Bytes of one row of `checksums.bin`.
pub const CHECKSUM_BYTES: u64 = 4;

impl Manifest {
    /// Length that `index.bin` must have, in bytes.
    pub fn index_byte_len(&self) -> u64 {
        self.sample_ids().saturating_mul(ROW_BYTES)
    }

    /// Length that `checksums.bin` must have, in bytes.
    pub fn checksums_byte_len(&self) -> u64 {
        self.sample_ids().saturating_mul(CHECKSUM_BYTES)
    }

    /// Number of the generation it describes.
    pub fn number(&self) -> u64 {
        self.generation.as_ref().map_or(0, |own| own.number)
    }

    /// Sample ids ever given: the samples, and those that are gone.
    pub fn sample_ids(&self) -> u64 {
        let own = self.generation.as_ref();
        own.map_or(self.sample_count, |own| own.sample_ids)
    }

    /// The metadata files, in id order.
    pub fn metadata_parts(&self) -> Cow<'_, [MetadataPart]> {
        match &self.generation {
            Some(own) => Cow::Borrowed(&own.metadata),
            None => Cow::Owned(vec![MetadataPart {
                generation: 0,
                rows: self.sample_count,
                sha256: self.metadata_sha256,
                crc32c: self.metadata_crc32c,
            }]),
        }
    }

    /// The files of ids that are gone.
    pub fn deleted_parts(&self) -> &[DeletedPart] {
        let own = self.generation.as_ref();
        own.map_or(&[], |own| own.deleted.as_slice())
    }

    /// The files it names, from the folder of the cache, with the lengths that they must have as far as it says.
    pub fn files(&self) -> Vec<(String, Option<u64>)> {
        let (index, checksums, dictionary) = match &self.generation {
            None => (0, 0, 0),
            Some(own) => (own.index, own.checksums, own.dictionary),
        };
        let mut files = vec![(placed(index, names::INDEX), Some(self.index_byte_len()))];
        if self.record_checksums.is_some() {
            files.push((
                placed(checksums, names::CHECKSUMS),
                Some(self.checksums_byte_len()),
            ));
        }
        if let Some(entry) = &self.dictionary {
            files.push((placed(dictionary, names::DICTIONARY), Some(entry.byte_len)));
        }
        files.extend(self.metadata_parts().iter().map(|part| {
            let name = placed(part.generation, names::METADATA);
            (name, None)
        }));
        files.extend(self.deleted_parts().iter().map(|part| {
            let name = placed(part.generation, names::DELETED);
            (name, deleted_byte_len(part.count))
        }));
        let shards = self.shards.iter();
        files.extend(shards.map(|shard| (shard.file(), Some(shard.byte_len))));
        files
    }
}

impl ShardEntry {
    /// Its name from the folder of the cache.
    pub fn file(&self) -> String {
        placed(self.generation, &format!("{}/{}", names::SHARDS, self.name))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_root(generation: &u64) -> bool {
    *generation == 0
}
