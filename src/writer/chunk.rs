//! Consecutive samples on their way through the pipeline, by column: first as they came, then encoded.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use super::layout::{Layout, Learned};
use super::rows::PayloadRows;
use crate::error::{CacheError, Result};
use crate::format::checksum::Crc32c;
use crate::format::columns::{Column, Value};
use crate::limits::{CHUNK_BYTES_TARGET, METADATA_JSON_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Capacity beyond which a buffer is given back to the system when its chunk is used again.
const KEPT_BYTES_MAX: usize = 4 * CHUNK_BYTES_TARGET;

/// Most samples of a chunk that is encoded in passing.
pub(super) const LIGHT_SAMPLES_MAX: usize = 1024;

/// Byte strings one after another in one buffer.
#[derive(Debug, Default)]
pub(super) struct Spans {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Spans {
    /// Appends what `fill` puts at the end of the buffer.
    pub fn push_with(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// The byte strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| self.bytes.get(start..end).unwrap_or_default())
    }

    /// Bytes of all strings.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets all strings, and keeps the memory unless it is unusually large.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// Payloads that lie in memory elsewhere.
#[derive(Debug)]
pub(super) struct Lent {
    payloads: Arc<PayloadRows>,
    rows: Range<usize>,
    byte_len: usize,
}

impl Lent {
    /// Some of `payloads`.
    pub fn new(payloads: Arc<PayloadRows>, rows: Range<usize>) -> Self {
        let lens = rows.clone().map(|row| payloads.byte_len(row));
        let byte_len = lens.fold(0, usize::saturating_add);
        Self {
            payloads,
            rows,
            byte_len,
        }
    }

    fn iter(&self) -> impl Iterator<Item = Stored<'_>> {
        let rows = self.rows.clone();
        rows.map(|row| Stored::Lent(&self.payloads, row))
    }
}

/// A payload as it is in its record.
#[derive(Clone, Copy)]
pub(super) enum Stored<'a> {
    Own(&'a [u8]),
    Lent(&'a PayloadRows, usize),
}

impl Stored<'_> {
    /// Its length in bytes.
    pub fn len(self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Lent(payloads, row) => payloads.byte_len(row),
        }
    }

    /// Gives its bytes to `take`, part by part.
    pub fn parts<E>(
        self,
        mut take: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        match self {
            Self::Own(bytes) => take(bytes),
            Self::Lent(payloads, row) => payloads.parts(row, take),
        }
    }
}

/// A chunk. Its buffers are used again and again.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Place in the order of chunks.
    pub number: u64,
    /// Row of its first sample.
    pub first_row: u64,
    /// Columns of its samples; none before the first sample.
    pub layout: Option<Arc<Layout>>,
    /// Payloads as they came.
    pub payloads: Spans,
    /// Payloads that were left where they lie, instead of the others.
    pub lent: Option<Lent>,
    /// Metadata by column.
    pub columns: Vec<Column>,
    /// Bytes of text in the columns.
    pub metadata_bytes: usize,
    /// Per record what stands before the stored payload.
    pub heads: Spans,
    /// Stored payloads, unless they are the payloads themselves.
    pub stored: Option<Spans>,
    /// Record checksums.
    pub checksums: Vec<Crc32c>,
}

impl Chunk {
    /// Number of samples.
    pub fn len(&self) -> usize {
        let lent = self.lent.as_ref().map(|lent| lent.rows.len());
        lent.unwrap_or(self.payloads.ends.len())
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        let lent = self.lent.as_ref().map(|lent| lent.byte_len);
        lent.unwrap_or(self.payloads.byte_len())
    }

    /// Copies payloads that lie elsewhere, for whoever needs each in one piece.
    pub fn gather(&mut self) {
        let Some(lent) = self.lent.take() else {
            return;
        };
        for payload in lent.iter() {
            self.payloads.push_with(|out| {
                let copied = payload.parts(|part| {
                    out.extend_from_slice(part);
                    Ok::<_, Infallible>(())
                });
                copied.unwrap_or_default();
            });
        }
    }

