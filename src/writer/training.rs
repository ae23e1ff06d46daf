//! The first samples of a source, held back until they are enough to train a dictionary on.
//!
//! Which samples these are depends on the samples alone, never on chunks or threads, so that equal sources get equal
//! dictionaries.

use super::chunk::Chunk;
use crate::limits::{
    DICTIONARY_SAMPLE_BYTES_MAX, DICTIONARY_SAMPLE_FACTOR, DICTIONARY_SAMPLES_MAX,
};
use crate::sync::Sender;

/// Bytes used of each payload: what zstd compresses at a time. A dictionary helps little beyond.
const PART_MAX: usize = 128 << 10;

/// Samples held back.
#[derive(Debug)]
pub(super) struct Training {
    dictionary_bytes: usize,
    wanted: usize,
    bytes: usize,
    samples: usize,
    chunks: Vec<Chunk>,
}

/// What a worker needs to train a dictionary.
#[derive(Debug)]
pub(super) struct Lesson {
    /// Most bytes of the dictionary.
    pub dictionary_bytes: usize,
    /// The payloads or their beginnings, one after the other.
    pub samples: Vec<u8>,
    /// Their lengths.
    pub lengths: Vec<usize>,
    /// Told when the dictionary is there, or known not to come.
    pub done: Sender<()>,
}

impl Training {
    /// Training for a dictionary of at most `dictionary_bytes` bytes.
    pub fn new(dictionary_bytes: usize) -> Self {
        let wanted = dictionary_bytes.saturating_mul(DICTIONARY_SAMPLE_FACTOR);
        Self {
            dictionary_bytes,
            wanted: wanted.min(DICTIONARY_SAMPLE_BYTES_MAX),
            bytes: 0,
            samples: 0,
            chunks: Vec::new(),
        }
    }

    /// Counts one more sample; its metadata counts too, since it is held as well.
    pub fn count(&mut self, payload_bytes: usize, text_bytes: usize) {
        self.samples += 1;
        self.bytes = self
            .bytes
            .saturating_add(payload_bytes)
            .saturating_add(text_bytes);
    }

    /// Whether the samples counted so far are enough.
    pub fn is_enough(&self) -> bool {
        self.bytes >= self.wanted || self.samples >= DICTIONARY_SAMPLES_MAX
    }

    /// Holds back a chunk of counted samples.
    pub fn hold(&mut self, mut chunk: Chunk) {
        chunk.gather();
        self.chunks.push(chunk);
    }

    /// What to train on.
    pub fn lesson(&self, done: Sender<()>) -> Lesson {
        let mut lesson = Lesson {
            dictionary_bytes: self.dictionary_bytes,
            samples: Vec::new(),
            lengths: Vec::new(),
            done,
        };
        for payload in self.chunks.iter().flat_map(|chunk| chunk.payloads.iter()) {
            let part = payload.get(..PART_MAX).unwrap_or(payload);
            lesson.samples.extend_from_slice(part);
            lesson.lengths.push(part.len());
        }
        lesson
    }

    /// The chunks held back, in order.
    pub fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_or_samples_are_enough_whichever_come_first() {
        let mut large = Training::new(1024);
        large.count(50 << 10, 49 << 10);
        assert!(!large.is_enough());
        large.count(1 << 10, 0);
        assert!(large.is_enough());
        let mut small = Training::new(1 << 20);
        for _ in 1..DICTIONARY_SAMPLES_MAX {
            small.count(1, 0);
        }
        assert!(!small.is_enough());
        small.count(1, 0);
        assert!(small.is_enough());
        let mut largest = Training::new(1 << 20);
        largest.count(DICTIONARY_SAMPLE_BYTES_MAX, 0);
        assert!(largest.is_enough());
    }
}
