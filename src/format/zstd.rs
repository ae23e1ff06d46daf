//! The stored form of a zstd payload: a little-endian u32 raw length, then the payload itself or one zstd frame.
//!
//! Which of the two follows is told by its length: a frame is stored only where it is shorter than the payload, so what
//! is as long as the raw length is the payload. Frames carry neither magic number, content size, dictionary id nor
//! checksum: the raw length stands before them, the dictionary in the manifest, and the record has its own checksum.

use std::fmt;
use std::io::Cursor;

use zstd_safe::{
    CCtx, CDict, CParameter, DCtx, DParameter, FrameFormat, SafeResult, compress_bound,
    get_error_name,
};

use super::dictionary::{Dictionary, REFUSED};

/// Bytes before payload or frame.
const LENGTH_PREFIX: usize = 4;
/// No frame expands by more than this: a block takes 4 bytes at least and holds 128 KiB at most.
const RATIO_MAX: usize = (128 << 10) / 4;

/// What follows the raw length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored<'a> {
    /// The payload as it came.
    Plain(&'a [u8]),
    /// A frame that holds this many bytes.
    Frame(usize, &'a [u8]),
}

impl Stored<'_> {
    /// Length of the payload, in bytes.
    pub fn payload_len(self) -> usize {
        match self {
            Self::Plain(payload) => payload.len(),
            Self::Frame(len, _) => len,
        }
    }
}

/// Tells payload from frame; a length that no frame of this size can have is refused before it is allocated.
pub(super) fn split(stored: &[u8]) -> Result<Stored<'_>, String> {
    let Some((prefix, rest)) = stored.split_first_chunk::<LENGTH_PREFIX>() else {
        return Err(format!(
            "a zstd payload of {} bytes, shorter than its length prefix",
            stored.len()
        ));
    };
    let len = u32::from_le_bytes(*prefix) as usize;
    let most = rest.len().saturating_mul(RATIO_MAX);
    if rest.len() == len {
        Ok(Stored::Plain(rest))
    } else if rest.len() > len {
        Err(format!(
            "a zstd payload stored in {} bytes, more than its {len} raw bytes",
            rest.len()
        ))
    } else if len > most {
        Err(format!(
            "a zstd frame of {} bytes that claims {len} raw bytes, more than the {most} it can hold",
            rest.len()
        ))
    } else {
        Ok(Stored::Frame(len, rest))
    }
}

/// Level and dictionary that the payloads of a cache are compressed with.
pub struct Parameters {
    level: i32,
    dictionary: Option<CDict<'static>>,
}

impl Parameters {
    /// Parameters with the dictionary, if there is one, digested for this level.
    ///
    /// # Errors
    /// What is wrong with the dictionary.
    pub fn new(level: i32, dictionary: Option<&[u8]>) -> Result<Self, String> {
        let digest = |bytes| CDict::try_create(bytes, level).ok_or(REFUSED);
        let dictionary = dictionary.map(digest).transpose()?;
        Ok(Self { level, dictionary })
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_dictionary = self.dictionary.is_some();
        write!(f, "zstd level {}, dictionary {has_dictionary}", self.level)
    }
}

/// Compresses one payload after the other, in memory that is used again.
pub(super) struct Compressor<'a>(CCtx<'a>);

impl<'a> Compressor<'a> {
    pub fn new(parameters: &'a Parameters) -> Result<Self, String> {
        let mut context = CCtx::try_create().ok_or_else(no_memory)?;
        for parameter in [
            CParameter::CompressionLevel(parameters.level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::DictIdFlag(false),
            CParameter::ChecksumFlag(false),
        ] {
            context.set_parameter(parameter).map_err(name)?;
        }
        if let Some(dictionary) = &parameters.dictionary {
            context.ref_cdict(dictionary).map_err(name)?;
        }
        Ok(Self(context))
    }

    /// Appends the stored form of `payload` to `out`.
    pub fn store(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let raw_len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&raw_len.to_le_bytes());
        let start = out.len();
        // Room for the worst case, which zstd works faster with.
        out.reserve(compress_bound(payload.len()));
        let written = self.0.compress2(&mut at_end(out), payload).map_err(name)?;
        if written >= payload.len() {
            out.truncate(start);
            out.extend_from_slice(payload);
        }
        Ok(())
    }
}

