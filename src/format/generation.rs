//! Later generations: what the manifest of one says beyond that of a cache never changed, and the file of deleted ids.
//!
//! A generation writes only what differs from the one before; everything else it names by the generation whose folder
//! holds it. Generation 0 lies in the folder of the cache itself. See `docs/storage-format.md`.

use serde::{Deserialize, Serialize};

use super::checksum::{Crc32c, Sha256Digest};
use super::names;
use crate::limits::CACHE_SAMPLES_MAX;

/// The part of a manifest that makes it one of a later generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Its number, from 1 on.
    pub number: u64,
    /// What made it.
    pub operation: Operation,
    /// When, in seconds since 1970.
    pub created_unix: u64,
    /// Sample ids ever given: rows of the index, of the record checksums and of the metadata parts together.
    pub sample_ids: u64,
    /// Generation whose folder holds the index.
    pub index: u64,
    /// Generation whose folder holds the record checksums.
    pub checksums: u64,
    /// Generation whose folder holds the zstd dictionary.
    #[serde(default, skip_serializing_if = "is_root")]
    pub dictionary: u64,
    /// The metadata of all ids, in id order.
    pub metadata: Vec<MetadataPart>,
    /// The ids that are gone. No id is in two parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<DeletedPart>,
    /// Name of the contents of the generation before, where this one has the same: a compaction moves bytes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<Sha256Digest>,
}

/// What made a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Samples were added.
    Append,
    /// Samples were taken out.
    Delete,
    /// Records of deleted samples were left behind.
    Compact,
    /// What could be trusted of a damaged cache was kept.
    Repair,
}

impl Operation {
    /// The word for it, as in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Delete => "delete",
            Self::Compact => "compact",
            Self::Repair => "repair",
        }
    }
}

/// A metadata file for consecutive ids.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetadataPart {
    /// Generation whose folder holds it.
    pub generation: u64,
    /// Its rows.
    pub rows: u64,
    /// SHA-256 of the file.
    pub sha256: Sha256Digest,
    /// Fast checksum of the file, absent in caches of published releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<Crc32c>,
}

/// A file of ids that one generation took out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeletedPart {
    /// The generation that took them out; its folder holds the file.
    pub generation: u64,
    /// Number of ids.
    pub count: u64,
    /// SHA-256 of the file.
    pub sha256: Sha256Digest,
    /// Why they are gone.
    pub cause: Cause,
}

/// Why a sample is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// Somebody wanted it gone.
    Deleted,
    /// It was damaged when the cache was repaired.
    Lost,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_root(generation: &u64) -> bool {
    *generation == 0
}

impl Generation {
    /// Ids that are gone.
    pub fn deleted_count(&self) -> Option<u64> {
        let counts = self.deleted.iter().map(|part| part.count);
        counts.into_iter().try_fold(0u64, u64::checked_add)
    }

    /// What is wrong with it, beside a manifest of `sample_count` samples.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self, sample_count: u64) -> Result<(), String> {
        if self.number == 0 {
            return Err("a later generation with number 0".to_owned());
        }
        let beyond = |what: &str, found: u64| {
            let own = self.number;
            Err(format!(
                "{what} of generation {found} in a manifest of generation {own}"
            ))
        };
        let named = [
            ("the index", self.index),
            ("checksums", self.checksums),
            ("the dictionary", self.dictionary),
        ];
        let metadata = self
            .metadata
            .iter()
            .map(|part| ("metadata", part.generation));
        let deleted = self
            .deleted
            .iter()
            .map(|part| ("deleted ids", part.generation));
        for (what, found) in named.into_iter().chain(metadata).chain(deleted) {
            if found > self.number {
                return beyond(what, found);
            }
        }
        if self.sample_ids > CACHE_SAMPLES_MAX {
            return Err(format!(
                "{} sample ids, more than the limit of {CACHE_SAMPLES_MAX}",
                self.sample_ids
            ));
        }
        let mut rows = self.metadata.iter().map(|part| part.rows);
        let rows = rows.try_fold(0u64, u64::checked_add);
        if rows != Some(self.sample_ids) {
            return Err(format!(
                "metadata of other than {} sample ids",
                self.sample_ids
            ));
        }
        let mut earlier = 0;
        for part in &self.deleted {
            if part.generation <= earlier || part.count == 0 {
                return Err("deleted ids of the same generation twice, or none".to_owned());
            }
            earlier = part.generation;
        }
        let live = self
            .deleted_count()
            .and_then(|deleted| self.sample_ids.checked_sub(deleted));
        if live != Some(sample_count) {
            return Err(format!(
                "{sample_count} samples where {} ids and the deleted ones say otherwise",
                self.sample_ids
            ));
        }
        Ok(())
    }
}

