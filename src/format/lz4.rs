//! The stored form of an lz4 payload: a little-endian u32 raw length and one LZ4 block.
//!
//! A payload that does not shrink is stored as one run of literals, which every LZ4 decoder reads at the speed of a copy
//! and which is never longer than what a compressor would have produced for it by more than a few bytes.
//!
//! The C library decodes faster than `lz4_flex`, which is here for payloads that are too long for it, and has no levels.

use lz4::block::{self, CompressionMode};

use crate::limits::LZ4_LEVEL_MIN;

/// Bytes before an LZ4 block.
const LENGTH_PREFIX: usize = 4;
/// No shorter payload shrinks: the last twelve bytes of a block are never the start of a match. The C library is not
/// asked either, as its higher levels calculate places before an empty payload.
const SHRINKING_LEN_MIN: usize = 13;
/// Longest payload and longest block that the C library takes, in bytes: its `LZ4_MAX_INPUT_SIZE`.
const C_LEN_MAX: usize = 0x7e00_0000;
/// No LZ4 block expands by more than this: one length byte stands for at most 255 bytes.
const RATIO_MAX: usize = 255;

/// Appends the stored form of `payload` to `out`, compressed at `level`: 1 is fast, those from 2 on search longer for
/// longer matches, which also takes fewer of them to decode.
pub(super) fn store(payload: &[u8], level: i32, out: &mut Vec<u8>) {
    let raw_len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&raw_len.to_le_bytes());
    let start = out.len();
    match compress(payload, level, out) {
        Some(written) if written < payload.len() => out.truncate(start + written),
        _ => {
            out.truncate(start);
            append_literals(payload, out);
        }
    }
}

