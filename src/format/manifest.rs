//! `manifest.json`: what a cache consists of. Everything in it is checked before anything else trusts it.
//!
//! Manifests written here end in a CRC-32C of all the text before it, so that a flipped letter in any name or number is
//! noticed. Published releases skip the fields they do not know.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::checksum::{Crc32c, Sha256Digest, Sha256Hasher};
use super::compression::Algorithm;
use super::generation::{
    DeletedPart, Generation, MetadataPart, Operation, deleted_byte_len, placed,
};
use super::index::ROW_BYTES;
use super::names::{self, is_plain_file_name};
use super::payload::PayloadSchema;
use super::schema::{ColumnSpec, Schema};
use super::{FORMAT_VERSION_NEWEST, FORMAT_VERSION_OLDEST};
use crate::error::{CacheError, Result};
use crate::limits::{CACHE_SAMPLES_MAX, DICTIONARY_BYTES_MAX, MANIFEST_BYTES_MAX};

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

/// The only field read before the version is known to be readable.
#[derive(Deserialize)]
struct Version {
    format_version: u64,
}

/// The file as read: everything optional beyond what format 2 demands.
#[derive(Deserialize)]
struct Raw {
    format_version: u32,
    cache_id: Option<u64>,
    source_name: String,
    sample_count: u64,
    metadata_schema: Vec<ColumnSpec>,
    metadata_sha256: Sha256Digest,
    index_sha256: Sha256Digest,
    shards: Vec<ShardEntry>,
    payload: Option<PayloadSchema>,
    record_checksums: Option<RecordChecksums>,
    metadata_crc32c: Option<Crc32c>,
    dictionary: Option<DictionaryEntry>,
    source_version: Option<String>,
    created_by: Option<String>,
    generation: Option<Generation>,
    #[serde(default)]
    removed: bool,
    manifest_crc32c: Option<Crc32c>,
}

