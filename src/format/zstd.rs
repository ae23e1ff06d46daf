//! The stored form of a zstd payload: a little-endian u32 raw length, then the payload itself or one zstd frame.
//!
//! Which of the two follows is told by its length: a frame is stored only where it is shorter than the payload, so what
//! is as long as the raw length is the payload. Frames carry neither magic number, content size, dictionary id nor
//! checksum: the raw length stands before them, the dictionary in the manifest, and the record has its own checksum.

use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

use zstd_safe::{
    CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat, SafeResult, compress_bound,
    get_error_name, train_from_buffer,
};

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
        let digest = |bytes| CDict::try_create(bytes, level).ok_or_else(refused_dictionary);
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

/// A dictionary digested for decompression; may be shared by any number of threads.
pub struct Dictionary(DDict<'static>);

impl Dictionary {
    /// Digests the bytes of a dictionary.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn digest(bytes: &[u8]) -> Result<Self, String> {
        let digested = DDict::try_create(bytes).ok_or_else(refused_dictionary)?;
        Ok(Self(digested))
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary of {} bytes", self.0.sizeof())
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
            Some(dictionary) => context.decompress_using_ddict(out, frame, &dictionary.0),
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
            Some(dictionary) => context.decompress_using_ddict(out, frame, &dictionary.0),
        })
    }
}

/// Trains a dictionary of at most `bytes` bytes on `samples`, which lie one after the other and have these lengths; none
/// if they are too few or have nothing in common.
pub fn train(samples: &[u8], lengths: &[usize], bytes: usize) -> Option<Arc<[u8]>> {
    let mut dictionary = Vec::with_capacity(bytes);
    train_from_buffer(&mut dictionary, samples, lengths).ok()?;
    Some(dictionary.into())
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

fn refused_dictionary() -> String {
    "a dictionary that zstd cannot load".to_owned()
}