/// Decompresses one frame after the other, in memory that is used again.
pub(super) struct Decompressor(DCtx<'static>);

impl Decompressor {
    pub fn new() -> Result<Self, String> {
        let mut context = DCtx::try_create().ok_or_else(no_memory)?;
        context
            .set_parameter(DParameter::Format(FrameFormat::Magicless))
            .map_err(name)?;
        Ok(Self(context))
    }

    /// Decompresses a frame to `out`; returns how many bytes it held.
    pub fn restore(
        &mut self,
        frame: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut [u8],
    ) -> Result<usize, String> {
        let context = &mut self.0;
        decompressed(match dictionary {
            None => context.decompress(out, frame),
            Some(dictionary) => context.decompress_using_ddict(out, frame, dictionary.digested()),
        })
    }

    /// Appends what a frame holds to `out`, at most as much as there is room for; returns how many bytes that were.
    pub fn append(
        &mut self,
        frame: &[u8],
        dictionary: Option<&Dictionary>,
        out: &mut Vec<u8>,
    ) -> Result<usize, String> {
        let context = &mut self.0;
        let out = &mut at_end(out);
        decompressed(match dictionary {
            None => context.decompress(out, frame),
            Some(dictionary) => context.decompress_using_ddict(out, frame, dictionary.digested()),
        })
    }
}

/// The unused capacity behind `out`.
fn at_end(out: &mut Vec<u8>) -> Cursor<&mut Vec<u8>> {
    let end = out.len() as u64;
    let mut cursor = Cursor::new(out);
    cursor.set_position(end);
    cursor
}

fn decompressed(result: SafeResult) -> Result<usize, String> {
    result.map_err(|code| {
        format!(
            "a zstd frame that cannot be decompressed: {}",
            get_error_name(code)
        )
    })
}

fn name(code: usize) -> String {
    format!("zstd: {}", get_error_name(code))
}

fn no_memory() -> String {
    "zstd: no memory for a context".to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::compression::testing::{noise, text};
    use super::*;
    use crate::limits::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};

    pub fn stored(parameters: &Parameters, payload: &[u8]) -> Vec<u8> {
        let mut stored = b"before".to_vec();
        let mut compressor = Compressor::new(parameters).unwrap();
        compressor.store(payload, &mut stored).unwrap();
        stored.split_off(6)
    }

    pub fn restored(stored: &[u8], dictionary: Option<&Dictionary>) -> Result<Vec<u8>, String> {
        match split(stored)? {
            Stored::Plain(payload) => Ok(payload.to_vec()),
            Stored::Frame(len, frame) => {
                let mut out = vec![9; len];
                let mut decompressor = Decompressor::new()?;
                let found = decompressor.restore(frame, dictionary, &mut out)?;
                let mut appended = b"before".to_vec();
                appended.reserve(len);
                assert_eq!(
                    decompressor.append(frame, dictionary, &mut appended),
                    Ok(found)
                );
                assert_eq!(appended, [b"before", &out[..found]].concat());
                out.truncate(found);
                Ok(out)
            }
        }
    }

    #[test]
    fn every_length_survives_every_level_whether_it_shrinks_or_not() {
        for level in [ZSTD_LEVEL_MIN, -1, 1, 3, ZSTD_LEVEL_MAX] {
            let parameters = Parameters::new(level, None).unwrap();
            let lengths = (0..40).chain([255, 256, 4095, 65_535, 65_792, 131_072, 131_073]);
            for len in lengths.chain([(1 << 20) + 1]) {
                for payload in [noise(len), vec![7; len], text(len % 7, len)] {
                    let stored = stored(&parameters, &payload);
                    assert_eq!(split(&stored).unwrap().payload_len(), len);
                    assert!(stored.len() <= 4 + len, "{level} {len}");
                    assert_eq!(restored(&stored, None), Ok(payload), "{level} {len}");
                }
            }
        }
    }

    #[test]
    fn a_payload_that_does_not_shrink_is_stored_behind_its_length() {
        let parameters = Parameters::new(3, None).unwrap();
        assert_eq!(stored(&parameters, b""), [0; 4]);
        assert_eq!(stored(&parameters, b"x"), [1, 0, 0, 0, b'x']);
        let payload = noise(0x12345);
        let expected = [&[0x45, 0x23, 1, 0], &payload[..]].concat();
        assert_eq!(stored(&parameters, &payload), expected);
    }

    /// 1,000 times the byte 7 as the format describes it: no flags, a window of 1 KiB, and one last block of a repeated
    /// byte.
    const SEVENS: [u8; 10] = [0xe8, 3, 0, 0, 0, 0, 0x43, 0x1f, 0, 7];

    #[test]
    fn a_frame_is_nothing_but_its_blocks_behind_two_bytes() {
        assert_eq!(restored(&SEVENS, None), Ok(vec![7; 1000]));
        // What is written has no flags either, and only misses the magic number to be read by everybody.
        let parameters = Parameters::new(3, None).unwrap();
        let stored = stored(&parameters, &[7; 1000]);
        assert_eq!(stored[4], 0);
        let whole = [&[0x28, 0xb5, 0x2f, 0xfd], &stored[4..]].concat();
        let mut out = Vec::with_capacity(1000);
        assert_eq!(zstd_safe::decompress(&mut out, &whole), Ok(1000));
        assert_eq!(out, [7; 1000]);
    }

    #[test]
    fn lengths_that_contradict_the_frame_are_refused_before_or_after_it_is_read() {
        let claiming = |len: u32| [&len.to_le_bytes()[..], &SEVENS[4..]].concat();
        for (len, fault) in [
            (5, "more than its 5 raw bytes"),
            (999, "too small"),
            (6 * 32_768 + 1, "more than the 196608 it can hold"),
            (u32::MAX, "more than the 196608 it can hold"),
        ] {
            let error = restored(&claiming(len), None).unwrap_err();
            assert!(error.contains(fault), "{len}: {error}");
        }
        for len in [1001, 6 * 32_768] {
            assert_eq!(restored(&claiming(len), None), Ok(vec![7; 1000]));
        }
        for len in 0..4 {
            assert!(split(&SEVENS[..len]).is_err());
        }
    }

    #[test]
    fn no_frame_holds_more_than_a_frame_of_its_size_is_believed_to_hold() {
        let parameters = Parameters::new(ZSTD_LEVEL_MAX, None).unwrap();
        let zeros = vec![0; 20 << 20];
        let stored = stored(&parameters, &zeros);
        assert!(stored.len() < 2000, "{}", stored.len());
        assert!(restored(&stored, None) == Ok(zeros));
    }

    #[test]
    fn a_frame_may_claim_a_window_of_2_gib_which_nobody_allocates() {
        let claiming = |window| {
            let mut stored = SEVENS;
            stored[5] = window;
            restored(&stored, None)
        };
        let [two_gib, four_gib] = [21 << 3, 22 << 3];
        assert_eq!(claiming(two_gib), Ok(vec![7; 1000]));
        assert!(claiming(four_gib).is_err());
    }

    #[test]
    fn no_cut_and_no_flip_of_a_frame_panics_or_gives_another_length() {
        let parameters = Parameters::new(3, None).unwrap();
        let payload = text(3, 2000);
        let sound = stored(&parameters, &payload);
        for at in 0..sound.len() {
            if let Ok(found) = restored(&sound[..at], None) {
                assert!(at >= 4 && found.len() < payload.len(), "{at}");
            }
            for mask in [1, 0x10, 0x80, 0xff] {
                let mut flipped = sound.clone();
                flipped[at] ^= mask;
                let _ = restored(&flipped, None);
            }
        }
    }

    #[test]
    fn what_is_stored_does_not_depend_on_what_was_stored_before() {
        for level in [ZSTD_LEVEL_MIN, 1, 3, 4, 5, 6, 9, 12, 13, 16, ZSTD_LEVEL_MAX] {
            let parameters = Parameters::new(level, None).unwrap();
            let mut used = Compressor::new(&parameters).unwrap();
            for len in [100, 20_000, 140_000] {
                let payload = text(1, len);
                let expected = stored(&parameters, &payload);
                for seed in 2..4 {
                    for other in [text(seed, len * seed / 3), noise(len / 2)] {
                        used.store(&other, &mut Vec::new()).unwrap();
                    }
                    let mut again = Vec::new();
                    used.store(&payload, &mut again).unwrap();
                    assert!(again == expected, "level {level}, {len} bytes");
                }
            }
        }
    }
}