impl Manifest {
    /// Reads and checks a manifest; `path` is its file, for messages.
    ///
    /// # Errors
    /// [`CacheError::UnsupportedVersion`] for a newer or older format, [`CacheError::Manifest`] for anything else.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self> {
        if text.is_empty() {
            return Err(CacheError::manifest(path, "the file is empty"));
        }
        let fault = |error: serde_json::Error| CacheError::manifest(path, error.to_string());
        let raw: Raw = match serde_json::from_slice(text) {
            Ok(raw) => raw,
            Err(error) => {
                // A newer format may have another shape, so its version is judged before its shape.
                let version: Version = serde_json::from_slice(text).map_err(fault)?;
                check_version(path, version.format_version)?;
                return Err(fault(error));
            }
        };
        check_version(path, u64::from(raw.format_version))?;
        if let Some(expected) = raw.manifest_crc32c {
            check_own_checksum(path, text, expected)?;
        }
        let manifest = Self {
            format_version: raw.format_version,
            cache_id: raw.cache_id,
            source_name: raw.source_name,
            sample_count: raw.sample_count,
            metadata_schema: Schema::new(raw.metadata_schema)
                .map_err(|fault| CacheError::manifest(path, fault))?,
            metadata_sha256: raw.metadata_sha256,
            index_sha256: raw.index_sha256,
            shards: raw.shards,
            payload: raw.payload,
            record_checksums: raw.record_checksums,
            metadata_crc32c: raw.metadata_crc32c,
            dictionary: raw.dictionary,
            source_version: raw.source_version,
            created_by: raw.created_by,
            generation: raw.generation,
            removed: raw.removed,
        };
        manifest
            .check()
            .map_err(|fault| CacheError::manifest(path, fault))?;
        Ok(manifest)
    }

    /// The file's text, sealed with its own checksum.
    ///
    /// # Errors
    /// [`CacheError::Limit`] if no reader would take it for its length.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec_pretty(self).map_err(|error| {
            CacheError::internal(format!("a manifest cannot be written as JSON: {error}"))
        })?;
        let body = body
            .strip_suffix(b"\n}")
            .ok_or_else(|| CacheError::internal("a manifest that is no JSON object"))?;
        let mut text = body.to_vec();
        text.extend_from_slice(seal(Crc32c::of(body)).as_bytes());
        let byte_len = text.len() as u64;
        match byte_len > MANIFEST_BYTES_MAX {
            true => Err(CacheError::limit(
                "the length of the manifest, which names every shard, in bytes",
                byte_len,
                MANIFEST_BYTES_MAX,
            )),
            false => Ok(text),
        }
    }

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

    /// The manifest of generation `number`, made at `created_unix`, if nothing but its number were different.
    pub fn successor(&self, number: u64, operation: Operation, created_unix: u64) -> Self {
        let parts = self.metadata_parts().into_owned();
        let before = self.generation.as_ref();
        Self {
            format_version: FORMAT_VERSION_NEWEST,
            created_by: Some(CREATED_BY.to_owned()),
            removed: false,
            generation: Some(Generation {
                number,
                operation,
                created_unix,
                sample_ids: self.sample_ids(),
                index: before.map_or(0, |before| before.index),
                checksums: before.map_or(0, |before| before.checksums),
                dictionary: before.map_or(0, |before| before.dictionary),
                metadata: parts,
                deleted: self.deleted_parts().to_vec(),
                contents: None,
            }),
            ..self.clone()
        }
    }

    /// A root manifest that says that generation 0 is gone, in place of one that was damaged.
    pub fn root_mark(&self) -> Self {
        let shards = self.shards.iter().filter(|shard| shard.generation == 0);
        Self {
            shards: shards.cloned().collect(),
            sample_count: 0,
            generation: None,
            removed: true,
            ..self.clone()
        }
    }

    /// Gives `take` what names the samples, by their checksums; where they lie does not matter.
    pub fn name_contents(&self, take: &mut dyn FnMut(&[u8])) {
        match &self.generation {
            None => self.list_contents(take),
            Some(_) => take(&self.contents().0),
        }
    }

    /// A name for the samples. Generations of the same cache have the same if only a compaction lies between them.
    pub fn contents(&self) -> Sha256Digest {
        let carried = self.generation.as_ref().and_then(|own| own.contents);
        carried.unwrap_or_else(|| {
            let mut name = Sha256Hasher::default();
            self.list_contents(&mut |bytes| name.update(bytes));
            name.finish()
        })
    }

    /// Every checksum, in an order that saved states depend on.
    fn list_contents(&self, take: &mut dyn FnMut(&[u8])) {
        take(&self.sample_count.to_le_bytes());
        take(&self.metadata_sha256.0);
        take(&self.index_sha256.0);
        take(&(self.shards.len() as u64).to_le_bytes());
        self.shards.iter().for_each(|shard| take(&shard.sha256.0));
        if let Some(dictionary) = &self.dictionary {
            take(&dictionary.sha256.0);
        }
        if let Some(own) = &self.generation {
            take(&own.sample_ids.to_le_bytes());
            own.metadata.iter().for_each(|part| take(&part.sha256.0));
            own.deleted.iter().for_each(|part| take(&part.sha256.0));
        }
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

    fn check(&self) -> std::result::Result<(), String> {
        if self.sample_count > CACHE_SAMPLES_MAX {
            return Err(format!(
                "{} samples, more than the limit of {CACHE_SAMPLES_MAX}",
                self.sample_count
            ));
        }
        if self.sample_count > 0 && self.shards.is_empty() {
            return Err(format!("{} samples and no shard", self.sample_count));
        }
        if let Some(own) = &self.generation {
            if self.format_version < FORMAT_VERSION_NEWEST {
                return Err(format!(
                    "a later generation in format {}, which has none",
                    self.format_version
                ));
            }
            own.check(self.sample_count)?;
        }
        let mut seen = HashSet::new();
        for shard in &self.shards {
            if shard.generation > self.number() {
                return Err(format!(
                    "a shard of generation {} in a manifest of generation {}",
                    shard.generation,
                    self.number()
                ));
            }
            if !is_plain_file_name(&shard.name) {
                return Err(format!(
                    "shard name {:?} is not a plain file name",
                    shard.name
                ));
            }
            if !seen.insert((shard.generation, shard.name.as_str())) {
                return Err(format!("shard name {:?} appears twice", shard.name));
            }
        }
        let total = self
            .shards
            .iter()
            .try_fold(0u64, |sum, shard| sum.checked_add(shard.byte_len));
        if total.is_none_or(|total| i64::try_from(total).is_err()) {
            return Err("shards of more than 2^63 bytes in all".to_owned());
        }
        if let Some(dictionary) = &self.dictionary
            && dictionary.byte_len > DICTIONARY_BYTES_MAX
        {
            return Err(format!(
                "a dictionary of {} bytes, more than the limit of {DICTIONARY_BYTES_MAX}",
                dictionary.byte_len
            ));
        }
        let is_zstd = |shard: &ShardEntry| shard.compression.algo == Algorithm::Zstd;
        if self.format_version < 4 && (self.dictionary.is_some() || self.shards.iter().any(is_zstd))
        {
            return Err(format!(
                "zstd in format {}, which has none",
                self.format_version
            ));
        }
        if self.format_version < 4
            && self
                .metadata_schema
                .columns()
                .iter()
                .any(|column| column.nullable)
        {
            return Err(format!(
                "a nullable column in format {}, which has none",
                self.format_version
            ));
        }
        let open_axes = self.payload.as_ref().map_or(0, PayloadSchema::open_axes);
        if self.format_version < FORMAT_VERSION_NEWEST && open_axes > 0 {
            return Err(format!(
                "payload fields of open shape in format {}, which has none",
                self.format_version
            ));
        }
        Ok(())
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

fn check_version(path: &Path, found: u64) -> Result<()> {
    if found >= u64::from(FORMAT_VERSION_OLDEST) && found <= u64::from(FORMAT_VERSION_NEWEST) {
        return Ok(());
    }
    if found < u64::from(FORMAT_VERSION_OLDEST) {
        return Err(CacheError::manifest(
            path,
            format!(
                "format version {found} is older than this build reads ({FORMAT_VERSION_OLDEST} to {FORMAT_VERSION_NEWEST})"
            ),
        ));
    }
    Err(CacheError::UnsupportedVersion {
        path: path.to_path_buf(),
        found,
        oldest: FORMAT_VERSION_OLDEST,
        newest: FORMAT_VERSION_NEWEST,
    })
}

/// The last lines of a sealed manifest.
fn seal(checksum: Crc32c) -> String {
    format!(",\n  \"manifest_crc32c\": \"{checksum}\"\n}}")
}

fn check_own_checksum(path: &Path, text: &[u8], expected: Crc32c) -> Result<()> {
    let Some(body) = text.strip_suffix(seal(expected).as_bytes()) else {
        return Err(CacheError::manifest(
            path,
            "the file does not end in its own checksum; it was edited",
        ));
    };
    let found = Crc32c::of(body);
    if found == expected {
        return Ok(());
    }
    Err(CacheError::damaged(
        path,
        "checksum of the manifest",
        format!("crc32c {expected}"),
        format!("crc32c {found}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::schema::Kind;

    fn manifest() -> Manifest {
        Manifest {
            format_version: 2,
            cache_id: None,
            source_name: "train".to_owned(),
            sample_count: 3,
            metadata_schema: Schema::new(vec![ColumnSpec {
                name: "label".to_owned(),
                kind: Kind::Int,
                nullable: false,
            }])
            .unwrap(),
            metadata_sha256: Sha256Digest::of(b"metadata"),
            index_sha256: Sha256Digest::of(b"index"),
            shards: vec![ShardEntry {
                name: "000000.bin".to_owned(),
                uncompressed_byte_len: 10,
                byte_len: 90,
                compression: Compression {
                    algo: Algorithm::Lz4,
                    ratio: 2.0,
                },
                sha256: Sha256Digest::of(b"shard"),
                generation: 0,
            }],
            payload: Some(
                serde_json::from_str(
                    r#"{"fields": [{"name": "x", "dtype": "uint8", "shape": [3, 2]}]}"#,
                )
                .unwrap(),
            ),
            record_checksums: Some(RecordChecksums {
                algo: ChecksumAlgorithm::Crc32c,
                sha256: Sha256Digest::of(b"checksums"),
            }),
            metadata_crc32c: Some(Crc32c::of(b"metadata")),
            dictionary: None,
            source_version: Some("v1".to_owned()),
            created_by: None,
            generation: None,
            removed: false,
        }
    }

    fn dictionary(byte_len: u64) -> DictionaryEntry {
        DictionaryEntry {
            byte_len,
            sha256: Sha256Digest::of(b"dictionary"),
        }
    }

    fn parse(text: &[u8]) -> Result<Manifest> {
        Manifest::parse(Path::new("manifest.json"), text)
    }

    #[test]
    fn a_manifest_survives() {
        assert_eq!(parse(&manifest().to_bytes().unwrap()).unwrap(), manifest());
        let mut newest = manifest();
        newest.format_version = 4;
        newest.shards[0].compression.algo = Algorithm::Zstd;
        newest.dictionary = Some(dictionary(DICTIONARY_BYTES_MAX));
        assert_eq!(parse(&newest.to_bytes().unwrap()).unwrap(), newest);
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed_or_harmless() {
        let text = manifest().to_bytes().unwrap();
        for position in 0..text.len() {
            for mask in [0x01, 0x20, 0x80] {
                let mut flipped = text.clone();
                flipped[position] ^= mask;
                if let Ok(found) = parse(&flipped) {
                    assert_eq!(found, manifest(), "byte {position}");
                }
            }
            assert!(parse(&text[..position]).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name_whatever_its_shape() {
        for text in [
            r#"{"format_version": 5}"#,
            r#"{"format_version": 99, "shards": {"a": 1}}"#,
        ] {
            assert!(
                matches!(
                    parse(text.as_bytes()),
                    Err(CacheError::UnsupportedVersion { .. })
                ),
                "{text}"
            );
        }
        assert!(matches!(
            parse(br#"{"format_version": 1}"#),
            Err(CacheError::Manifest { .. })
        ));
        assert!(matches!(
            parse(br#"{"format_version": 2}"#),
            Err(CacheError::Manifest { .. })
        ));
        assert!(matches!(parse(b""), Err(CacheError::Manifest { .. })));
    }

    #[test]
    fn hostile_names_and_numbers_are_refused() {
        let attacks: [fn(&mut Manifest); 9] = [
            |m| m.shards[0].name = "../000000.bin".to_owned(),
            |m| m.shards[0].name = "/etc/passwd".to_owned(),
            |m| m.shards.push(m.shards[0].clone()),
            |m| m.sample_count = u64::MAX,
            |m| m.shards[0].byte_len = u64::MAX,
            |m| m.shards.clear(),
            |m| m.shards[0].compression.algo = Algorithm::Zstd,
            |m| m.dictionary = Some(dictionary(1024)),
            |m| {
                m.format_version = 4;
                m.dictionary = Some(dictionary(DICTIONARY_BYTES_MAX + 1));
            },
        ];
        for attack in attacks {
            let mut hostile = manifest();
            attack(&mut hostile);
            assert!(matches!(
                parse(&hostile.to_bytes().unwrap()),
                Err(CacheError::Manifest { .. })
            ));
        }
    }
}
