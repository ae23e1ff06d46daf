//! The two checksums of a cache: CRC-32C for what is read often, SHA-256 for the identity of whole files.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest as CrcDigest};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

/// CRC-32C (Castagnoli polynomial, as in iSCSI) of some bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Crc32c(pub u32);

impl Crc32c {
    /// Checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(low_half(crc_fast::checksum(
            CrcAlgorithm::Crc32Iscsi,
            bytes,
        )))
    }

    /// Checksum of a record: its bytes followed by its sample id as eight little-endian bytes, so that a record found
    /// under another sample's id fails too.
    pub fn of_record(record: &[u8], sample_id: u64) -> Self {
        let mut digest = CrcDigest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(record);
        digest.update(&sample_id.to_le_bytes());
        Self(low_half(digest.finalize()))
    }
}

/// A CRC of 32 bits that the library returns in 64.
fn low_half(value: u64) -> u32 {
    (value & u64::from(u32::MAX)) as u32
}

impl fmt::Display for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crc32c:{self}")
    }
}

impl Serialize for Crc32c {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Crc32c {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unhex::<4>(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is not a checksum of 8 hexadecimal digits"
            ))
        })?;
        Ok(Self(u32::from_be_bytes(bytes)))
    }
}

/// A CRC-32C that grows with the bytes written.
pub struct Crc32cHasher(CrcDigest);

impl Default for Crc32cHasher {
    fn default() -> Self {
        Self(CrcDigest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32cHasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Checksum of everything added.
    pub fn finish(self) -> Crc32c {
        Crc32c(low_half(self.0.finalize()))
    }
}

/// SHA-256 of a whole file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        unhex::<32>(&text).map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is not a SHA-256 of 64 hexadecimal digits"
            ))
        })
    }
}

/// A SHA-256 that grows with the bytes written.
#[derive(Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Digest of everything added.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

/// Reads exactly `N` bytes of lower-case hexadecimal digits; upper case is refused so that a value has one spelling.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_published_check_value() {
        assert_eq!(Crc32c::of(b"123456789"), Crc32c(0xe306_9283));
        let mut hasher = Crc32cHasher::default();
        hasher.update(b"1234");
        hasher.update(b"56789");
        assert_eq!(hasher.finish(), Crc32c(0xe306_9283));
    }

    #[test]
    fn sha256_matches_the_published_value_of_the_empty_string() {
        assert_eq!(
            Sha256Digest::of(b"").to_string(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_record_checksum_depends_on_the_sample_id() {
        let record = b"record";
        assert_ne!(Crc32c::of_record(record, 0), Crc32c::of_record(record, 1));
        let mut joined = record.to_vec();
        joined.extend_from_slice(&7u64.to_le_bytes());
        assert_eq!(Crc32c::of_record(record, 7), Crc32c::of(&joined));
    }

    #[test]
    fn checksums_survive_json_and_refuse_other_spellings() {
        let crc = Crc32c(0x0a0b_0c0d);
        let text = serde_json::to_string(&crc).unwrap();
        assert_eq!(text, "\"0a0b0c0d\"");
        assert_eq!(serde_json::from_str::<Crc32c>(&text).unwrap(), crc);
        for bad in [
            "\"0A0b0c0d\"",
            "\"0a0b0c0\"",
            "\"0a0b0c0d0\"",
            "\"0a0b0c0g\"",
            "7",
        ] {
            assert!(serde_json::from_str::<Crc32c>(bad).is_err(), "{bad}");
        }
    }
}
