//! Tables of samples into a cache: which columns are payload fields, which are metadata, and blocks of both.
//!
//! A source may name its payload columns. Otherwise columns of bytes and of lists are payload fields and all others
//! metadata. A single payload column that is called `data` and holds bytes is the plain payload.

use arrow_array::{ArrayRef, RecordBatch};

use super::arrow_rows::{ColumnFault, field_rows, is_payload};
use super::block::Block;
use super::cache_writer::CacheWriter;
use super::known::PayloadOrigin;
use super::rows::{FieldRows, PayloadRows};
use crate::error::{CacheError, Result};
use crate::format::payload::{Dtype, FieldSpec, PayloadSchema};

/// The column that is the payload itself if it is the only payload column and holds bytes.
const PLAIN: &str = "data";

/// Chunks after which the caller is asked whether to go on, even if nothing makes the writer wait.
const CHUNKS_BETWEEN_LOOKS: usize = 32;

/// Batches with the same columns.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// One table of samples.
pub struct Feed {
    /// Fields that lie in memory for all samples, with as many values as the table has rows.
    pub arrays: Vec<(FieldSpec, FieldRows)>,
    /// Samples in the arrays; of no meaning without them.
    pub rows: usize,
    /// Further columns; none if all there is are arrays.
    pub batches: Option<Batches>,
    /// Which columns of the batches are payload fields.
    pub rule: Rule,
}

/// Which columns are payload fields.
#[derive(Clone, Debug)]
pub enum Rule {
    /// The first so many.
    First(usize),
    /// These.
    Named(Vec<String>),
    /// Those of bytes and of lists.
    ByType,
}

impl Rule {
    fn takes(&self, position: usize, name: &str, batch: &RecordBatch) -> bool {
        match self {
            Self::First(count) => position < *count,
            Self::Named(names) => names.iter().any(|wanted| wanted == name),
            Self::ByType => is_payload(batch.column(position).data_type()),
        }
    }
}

type Field = (FieldSpec, FieldRows);

impl Feed {
    /// Gives all samples to the writer. `look` is called at least every 50 ms of waiting and every few megabytes.
    ///
    /// # Errors
    /// Those of [`CacheWriter::push_block`], columns that do not match the payload fields, or the error of `look`.
    pub fn run(
        mut self,
        writer: &mut CacheWriter,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let Some(batches) = self.batches.take() else {
            let block = self.block(None, 0, self.rows, writer)?;
            return push(writer, &block, &mut 0, look);
        };
        let (mut start, mut chunks) = (0usize, 0usize);
        for batch in batches {
            let batch = batch?;
            let block = self.block(Some(&batch), start, batch.num_rows(), writer)?;
            push(writer, &block, &mut chunks, look)?;
            start = start.saturating_add(block.len());
        }
        if !self.arrays.is_empty() && start != self.rows {
            let fault = format!("tables end here, arrays after {} samples", self.rows);
            return Err(CacheError::Sample {
                row: writer.rows(),
                fault,
            });
        }
        Ok(())
    }

    /// The samples from number `start` on, `len` of them, whose other columns are in `batch`.
    fn block(
        &self,
        batch: Option<&RecordBatch>,
        start: usize,
        len: usize,
        writer: &mut CacheWriter,
    ) -> Result<Block> {
        let row = writer.rows();
        let sample = |fault| CacheError::Sample { row, fault };
        let mut fields: Vec<Field> = Vec::new();
        for (spec, rows) in &self.arrays {
            let rows = rows.slice(start, len).ok_or_else(|| {
                sample(format!(
                    "arrays end after {} samples, tables do not",
                    self.rows
                ))
            })?;
            fields.push((spec.clone(), rows));
        }
        let mut metadata: Vec<(String, ArrayRef)> = Vec::new();
        if let Some(batch) = batch {
            self.sort(batch, row, writer.payload(), &mut fields, &mut metadata)?;
        }
        fields.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let payloads = match is_plain(&fields, writer) {
            true => {
                let rows = fields.into_iter().next().map(|(_, rows)| rows);
                let rows = rows.ok_or_else(|| CacheError::internal("a payload without rows"))?;
                PayloadRows::plain(rows, len)
            }
            false => {
                let specs = fields.iter().map(|(spec, _)| spec.clone()).collect();
                settle(writer, specs)?;
                PayloadRows::typed(fields.into_iter().map(|(_, rows)| rows).collect(), len)
            }
        };
        let payloads = payloads.map_err(|(number, at, found)| {
            let field = writer.payload().and_then(|s| s.fields().get(number));
            CacheError::PayloadField {
                row: row.saturating_add(at as u64),
                field: field.map_or(PLAIN, |field| &field.name).to_owned(),
                expected: "a value for every sample".to_owned(),
                found,
                advice: String::new(),
            }
        })?;
        Block::new(payloads, metadata)
    }

