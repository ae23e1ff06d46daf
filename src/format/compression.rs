//! Per-record payload compression: payload in, stored payload out, and back.
//!
//! What each algorithm stores is told in [`super::lz4`] and [`super::zstd`]. The raw length is always known without
//! decompressing, and checked against what the stored bytes can hold before anybody makes room for it.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use super::dictionary::{Dictionary, train};
pub use super::zstd::Parameters as ZstdParameters;
use super::{lz4, zstd};

/// How the payloads of a shard are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// As they came.
    None,
    /// LZ4 blocks.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

/// Length of the payload that `stored` holds, or what is wrong with it.
pub fn payload_len(algorithm: Algorithm, stored: &[u8]) -> Result<usize, String> {
    match algorithm {
        Algorithm::None => Ok(stored.len()),
        Algorithm::Lz4 => lz4::split(stored).map(|(len, _)| len),
        Algorithm::Zstd => zstd::split(stored).map(zstd::Stored::payload_len),
    }
}

/// The payload itself, where `stored` holds it as it came; such a payload can be used where it lies.
pub fn plain(algorithm: Algorithm, stored: &[u8]) -> Option<&[u8]> {
    match algorithm {
        Algorithm::None => Some(stored),
        Algorithm::Lz4 => None,
        Algorithm::Zstd => match zstd::split(stored) {
            Ok(zstd::Stored::Plain(payload)) => Some(payload),
            _ => None,
        },
    }
}

/// Gives payloads back. Each thread has its own, which keeps what the algorithms can use again.
#[derive(Default)]
pub struct Decoder {
    zstd: Option<zstd::Decompressor>,
}

impl Decoder {
    /// Writes the payload that `stored` holds to `out`, which must have exactly [`payload_len`] bytes. What `out` held
    /// does not matter; after an error it holds anything.
    ///
    /// `dictionary` is that of the cache, if it has one.
    ///
    /// # Errors
    /// What is wrong with `stored`.
    pub fn restore_into(
        &mut self,
        algorithm: Algorithm,
        dictionary: Option<&Dictionary>,
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), String> {
        let (len, found) = match algorithm {
            Algorithm::None => (stored.len(), copy(stored, out)),
            Algorithm::Lz4 => {
                let (len, block) = lz4::split(stored)?;
                if len != out.len() {
                    return Err(length_fault(out.len(), len));
                }
                (len, lz4::restore(block, out)?)
            }
            Algorithm::Zstd => match zstd::split(stored)? {
                zstd::Stored::Plain(payload) => (payload.len(), copy(payload, out)),
                zstd::Stored::Frame(len, _) if len != out.len() => {
                    return Err(length_fault(out.len(), len));
                }
                zstd::Stored::Frame(len, frame) => {
                    (len, self.zstd()?.restore(frame, dictionary, out)?)
                }
            },
        };
        check_len(out.len(), len)?;
        check_len(len, found)
    }

    /// Appends the payload that `stored` holds to `out`; after an error `out` holds what it held before.
    ///
    /// The caller has compared [`payload_len`] with its limits, and made room if want of it is to be told from damage.
    /// `dictionary` is that of the cache, if it has one.
    ///
    /// # Errors
    /// What is wrong with `stored`.
    pub fn append(
        &mut self,
        algorithm: Algorithm,
        dictionary: Option<&Dictionary>,
        stored: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let start = out.len();
        if let Some(payload) = plain(algorithm, stored) {
            out.extend_from_slice(payload);
            return Ok(());
        }
        let outcome = match algorithm {
            Algorithm::Zstd => match zstd::split(stored)? {
                zstd::Stored::Plain(_) => Ok(()),
                zstd::Stored::Frame(len, frame) => {
                    reserve(out, len)?;
                    let found = self.zstd()?.append(frame, dictionary, out);
                    found.and_then(|found| check_len(len, found))
                }
            },
            Algorithm::None | Algorithm::Lz4 => {
                let len = payload_len(algorithm, stored)?;
                reserve(out, len)?;
                out.resize(start.saturating_add(len), 0);
                let room = out.get_mut(start..).unwrap_or_default();
                self.restore_into(algorithm, dictionary, stored, room)
            }
        };
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }

    fn zstd(&mut self) -> Result<&mut zstd::Decompressor, String> {
        match &mut self.zstd {
            Some(context) => Ok(context),
            none => Ok(none.insert(zstd::Decompressor::new()?)),
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

/// Copies as much as `out` has room for, and says how long `payload` is.
fn copy(payload: &[u8], out: &mut [u8]) -> usize {
    if payload.len() == out.len() {
        out.copy_from_slice(payload);
    }
    payload.len()
}

/// Makes room, or says that there is none, rather than end the process.
fn reserve(out: &mut Vec<u8>, len: usize) -> Result<(), String> {
    let outcome = out.try_reserve(len);
    outcome
        .map_err(|_| format!("a payload of {len} bytes, for which the system has no memory left"))
}

fn check_len(expected: usize, found: usize) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(length_fault(expected, found))
}

fn length_fault(expected: usize, found: usize) -> String {
    format!("a payload of {found} bytes where {expected} belong")
}

/// How the payloads of a cache are to be stored, with all that takes.
#[derive(Debug)]
pub enum Recipe {
    /// As they come.
    None,
    /// LZ4 blocks, compressed at this level.
    Lz4(i32),
    /// Zstandard frames.
    Zstd(ZstdParameters),
}

/// Brings payloads into their stored form. Each thread has its own, which keeps what the algorithm can use again.
pub struct Encoder<'a>(Engine<'a>);

enum Engine<'a> {
    None,
    Lz4(i32),
    Zstd(zstd::Compressor<'a>),
}

impl<'a> Encoder<'a> {
    /// An encoder for `recipe`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(recipe: &'a Recipe) -> Result<Self, String> {
        Ok(Self(match recipe {
            Recipe::None => Engine::None,
            Recipe::Lz4(level) => Engine::Lz4(*level),
            Recipe::Zstd(parameters) => Engine::Zstd(zstd::Compressor::new(parameters)?),
        }))
    }

