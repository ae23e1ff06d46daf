//! Consecutive samples by column, pushed into chunks without being looked at one by one.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};

use super::chunk::{Chunk, LIGHT_SAMPLES_MAX, Lent, check_payload_len};
use super::layout::{Layout, Learned};
use super::rows::PayloadRows;
use super::training::Training;
use crate::error::{CacheError, Result};
use crate::format::arrow_values::text_bytes;
use crate::format::columns::Value;
use crate::limits::CHUNK_BYTES_TARGET;

/// Consecutive samples by column.
///
/// The memory behind it is read until the chunks that were cut from it are committed.
#[derive(Clone, Debug)]
pub(super) struct Block {
    payloads: Arc<PayloadRows>,
    /// Metadata in name order.
    names: Vec<String>,
    columns: Vec<ArrayRef>,
}

impl Block {
    /// Samples with these payloads and this metadata.
    ///
    /// # Errors
    /// A defect of the caller: columns that have not one value for each payload.
    pub fn new(payloads: PayloadRows, mut columns: Vec<(String, ArrayRef)>) -> Result<Self> {
        if columns
            .iter()
            .any(|(_, column)| column.len() != payloads.len())
        {
            return Err(CacheError::internal(
                "a block whose columns differ in length",
            ));
        }
        columns.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (names, columns) = columns.into_iter().unzip();
        Ok(Self {
            payloads: Arc::new(payloads),
            names,
            columns,
        })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Names of the metadata columns, in ascending order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where as many samples from number `from` on as make one chunk end.
    fn cut(&self, from: usize, first_row: u64) -> Result<usize> {
        let (mut end, mut byte_len) = (from, 0usize);
        while end < self.len() && end - from < LIGHT_SAMPLES_MAX && byte_len < CHUNK_BYTES_TARGET {
            let len = self.payloads.byte_len(end);
            check_payload_len(first_row.saturating_add((end - from) as u64), len)?;
            byte_len = byte_len.saturating_add(len);
            end += 1;
        }
        while end - from > 1 && self.text_bytes(from..end) > CHUNK_BYTES_TARGET {
            end = from + (end - from) / 2;
        }
        Ok(end)
    }

    fn text_bytes(&self, samples: Range<usize>) -> usize {
        let parts = self.parts(samples);
        parts.fold(0, |sum, part| sum.saturating_add(text_bytes(&part)))
    }

    /// The metadata of some samples.
    fn parts(&self, samples: Range<usize>) -> impl Iterator<Item = ArrayRef> {
        let columns = self.columns.iter();
        columns.map(move |column| column.slice(samples.start, samples.len()))
    }
}

impl Chunk {
    /// Takes as many samples of a block, from number `from` on, as belong in one chunk; returns where they end.
    ///
    /// The chunk must be empty. `training` counts the samples and may ask for fewer.
    ///
    /// # Errors
    /// [`CacheError::MetadataValue`] and [`CacheError::Sample`] as for single samples.
    pub fn push_block(
        &mut self,
        block: &Block,
        from: usize,
        layout: &Arc<Layout>,
        learned: &mut Learned,
        training: Option<&mut Training>,
    ) -> Result<usize> {
        let mut end = block.cut(from, self.first_row)?;
        self.fill_columns(block, from..end, layout, learned)?;
        if let Some(training) = training {
            let samples = end - from;
            let counted = (0..samples).find(|sample| {
                let text = self.columns.iter().map(|column| match column.get(*sample) {
                    Value::Str(text) => text.len(),
                    _ => 0,
                });
                let len = block.payloads.byte_len(from + sample);
                training.count(len, text.sum());
                training.is_enough()
            });
            if let Some(last) = counted.filter(|last| last + 1 < samples) {
                end = from + last + 1;
                self.fill_columns(block, from..end, layout, learned)?;
            }
        }
        self.lent = Some(Lent::new(Arc::clone(&block.payloads), from..end));
        Ok(end)
    }

    fn fill_columns(
        &mut self,
        block: &Block,
        samples: Range<usize>,
        layout: &Arc<Layout>,
        learned: &mut Learned,
    ) -> Result<()> {
        self.layout = Some(Arc::clone(layout));
        self.columns = learned.columns();
        self.metadata_bytes = block.text_bytes(samples.clone());
        let parts = block.parts(samples);
        for (position, (column, part)) in self.columns.iter_mut().zip(parts).enumerate() {
            learned.push_array(layout, position, column, &part, self.first_row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringArray};
    use arrow_buffer::Buffer;

    use super::*;
    use crate::writer::rows::FieldRows;

    fn payloads(rows: usize, row_bytes: usize) -> PayloadRows {
        let bytes: Vec<u8> = (0..rows * row_bytes)
            .map(|n| (n / row_bytes) as u8)
            .collect();
        let field = FieldRows::Dense {
            bytes: Buffer::from(bytes),
            row_bytes,
        };
        PayloadRows::typed(vec![field], rows).unwrap()
    }

    fn block(rows: usize, row_bytes: usize, text: &str) -> Block {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![text; rows]));
        let columns = vec![("t".to_owned(), texts), ("n".to_owned(), numbers)];
        Block::new(payloads(rows, row_bytes), columns).unwrap()
    }

    /// Lengths of the chunks that a block is cut into, with every sample checked.
    fn chunks(block: &Block, mut training: Option<&mut Training>) -> Vec<usize> {
        let layout = Arc::new(Layout::inferred(block.names().to_vec()).unwrap());
        let mut learned = Learned::new(&layout);
        let (mut from, mut found) = (0, Vec::new());
        while from < block.len() {
            let mut chunk = Chunk {
                first_row: from as u64,
                ..Chunk::default()
            };
            let training = training.as_deref_mut();
            let end = chunk
                .push_block(block, from, &layout, &mut learned, training)
                .unwrap();
            assert_eq!(chunk.len(), end - from);
            assert!(
                chunk
                    .columns
                    .iter()
                    .all(|column| column.len() == end - from)
            );
            assert_eq!(chunk.columns[0].get(0), Value::Int(from as i64));
            chunk.gather();
            for (sample, payload) in chunk.payloads.iter().enumerate() {
                assert!(payload.iter().all(|byte| *byte == (from + sample) as u8));
            }
            found.push(end - from);
            from = end;
        }
        found
    }

    #[test]
    fn a_block_is_cut_by_samples_by_bytes_and_by_text() {
        assert_eq!(chunks(&block(2500, 1, ""), None), [1024, 1024, 452]);
        assert_eq!(chunks(&block(130, 8192, ""), None), [64, 64, 2]);
        let text = "x".repeat(CHUNK_BYTES_TARGET / 3);
        assert!(
            chunks(&block(20, 1, &text), None)
                .iter()
                .all(|len| *len <= 3)
        );
        assert_eq!(
            chunks(&block(2, 2 * CHUNK_BYTES_TARGET, &text), None),
            [1, 1]
        );
    }

    #[test]
    fn training_ends_after_the_sample_that_is_enough() {
        let mut training = Training::new(1);
        let block = block(300, 3, "four");
        let found = chunks(&block, Some(&mut training));
        let wanted = crate::limits::DICTIONARY_SAMPLE_FACTOR.div_ceil(7);
        assert_eq!(found[0], wanted);
    }

    #[test]
    fn columns_that_do_not_match_the_payloads_are_a_defect() {
        let numbers = |len| -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..len)) };
        let column = |len| ("n".to_owned(), numbers(len));
        assert!(Block::new(payloads(3, 1), vec![column(3)]).is_ok());
        assert!(Block::new(payloads(3, 1), vec![column(3), column(2)]).is_err());
    }
}