    /// Adds the columns of a batch, whose first row is sample `row`, to the payload fields and to the metadata.
    fn sort(
        &self,
        batch: &RecordBatch,
        row: u64,
        schema: Option<&PayloadSchema>,
        fields: &mut Vec<Field>,
        metadata: &mut Vec<(String, ArrayRef)>,
    ) -> Result<()> {
        let found = batch.schema();
        if let Rule::Named(names) = &self.rule
            && let Some(missing) = names.iter().find(|name| found.index_of(name).is_err())
        {
            return Err(CacheError::Sample {
                row,
                fault: format!("payload column `{missing}` is missing; payload_columns names it"),
            });
        }
        for (position, column) in batch.columns().iter().enumerate() {
            let name = found.field(position).name();
            if !self.rule.takes(position, name, batch) {
                metadata.push((name.clone(), ArrayRef::clone(column)));
                continue;
            }
            let expected = || match spec_of(schema, name) {
                Some(spec) => spec.describe(),
                None => "bytes, numbers or lists of numbers".to_owned(),
            };
            let field = field_rows(name, column).map_err(|fault: ColumnFault| {
                CacheError::PayloadField {
                    row: row.saturating_add(fault.row as u64),
                    field: name.clone(),
                    expected: expected(),
                    found: fault.found,
                    advice: fault.advice.to_owned(),
                }
            })?;
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(CacheError::Sample {
                row,
                fault: "a table without payload columns; expected columns of bytes or lists, or payload_columns that names them"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

/// Gives a block to the writer; `chunks` counts those of the whole table.
fn push(
    writer: &mut CacheWriter,
    block: &Block,
    chunks: &mut usize,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut from = 0;
    while from < block.len() {
        from = writer.push_block(block, from)?;
        writer.submit(look)?;
        *chunks += 1;
        if chunks.is_multiple_of(CHUNKS_BETWEEN_LOOKS) {
            look()?;
        }
    }
    Ok(())
}

fn spec_of<'a>(schema: Option<&'a PayloadSchema>, name: &str) -> Option<&'a FieldSpec> {
    let schema = schema?;
    schema.fields().get(schema.position(name)?)
}

/// Whether the only field is the plain payload.
fn is_plain(fields: &[Field], writer: &CacheWriter) -> bool {
    match fields {
        [(spec, _)] => {
            spec.name == PLAIN && spec.dtype == Dtype::Bytes && writer.payload().is_none()
        }
        _ => false,
    }
}

/// Sets the payload fields, or compares them with those that are set.
fn settle(writer: &mut CacheWriter, found: Vec<FieldSpec>) -> Result<()> {
    let row = writer.rows();
    let sample = |fault| CacheError::Sample { row, fault };
    let Some(schema) = writer.payload() else {
        if row > 0 {
            let fault = "other payload columns than `data`, which all tables before had alone";
            return Err(sample(fault.to_owned()));
        }
        return writer.set_payload(PayloadSchema::new(found).map_err(sample)?);
    };
    let names: Vec<&str> = found.iter().map(|spec| spec.name.as_str()).collect();
    if let Some(difference) = schema.difference(&names) {
        let rule = match writer.payload_origin() {
            PayloadOrigin::Cache => "what is appended needs the payload fields of the cache",
            _ => "every table needs the fields that the source declares or the first gave",
        };
        return Err(sample(format!("payload field {difference}; {rule}")));
    }
    let mut pairs = schema.fields().iter().zip(&found);
    match pairs.find(|(expected, found)| expected != found) {
        None => Ok(()),
        Some((expected, found)) => {
            let advice = match expected.shape == found.shape {
                true => "; cast the column first",
                false => "",
            };
            Err(CacheError::PayloadField {
                row,
                field: expected.name.clone(),
                expected: expected.describe(),
                found: found.describe(),
                advice: advice.to_owned(),
            })
        }
    }
}
