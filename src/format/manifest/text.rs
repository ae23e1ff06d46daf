//! The text of a manifest: JSON, sealed with its own checksum.

use std::path::Path;

use serde::Deserialize;

use super::{DictionaryEntry, Manifest, RecordChecksums, ShardEntry};
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Sha256Digest};
use crate::format::generation::Generation;
use crate::format::payload::PayloadSchema;
use crate::format::schema::{ColumnSpec, Schema};
use crate::format::{FORMAT_VERSION_NEWEST, FORMAT_VERSION_OLDEST};
use crate::limits::MANIFEST_BYTES_MAX;

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
    use crate::format::compression::Algorithm;
    use crate::format::manifest::{ChecksumAlgorithm, Compression};
    use crate::format::schema::Kind;
    use crate::limits::DICTIONARY_BYTES_MAX;

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
