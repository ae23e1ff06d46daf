//! Consecutive samples on their way to the consumer.

use std::sync::Arc;

use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::row::Rows;
use crate::store::file::FileReader;
use crate::types::SampleRef;

/// Samples at consecutive positions. Small and decoded payloads lie in one buffer of the chunk; large plain ones stay
/// where the file is mapped, so that they are copied once, by the consumer.
#[derive(Debug, Default)]
pub struct Chunk {
    samples: Vec<SampleRef>,
    payloads: Vec<Payload>,
    bytes: Vec<u8>,
    shards: Vec<Arc<FileReader>>,
    rows: Rows,
    width: usize,
    /// Where damaged samples were left out: before which sample, and how many.
    left_out: Vec<(usize, u64)>,
}

/// Where one payload lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload {
    /// In the chunk's buffer.
    Held { start: usize, end: usize },
    /// In a mapped shard of the chunk's list.
    Mapped {
        shard: usize,
        start: usize,
        end: usize,
    },
}

/// How much a chunk held before a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    bytes: usize,
    shards: usize,
}

/// One sample of a chunk, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Which physical sample it is.
    pub reference: SampleRef,
    /// Its payload.
    pub payload: &'a [u8],
    chunk: &'a Chunk,
    position: usize,
}

impl<'a> Sample<'a> {
    /// Metadata values in schema order.
    pub fn metadata(self) -> impl Iterator<Item = Value<'a>> {
        self.chunk.rows.row(self.position, self.chunk.width)
    }
}

impl Chunk {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Sample number `position`.
    pub fn get(&self, position: usize) -> Option<Sample<'_>> {
        let reference = *self.samples.get(position)?;
        let payload = self.bytes_of(*self.payloads.get(position)?)?;
        Some(Sample {
            reference,
            payload,
            chunk: self,
            position,
        })
    }

    /// How many damaged samples were left out just before sample number `place`, or, of one more than the last, at the end.
    #[inline]
    pub fn left_out_before(&self, place: usize) -> u64 {
        if self.left_out.is_empty() {
            return 0;
        }
        let found = self.left_out.iter().find(|(before, _)| *before == place);
        found.map_or(0, |(_, count)| *count)
    }

    /// Notes that a damaged sample is left out here.
    pub(super) fn leave_out(&mut self) {
        let place = self.len();
        match self.left_out.last_mut() {
            Some((before, count)) if *before == place => *count += 1,
            _ => self.left_out.push((place, 1)),
        }
    }

    /// The bytes of a payload that this chunk holds.
    pub(super) fn bytes_of(&self, payload: Payload) -> Option<&[u8]> {
        match payload {
            Payload::Held { start, end } => self.bytes.get(start..end),
            Payload::Mapped { shard, start, end } => {
                self.shards.get(shard)?.memory()?.get(start..end)
            }
        }
    }

    /// The samples in order.
    pub fn samples(&self) -> &[SampleRef] {
        &self.samples
    }

    /// Sum of the payload lengths, in bytes.
    pub fn payload_bytes(&self) -> usize {
        let len = |payload: &Payload| match *payload {
            Payload::Held { start, end } | Payload::Mapped { start, end, .. } => end - start,
        };
        self.payloads.iter().map(len).sum()
    }

    /// Forgets all samples and keeps the memory, unless it has grown past what chunks usually need.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.payloads.clear();
        self.shards.clear();
        self.rows.clear();
        self.left_out.clear();
        self.bytes.clear();
        self.bytes.shrink_to(2 * crate::limits::CHUNK_BYTES_TARGET);
    }

    /// Prepares for rows of `width` metadata columns.
    pub(super) fn set_width(&mut self, width: usize) {
        self.width = width;
    }

    /// The decoded metadata, to be appended to.
    pub(super) fn rows(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// Makes room for a payload of `len` bytes.
    ///
    /// # Errors
    /// [`CacheError::Memory`] if there is none.
    pub(super) fn reserve(&mut self, len: usize) -> Result<()> {
        let outcome = self.bytes.try_reserve(len);
        // Room to grow is asked for first, which a large payload may do without.
        let outcome = outcome.or_else(|_| self.bytes.try_reserve_exact(len));
        outcome.map_err(|_| CacheError::memory("a payload", len))
    }

    /// A payload that `fill` appends to the buffer.
    pub(super) fn hold<E>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), E>,
    ) -> std::result::Result<Payload, E> {
        let start = self.bytes.len();
        fill(&mut self.bytes)?;
        let end = self.bytes.len();
        Ok(Payload::Held { start, end })
    }

    /// A copy of `payload` at the end of the buffer.
    pub(super) fn hold_copy(&mut self, payload: &[u8]) -> Payload {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        Payload::Held {
            start,
            end: self.bytes.len(),
        }
    }

    /// Bytes `start..end` of a mapped shard, which stays open as long as the chunk.
    pub(super) fn map(&mut self, shard: &Arc<FileReader>, start: usize, end: usize) -> Payload {
        let known = self
            .shards
            .iter()
            .position(|known| Arc::ptr_eq(known, shard));
        let shard = known.unwrap_or_else(|| {
            self.shards.push(Arc::clone(shard));
            self.shards.len() - 1
        });
        Payload::Mapped { shard, start, end }
    }

    /// Forgets what was held or mapped since the last [`Chunk::push`], after a sample that could not be completed.
    pub(super) fn give_up(&mut self, before: Before) {
        self.bytes.truncate(before.bytes);
        self.shards.truncate(before.shards);
    }

    /// How much is held now, for [`Chunk::give_up`].
    pub(super) fn before(&self) -> Before {
        Before {
            bytes: self.bytes.len(),
            shards: self.shards.len(),
        }
    }

    /// Completes a sample whose metadata was pushed to [`Chunk::rows`].
    pub(super) fn push(&mut self, reference: SampleRef, payload: Payload) {
        self.samples.push(reference);
        self.payloads.push(payload);
    }
}