/// Writes the block of `payload` behind what `out` holds, with anything behind it; returns its length in bytes unless
/// there is none.
fn compress(payload: &[u8], level: i32, out: &mut Vec<u8>) -> Option<usize> {
    if payload.len() < SHRINKING_LEN_MIN {
        return None;
    }
    let start = out.len();
    let is_long = payload.len() > C_LEN_MAX;
    // Room for the worst case, which both libraries work faster with.
    let most = if is_long {
        lz4_flex::block::get_maximum_output_size(payload.len())
    } else {
        block::compress_bound(payload.len()).ok()?
    };
    out.resize(start + most, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    if is_long {
        return lz4_flex::block::compress_into(payload, room).ok();
    }
    let mode = match level {
        LZ4_LEVEL_MIN => CompressionMode::DEFAULT,
        level => CompressionMode::HIGHCOMPRESSION(level),
    };
    block::compress_to_buffer(payload, Some(mode), false, room).ok()
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

/// Splits raw length and block; a length that no block of this size can have is refused before it is allocated.
pub(super) fn split(stored: &[u8]) -> Result<(usize, &[u8]), String> {
    let Some((prefix, compressed)) = stored.split_first_chunk::<LENGTH_PREFIX>() else {
        return Err(format!(
            "an lz4 payload of {} bytes, shorter than its length prefix",
            stored.len()
        ));
    };
    let len = u32::from_le_bytes(*prefix) as usize;
    let most = compressed.len().saturating_mul(RATIO_MAX);
    if len > most {
        return Err(format!(
            "an lz4 block of {} bytes that claims {len} raw bytes, more than the {most} it can hold",
            compressed.len()
        ));
    }
    Ok((len, compressed))
}

/// Decompresses a block to `out`; returns how many bytes it held.
pub(super) fn restore(compressed: &[u8], out: &mut [u8]) -> Result<usize, String> {
    let restored = if compressed.len().max(out.len()) > C_LEN_MAX {
        lz4_flex::block::decompress_into(compressed, out).ok()
    } else {
        block::decompress_to_buffer(compressed, Some(out.len() as i32), out).ok()
    };
    restored.ok_or_else(|| "an lz4 block that cannot be decompressed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::compression::testing::{noise, text};
    use super::*;
    use crate::limits::LZ4_LEVEL_MAX;

    fn round_trip(payload: &[u8], level: i32) -> usize {
        let mut stored = b"before".to_vec();
        store(payload, level, &mut stored);
        let (len, block) = split(&stored[6..]).unwrap();
        assert_eq!(len, payload.len());
        let mut out = vec![1; len];
        assert_eq!(restore(block, &mut out), Ok(len));
        assert_eq!(out, payload);
        stored.len() - 6
    }

    #[test]
    fn every_length_survives_whether_it_shrinks_or_not() {
        for len in (0..600).chain([4095, 4096, 65_535, 65_536, 70_000]) {
            for level in [1, 2, 9, 12] {
                round_trip(&noise(len), level);
                round_trip(&vec![7; len], level);
            }
        }
    }

    #[test]
    fn a_higher_level_shrinks_more() {
        let sizes = [1, 3, 9].map(|level| round_trip(&text(3, 50_000), level));
        assert!(sizes.is_sorted_by(|less, more| less > more), "{sizes:?}");
    }

    #[test]
    fn what_either_library_compresses_the_other_gives_back() {
        for payload in [vec![], noise(100), vec![7; 70_000], text(3, 100_000)] {
            let mut out = vec![1; payload.len()];
            let long = lz4_flex::block::compress(&payload);
            assert_eq!(restore(&long, &mut out), Ok(payload.len()));
            assert_eq!(out, payload);
            for level in [1, 2, 9, 12] {
                let mut stored = Vec::new();
                store(&payload, level, &mut stored);
                out.fill(1);
                let found = lz4_flex::block::decompress_into(&stored[4..], &mut out);
                assert_eq!(found.unwrap(), payload.len());
                assert_eq!(out, payload);
            }
        }
    }

    #[test]
    #[ignore = "takes 7 GB of memory"]
    fn a_payload_that_is_too_long_for_the_c_library_survives() {
        let mut payload = text(3, 1 << 20).repeat((C_LEN_MAX >> 20) + 1);
        payload.resize(C_LEN_MAX + 1, 9);
        assert!(round_trip(&payload, 1) < payload.len() / 2);
    }

    #[test]
    fn a_payload_that_does_not_shrink_grows_by_its_length_bytes_only() {
        let payload = noise(10_000);
        assert_eq!(
            round_trip(&payload, 1),
            4 + 1 + (10_000 - 15) / 255 + 1 + 10_000
        );
    }

    #[test]
    fn the_empty_payload_is_stored_as_published_releases_store_it() {
        let mut stored = Vec::new();
        store(b"", 1, &mut stored);
        assert_eq!(stored, [0, 0, 0, 0, 0]);
    }

    #[test]
    fn impossible_lengths_are_refused_before_allocation() {
        let mut stored = Vec::new();
        store(&[0; 1000], 1, &mut stored);
        stored[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(split(&stored).is_err());
        assert!(split(&[1, 0]).is_err());
    }

    /// What the LZ4 block format says, byte by byte; `None` for what is no block of at most `most` bytes. A match at
    /// distance 0, which the format forbids, is a run of zeros: never what the memory held before.
    fn naive(block: &[u8], most: usize) -> Option<Vec<u8>> {
        let mut input = block.iter().copied();
        let mut out = Vec::new();
        let more = |input: &mut dyn Iterator<Item = u8>, nibble: u8| {
            let mut len = usize::from(nibble);
            while len >= 15 && (len - 15) % 255 == 0 {
                match input.next()? {
                    255 => len += 255,
                    last => return Some(len + usize::from(last)),
                }
            }
            Some(len)
        };
        loop {
            let token = input.next()?;
            for _ in 0..more(&mut input, token >> 4)? {
                out.push(input.next()?);
            }
            let Some(low) = input.next() else {
                return (out.len() <= most).then_some(out);
            };
            let offset = usize::from(u16::from_le_bytes([low, input.next()?]));
            for _ in 0..4 + more(&mut input, token & 15)? {
                let from = out.len().checked_sub(offset)?;
                out.push(out.get(from).copied().unwrap_or(0));
            }
            if out.len() > most {
                return None;
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(3000))]

        #[test]
        fn a_hostile_block_is_what_the_format_says_or_refused_and_nothing_beside_it_is_written(
            payload in proptest::collection::vec(0..4_u8, 0..400),
            level in LZ4_LEVEL_MIN..=LZ4_LEVEL_MAX,
            changes in proptest::collection::vec((proptest::prelude::any::<u16>(), proptest::prelude::any::<u8>()), 0..4),
            cut in 0..3_usize,
            room in 0..450_usize,
        ) {
            const GUARD: usize = 64;
            let mut stored = Vec::new();
            store(&payload, level, &mut stored);
            for (place, byte) in changes {
                let place = 4 + usize::from(place) % (stored.len() - 4);
                stored[place] = byte;
            }
            stored.truncate((stored.len() - cut).max(4));
            let block = &stored[4..];
            let mut memory = vec![0xa5; room + 2 * GUARD];
            let restored = restore(block, &mut memory[GUARD..GUARD + room]);
            match (restored, naive(block, room)) {
                (Ok(len), Some(expected)) => {
                    proptest::prop_assert_eq!(&memory[GUARD..GUARD + len], &*expected);
                }
                (Ok(len), None) => proptest::prop_assert!(false, "{len} bytes of no block"),
                // The end of a block has rules that only compressors need, and decoders may insist on.
                (Err(_), _) => {}
            }
            let beside = [&memory[..GUARD], &memory[GUARD + room..]].concat();
            proptest::prop_assert!(beside.iter().all(|byte| *byte == 0xa5));
        }
    }

    #[test]
    fn a_block_that_ends_early_or_late_is_refused() {
        let mut stored = Vec::new();
        store(&noise(100), 1, &mut stored);
        for len in [99, 101] {
            stored[..4].copy_from_slice(&(len as u32).to_le_bytes());
            let (_, block) = split(&stored).unwrap();
            let mut out = vec![0; len];
            assert_ne!(restore(block, &mut out), Ok(len));
        }
    }
}