/// Name of `file` of generation `number`, from the folder of the cache.
pub fn placed(number: u64, file: &str) -> String {
    match number {
        0 => file.to_owned(),
        _ => format!("{}/{}/{file}", names::GENERATIONS, folder(number)),
    }
}

/// Name of the folder of generation `number`, from 1 on.
pub fn folder(number: u64) -> String {
    format!("{number:06}")
}

/// The generation that a folder of this name belongs to.
pub fn number_of(name: &str) -> Option<u64> {
    let number = name.parse().ok().filter(|number| *number > 0)?;
    (folder(number) == name).then_some(number)
}

/// Length of the file of `count` deleted ids, in bytes; none if there can be no such file.
pub fn deleted_byte_len(count: u64) -> Option<u64> {
    count.checked_add(1)?.checked_mul(8)
}

/// The file of deleted ids: little-endian 64-bit numbers in ascending order, then the CRC-32C of these and of their number
/// as such a number.
pub fn encode_deleted(ids: &[u64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let checksum = checksum_of_ids(&bytes, ids.len());
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn checksum_of_ids(bytes: &[u8], count: usize) -> u64 {
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(&(count as u64).to_le_bytes());
    u64::from(Crc32c::of(&sealed).0)
}

/// The ids in a file of deleted ones.
///
/// # Errors
/// What is wrong with the file.
pub fn decode_deleted(bytes: &[u8]) -> Result<Vec<u64>, String> {
    let (words, []) = bytes.as_chunks::<8>() else {
        return Err(format!("{} bytes, no multiple of 8", bytes.len()));
    };
    let Some((checksum, ids)) = words.split_last() else {
        return Err("an empty file".to_owned());
    };
    let found = checksum_of_ids(ids.as_flattened(), ids.len());
    let expected = u64::from_le_bytes(*checksum);
    if found != expected {
        return Err(format!(
            "ids with crc32c {found:08x} where {expected:08x} is stored"
        ));
    }
    let ids: Vec<u64> = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
    match ids.is_sorted_by(|a, b| a < b) {
        true => Ok(ids),
        false => Err("ids that are not in ascending order".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation() -> Generation {
        let sha256 = Sha256Digest::of(b"");
        let part = |generation, rows| MetadataPart {
            generation,
            rows,
            sha256,
            crc32c: None,
        };
        let deleted = |generation, count| DeletedPart {
            generation,
            count,
            sha256,
            cause: Cause::Deleted,
        };
        Generation {
            number: 4,
            operation: Operation::Delete,
            created_unix: 1,
            sample_ids: 10,
            index: 2,
            checksums: 2,
            dictionary: 0,
            metadata: vec![part(0, 7), part(2, 3)],
            deleted: vec![deleted(1, 2), deleted(4, 3)],
            contents: None,
        }
    }

    #[test]
    fn contradictions_are_named() {
        generation().check(5).unwrap();
        type Attack = fn(&mut Generation);
        let attacks: [(u64, Attack); 9] = [
            (6, |_| {}),
            (5, |g| g.number = 0),
            (5, |g| g.number = 3),
            (5, |g| g.index = 5),
            (5, |g| g.sample_ids = 11),
            (5, |g| g.metadata[0].rows = u64::MAX),
            (5, |g| g.deleted[1].count = u64::MAX),
            (5, |g| g.deleted[1].generation = 1),
            (8, |g| g.deleted[1].count = 0),
        ];
        for (position, (count, attack)) in attacks.into_iter().enumerate() {
            let mut hostile = generation();
            attack(&mut hostile);
            assert!(hostile.check(count).is_err(), "attack {position}");
        }
    }

    #[test]
    fn deleted_ids_survive_and_every_flipped_byte_and_cut_is_noticed() {
        let ids = [0, 3, 4, u64::MAX];
        let bytes = encode_deleted(&ids);
        assert_eq!(bytes.len() as u64, deleted_byte_len(4).unwrap());
        assert_eq!(decode_deleted(&bytes).unwrap(), ids);
        assert_eq!(decode_deleted(&encode_deleted(&[])).unwrap(), [0u64; 0]);
        for position in 0..bytes.len() {
            assert!(decode_deleted(&bytes[..position]).is_err());
            let mut flipped = bytes.clone();
            flipped[position] ^= 1;
            assert!(decode_deleted(&flipped).is_err(), "byte {position}");
        }
        assert!(decode_deleted(&encode_deleted(&[4, 3])).is_err());
        assert!(decode_deleted(&encode_deleted(&[4, 4])).is_err());
    }

    #[test]
    fn folders_and_numbers_correspond() {
        for number in [1, 2, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(number_of(&folder(number)), Some(number));
        }
        for name in [
            "", "0", "000000", "1", "0000001", "00001x", "+00001", "leases",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
        assert_eq!(placed(0, "index.bin"), "index.bin");
        assert_eq!(placed(12, "index.bin"), "generations/000012/index.bin");
    }
}