    /// Whether it holds enough bytes to be sent off.
    pub fn is_heavy(&self) -> bool {
        self.payload_bytes().saturating_add(self.metadata_bytes) >= CHUNK_BYTES_TARGET
    }

    /// Whether encoding it is a matter of a few milliseconds at most, and its parts of all files fit one block each.
    pub fn is_light(&self) -> bool {
        let bytes = self.payload_bytes().saturating_add(self.metadata_bytes);
        self.len() <= LIGHT_SAMPLES_MAX && bytes <= 2 * CHUNK_BYTES_TARGET
    }

    /// Empties the chunk for other samples.
    pub fn clear(&mut self) {
        self.payloads.clear();
        self.lent = None;
        self.heads.clear();
        if let Some(stored) = &mut self.stored {
            stored.clear();
        }
        self.columns.clear();
        self.checksums.clear();
        self.metadata_bytes = 0;
    }

    /// Payloads as they are in the record.
    pub fn stored(&self) -> impl Iterator<Item = Stored<'_>> {
        let own = self.stored.as_ref().unwrap_or(&self.payloads);
        let lent = self.lent.iter().flat_map(Lent::iter);
        lent.chain(own.iter().map(Stored::Own))
    }

    /// Lengths of the payloads before compression.
    pub fn payload_lens(&self) -> impl Iterator<Item = usize> {
        let lent = self.lent.iter().flat_map(Lent::iter);
        let lent = lent.map(Stored::len);
        lent.chain(self.payloads.iter().map(<[u8]>::len))
    }

    /// Bytes of all payloads as they are in the record.
    pub fn stored_bytes(&self) -> usize {
        let stored = self.stored.as_ref().map(Spans::byte_len);
        stored.unwrap_or(self.payload_bytes())
    }

    /// Opens the next sample, whose payload `fill` appends; its values follow through the [`Row`].
    ///
    /// # Errors
    /// What `fill` returns; [`CacheError::Sample`] for a payload larger than [`PAYLOAD_BYTES_MAX`].
    pub fn push_with<'a, E: From<CacheError>>(
        &'a mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), E>,
        layout: &'a Arc<Layout>,
        learned: &'a mut Learned,
    ) -> std::result::Result<Row<'a>, E> {
        if self.len() == 0 {
            self.columns = learned.columns();
            self.layout = Some(Arc::clone(layout));
        }
        let row = self.first_row.saturating_add(self.len() as u64);
        let before = self.payloads.byte_len();
        let mut filled = Ok(());
        self.payloads.push_with(|out| filled = fill(out));
        filled?;
        check_payload_len(row, self.payloads.byte_len().saturating_sub(before))?;
        Ok(Row {
            columns: &mut self.columns,
            metadata_bytes: &mut self.metadata_bytes,
            layout,
            learned,
            row,
            position: 0,
            text_bytes: 0,
        })
    }

    /// As [`Chunk::push_with`], of a payload that is at hand and small enough.
    #[cfg(test)]
    pub fn push<'a>(
        &'a mut self,
        payload: &[u8],
        layout: &'a Arc<Layout>,
        learned: &'a mut Learned,
    ) -> Row<'a> {
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(payload);
            Ok::<_, CacheError>(())
        };
        self.push_with(fill, layout, learned).unwrap()
    }
}

/// The metadata of one sample being pushed, a value at a time in column order.
#[derive(Debug)]
pub struct Row<'a> {
    columns: &'a mut [Column],
    metadata_bytes: &'a mut usize,
    layout: &'a Layout,
    learned: &'a mut Learned,
    row: u64,
    position: usize,
    text_bytes: u64,
}

