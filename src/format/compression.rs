//! Per-record payload compression: stored payload in, payload out, and back.
//!
//! `lz4` is the LZ4 block format behind a little-endian u32 raw length. A payload that does not shrink is stored as one
//! run of literals, which every LZ4 decoder reads at the speed of a copy and which is never longer than what a
//! compressor would have produced for it by more than a few bytes.

use lz4_flex::block;
use serde::{Deserialize, Serialize};

/// How the payloads of a shard are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// As they came.
    None,
    /// LZ4 blocks.
    Lz4,
}

/// Bytes before an LZ4 block.
const LENGTH_PREFIX: usize = 4;
/// No LZ4 block expands by more than this: one length byte stands for at most 255 bytes.
const LZ4_RATIO_MAX: usize = 255;

/// Appends the stored form of `payload` to `out`.
///
/// `payload` must be at most [`crate::limits::PAYLOAD_BYTES_MAX`] bytes, which the writer checks when it takes a
/// sample.
pub fn store(algorithm: Algorithm, payload: &[u8], out: &mut Vec<u8>) {
    match algorithm {
        Algorithm::None => out.extend_from_slice(payload),
        Algorithm::Lz4 => {
            let raw_len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&raw_len.to_le_bytes());
            let start = out.len();
            out.resize(start + block::get_maximum_output_size(payload.len()), 0);
            let target = out.get_mut(start..).unwrap_or_default();
            match block::compress_into(payload, target) {
                Ok(written) if written < payload.len() => out.truncate(start + written),
                _ => {
                    out.truncate(start);
                    append_literals(payload, out);
                }
            }
        }
    }
}

/// Appends an LZ4 block that is nothing but literals.
fn append_literals(payload: &[u8], out: &mut Vec<u8>) {
    const SHORT_MAX: usize = 15;
    if payload.len() < SHORT_MAX {
        out.push((payload.len() as u8) << 4);
    } else {
        out.push(0xf0);
        let mut rest = payload.len() - SHORT_MAX;
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(payload);
}

/// Length of the payload that `stored` holds, or what is wrong with it.
pub fn payload_len(algorithm: Algorithm, stored: &[u8]) -> Result<usize, String> {
    match algorithm {
        Algorithm::None => Ok(stored.len()),
        Algorithm::Lz4 => split_lz4(stored).map(|(len, _)| len),
    }
}

/// Writes the payload that `stored` holds to `out`, which must have exactly [`payload_len`] bytes.
pub fn restore_into(algorithm: Algorithm, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
    match algorithm {
        Algorithm::None if stored.len() == out.len() => {
            out.copy_from_slice(stored);
            Ok(())
        }
        Algorithm::None => Err(length_fault(out.len(), stored.len())),
        Algorithm::Lz4 => {
            let (len, compressed) = split_lz4(stored)?;
            if len != out.len() {
                return Err(length_fault(out.len(), len));
            }
            match block::decompress_into(compressed, out) {
                Ok(written) if written == len => Ok(()),
                Ok(written) => Err(length_fault(len, written)),
                Err(error) => Err(format!("an lz4 block that cannot be decompressed: {error}")),
            }
        }
    }
}

fn length_fault(expected: usize, found: usize) -> String {
    format!("a payload of {found} bytes where {expected} belong")
}

/// Splits raw length and block; a length that no block of this size can have is refused before it is allocated.
fn split_lz4(stored: &[u8]) -> Result<(usize, &[u8]), String> {
    let Some((prefix, compressed)) = stored.split_first_chunk::<LENGTH_PREFIX>() else {
        return Err(format!(
            "an lz4 payload of {} bytes, shorter than its length prefix",
            stored.len()
        ));
    };
    let len = u32::from_le_bytes(*prefix) as usize;
    let most = compressed.len().saturating_mul(LZ4_RATIO_MAX);
    if len > most {
        return Err(format!(
            "an lz4 block of {} bytes that claims {len} raw bytes, more than the {most} it can hold",
            compressed.len()
        ));
    }
    Ok((len, compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(payload: &[u8]) -> usize {
        let mut stored = b"before".to_vec();
        store(Algorithm::Lz4, payload, &mut stored);
        let stored = &stored[6..];
        let mut out = vec![1; payload_len(Algorithm::Lz4, stored).unwrap()];
        restore_into(Algorithm::Lz4, stored, &mut out).unwrap();
        assert_eq!(out, payload);
        stored.len()
    }

    /// Bytes that no compressor shrinks.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..len)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn every_length_survives_lz4_whether_it_shrinks_or_not() {
        for len in (0..600).chain([4095, 4096, 65_535, 65_536, 70_000]) {
            round_trip(&noise(len));
            round_trip(&vec![7; len]);
        }
    }

    #[test]
    fn a_payload_that_does_not_shrink_grows_by_its_length_bytes_only() {
        let payload = noise(10_000);
        assert_eq!(
            round_trip(&payload),
            4 + 1 + (10_000 - 15) / 255 + 1 + 10_000
        );
    }

    #[test]
    fn the_empty_payload_is_stored_as_published_releases_store_it() {
        let mut stored = Vec::new();
        store(Algorithm::Lz4, b"", &mut stored);
        assert_eq!(stored, [0, 0, 0, 0, 0]);
    }

    #[test]
    fn impossible_lengths_are_refused_before_allocation() {
        let mut stored = Vec::new();
        store(Algorithm::Lz4, &[0; 1000], &mut stored);
        stored[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(payload_len(Algorithm::Lz4, &stored).is_err());
        assert!(payload_len(Algorithm::Lz4, &[1, 0]).is_err());
    }

    #[test]
    fn a_block_that_ends_early_or_late_is_refused() {
        let mut stored = Vec::new();
        store(Algorithm::Lz4, &noise(100), &mut stored);
        for len in [99, 101] {
            stored[..4].copy_from_slice(&(len as u32).to_le_bytes());
            let mut out = vec![0; len];
            assert!(restore_into(Algorithm::Lz4, &stored, &mut out).is_err());
        }
    }
}