    /// Whether stored payloads are the payloads themselves.
    pub fn is_plain(&self) -> bool {
        matches!(self.0, Engine::None)
    }

    /// Appends the stored form of `payload` to `out`. It depends on the payload and the recipe alone, not on what was
    /// stored before.
    ///
    /// `payload` must be at most [`crate::limits::PAYLOAD_BYTES_MAX`] bytes, which the writer checks when it takes a
    /// sample.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn store(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        match &mut self.0 {
            Engine::None => out.extend_from_slice(payload),
            Engine::Lz4(level) => lz4::store(payload, *level, out),
            Engine::Zstd(context) => context.store(payload, out)?,
        }
        Ok(())
    }
}

impl fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod testing {
    /// Bytes that no compressor shrinks.
    pub fn noise(len: usize) -> Vec<u8> {
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

    /// Text in which much repeats, but not everything.
    pub fn text(seed: usize, len: usize) -> Vec<u8> {
        let words = [
            "train",
            "a photo of",
            "label",
            "/data/",
            "image",
            ".jpg",
            "score",
        ];
        let numbers = noise(len + seed).split_off(seed);
        let mut text = Vec::new();
        for number in numbers {
            text.extend_from_slice(words[usize::from(number) % words.len()].as_bytes());
            text.extend_from_slice((usize::from(number) * seed % 1000).to_string().as_bytes());
            if text.len() >= len {
                break;
            }
        }
        text.truncate(len);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::testing::noise;
    use super::*;

    fn recipes() -> [(Algorithm, Recipe); 3] {
        let zstd = ZstdParameters::new(3, None).unwrap();
        [
            (Algorithm::None, Recipe::None),
            (Algorithm::Lz4, Recipe::Lz4(1)),
            (Algorithm::Zstd, Recipe::Zstd(zstd)),
        ]
    }

    #[test]
    fn both_ways_to_restore_give_the_payload_and_refuse_another_length() {
        for (algorithm, recipe) in recipes() {
            let mut encoder = Encoder::new(&recipe).unwrap();
            let mut decoder = Decoder::default();
            for payload in [vec![], vec![1], noise(1000), vec![7; 1000]] {
                let mut stored = Vec::new();
                encoder.store(&payload, &mut stored).unwrap();
                let len = payload_len(algorithm, &stored).unwrap();
                assert_eq!(len, payload.len());
                let mut out = vec![9; len];
                decoder
                    .restore_into(algorithm, None, &stored, &mut out)
                    .unwrap();
                assert_eq!(out, payload);
                let mut out = b"before".to_vec();
                decoder.append(algorithm, None, &stored, &mut out).unwrap();
                assert_eq!(out, [b"before", &payload[..]].concat());
                for wrong in [len + 1, len.wrapping_sub(1)] {
                    if wrong <= len + 1 {
                        let mut out = vec![9; wrong];
                        let outcome = decoder.restore_into(algorithm, None, &stored, &mut out);
                        assert!(outcome.is_err(), "{algorithm:?} {len} {wrong}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_restored_leaves_no_trace() {
        for (algorithm, recipe) in recipes().into_iter().skip(1) {
            let mut encoder = Encoder::new(&recipe).unwrap();
            let mut stored = Vec::new();
            encoder.store(&[7; 1000], &mut stored).unwrap();
            stored.truncate(stored.len() - 1);
            let mut out = b"before".to_vec();
            let mut decoder = Decoder::default();
            assert!(decoder.append(algorithm, None, &stored, &mut out).is_err());
            assert_eq!(out, b"before");
        }
    }

    #[test]
    fn only_what_was_stored_as_it_came_is_plain() {
        for (algorithm, recipe) in recipes() {
            let mut encoder = Encoder::new(&recipe).unwrap();
            for (payload, shrinks) in [(noise(100), false), (vec![7; 100], true)] {
                let mut stored = Vec::new();
                encoder.store(&payload, &mut stored).unwrap();
                let expected = match algorithm {
                    Algorithm::None => Some(&payload[..]),
                    Algorithm::Lz4 => None,
                    Algorithm::Zstd => (!shrinks).then_some(&payload[..]),
                };
                assert_eq!(plain(algorithm, &stored), expected);
            }
        }
    }
}