impl Row<'_> {
    /// Gives the value of the next column.
    ///
    /// # Errors
    /// [`CacheError::MetadataValue`] if it does not fit, [`CacheError::Sample`] if the sample's metadata gets too
    /// large.
    pub fn set(&mut self, value: Value<'_>) -> Result<()> {
        if let Value::Str(text) = value {
            self.text_bytes = self.text_bytes.saturating_add(text.len() as u64);
            if self.text_bytes > METADATA_JSON_BYTES_MAX {
                return Err(metadata_too_large(self.row, self.text_bytes));
            }
            *self.metadata_bytes = self.metadata_bytes.saturating_add(text.len());
        }
        let position = self.position;
        self.position += 1;
        let Some(column) = self.columns.get_mut(position) else {
            return Err(CacheError::internal(
                "a metadata value beyond the last column",
            ));
        };
        self.learned
            .push(self.layout, position, column, value, self.row)
    }

    /// Checks that every column got its value; returns how many bytes of text there are among them.
    pub(super) fn finish(self) -> Result<usize> {
        if self.position == self.columns.len() {
            return Ok(usize::try_from(self.text_bytes).unwrap_or(usize::MAX));
        }
        Err(CacheError::internal(
            "a sample with too few metadata values",
        ))
    }
}

/// Refuses a payload that no record holds.
pub(super) fn check_payload_len(row: u64, found: usize) -> Result<()> {
    if found as u64 <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(CacheError::Sample {
        row,
        fault: format!("a payload of {found} bytes, more than the limit of {PAYLOAD_BYTES_MAX}"),
    })
}

/// The error for a sample whose metadata is larger than any reader accepts.
pub(super) fn metadata_too_large(row: u64, found: u64) -> CacheError {
    CacheError::Sample {
        row,
        fault: format!(
            "metadata of {found} bytes, more than the limit of {METADATA_JSON_BYTES_MAX}; keep documents in the payload"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_come_back_as_they_went_in() {
        let mut spans = Spans::default();
        for text in ["a", "", "bcd"] {
            spans.push_with(|out| out.extend_from_slice(text.as_bytes()));
        }
        let found: Vec<_> = spans.iter().collect();
        assert_eq!(found, [b"a".as_slice(), b"", b"bcd"]);
        spans.clear();
        assert_eq!(spans.iter().count(), 0);
    }

    #[test]
    fn an_unusually_large_buffer_is_not_kept() {
        let mut spans = Spans::default();
        spans.push_with(|out| out.resize(KEPT_BYTES_MAX + 1, 0));
        spans.clear();
        assert_eq!(spans.bytes.capacity(), 0);
        spans.push_with(|out| out.resize(1000, 0));
        spans.clear();
        assert!(spans.bytes.capacity() >= 1000);
    }

    #[test]
    fn a_row_needs_every_value_and_no_more() {
        let layout = Arc::new(Layout::inferred(vec!["a".to_owned(), "b".to_owned()]).unwrap());
        let mut learned = Learned::new(&layout);
        let mut chunk = Chunk::default();
        let mut row = chunk.push(b"x", &layout, &mut learned);
        row.set(Value::Int(1)).unwrap();
        assert!(row.finish().is_err());
        let mut row = chunk.push(b"y", &layout, &mut learned);
        row.set(Value::Int(1)).unwrap();
        row.set(Value::Null).unwrap();
        assert!(row.set(Value::Null).is_err());
    }

    #[test]
    fn too_much_text_is_refused_before_it_is_copied() {
        let layout = Arc::new(Layout::inferred(vec!["a".to_owned()]).unwrap());
        let mut learned = Learned::new(&layout);
        let mut chunk = Chunk::default();
        let text = "x".repeat(METADATA_JSON_BYTES_MAX as usize + 1);
        let error = chunk
            .push(b"", &layout, &mut learned)
            .set(Value::Str(&text))
            .unwrap_err();
        assert!(
            matches!(error, CacheError::Sample { row: 0, .. }),
            "{error}"
        );
    }
}
