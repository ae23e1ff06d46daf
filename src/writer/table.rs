//! The metadata table as it grows: batches of a fixed number of rows, and what happens when the schema is learned late.
//!
//! A batch is written with the schema as known then. When a later row shows that a column has nulls, or gives a column
//! its type, the file so far is set aside and another begun; at the end everything set aside is read back and written
//! again under the final schema. A source with a steady or declared schema never pays for this.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;

use super::chunk::Chunk;
use super::layout::{Layout, Learned};
use crate::error::{CacheError, Result};
use crate::format::columns::{Column, Value};
use crate::format::metadata;
use crate::format::schema::Schema;
use crate::limits::METADATA_BATCH_ROWS;
use crate::store::outflow::output::{OutFile, Outputs};
use crate::store::outflow::table::{arrow, create, ended};
use crate::store::publish::Withdrawn;

/// Text after which a batch is written early, in bytes: its offsets have 31 bits, and one batch is held in memory.
const BATCH_TEXT_BYTES: usize = 256 << 20;

/// The first bytes of an Arrow file, padded with zeros up to its first message.
const MAGIC: &[u8; 6] = b"ARROW1";

/// The table of one cache.
pub(super) struct Table {
    layout: Arc<Layout>,
    learned: Learned,
    /// The batch being collected.
    columns: Vec<Column>,
    rows: usize,
    text_bytes: usize,
    batch_text_bytes: usize,
    open: Option<(Schema, FileWriter<OutFile>)>,
    /// Earlier parts, written under schemas that turned out incomplete.
    aside: Vec<Withdrawn>,
}

impl Table {
    /// An empty table.
    pub fn new(layout: Arc<Layout>) -> Self {
        let learned = Learned::new(&layout);
        Self {
            columns: learned.columns(),
            layout,
            learned,
            rows: 0,
            text_bytes: 0,
            batch_text_bytes: BATCH_TEXT_BYTES,
            open: None,
            aside: Vec::new(),
        }
    }

    /// Whether [`Table::append`] will write nothing.
    pub fn is_quick(&self, chunk: &Chunk) -> bool {
        self.rows.saturating_add(chunk.len()) < METADATA_BATCH_ROWS
            && self.text_bytes.saturating_add(chunk.metadata_bytes) < self.batch_text_bytes
    }

    /// Appends the rows of a chunk.
    pub fn append(&mut self, chunk: &Chunk, outputs: &Arc<Outputs>) -> Result<()> {
        for row in 0..chunk.len() {
            for (column, values) in self.columns.iter_mut().zip(&chunk.columns) {
                let value = values.get(row);
                if let Value::Str(text) = value {
                    self.text_bytes = self.text_bytes.saturating_add(text.len());
                }
                column.push(value).map_err(|(_, found)| {
                    CacheError::internal(format!("a checked metadata value did not fit: {found}"))
                })?;
            }
            self.rows += 1;
            if self.rows >= METADATA_BATCH_ROWS || self.text_bytes >= self.batch_text_bytes {
                self.flush(outputs)?;
            }
        }
        Ok(())
    }

    /// Writes what is left, brings everything under one schema and ends the file; returns the schema.
    pub fn finish(mut self, outputs: &Arc<Outputs>) -> Result<Schema> {
        if self.rows > 0 || self.open.is_none() {
            self.flush(outputs)?;
        }
        let schema = self.learned.schema(&self.layout)?;
        if self.aside.is_empty() {
            if let Some((_, file)) = self.open.take() {
                ended(file, outputs)?.close()?;
            }
            return Ok(schema);
        }
        self.set_aside(outputs)?;
        let mut file = create(&schema, outputs)?;
        for part in self.aside {
            for batch in batches(part.open()?, outputs)? {
                outputs.failure.check()?;
                let batch = arrow(metadata::conform(&arrow(batch, outputs)?, &schema), outputs)?;
                arrow(file.write(&batch), outputs)?;
            }
            part.remove()?;
        }
        ended(file, outputs)?.close()?;
        Ok(schema)
    }

    fn flush(&mut self, outputs: &Arc<Outputs>) -> Result<()> {
        self.learned.learn(&self.columns);
        let schema = self.learned.schema(&self.layout)?;
        if self.open.as_ref().is_some_and(|(open, _)| *open != schema) {
            self.set_aside(outputs)?;
        }
        let batch = metadata::to_batch(&self.columns, &schema, self.rows);
        let batch = arrow(batch, outputs)?;
        let (_, file) = match &mut self.open {
            Some(open) => open,
            closed => closed.insert((schema.clone(), create(&schema, outputs)?)),
        };
        arrow(file.write(&batch), outputs)?;
        self.columns = self.learned.columns();
        (self.rows, self.text_bytes) = (0, 0);
        Ok(())
    }

    fn set_aside(&mut self, outputs: &Arc<Outputs>) -> Result<()> {
        if let Some((_, file)) = self.open.take() {
            self.aside.push(ended(file, outputs)?.withdraw()?);
        }
        Ok(())
    }
}

/// Batches of a file that was ended, one at a time: an Arrow file is a stream behind a magic number.
fn batches(
    file: Box<dyn Read + Send>,
    outputs: &Outputs,
) -> Result<impl Iterator<Item = std::result::Result<RecordBatch, ArrowError>> + use<>> {
    let mut file = BufReader::new(file);
    let skipped = skip_magic(&mut file).map_err(ArrowError::from);
    arrow(skipped, outputs)?;
    arrow(StreamReader::try_new(file, None), outputs)
}

fn skip_magic(file: &mut impl BufRead) -> std::io::Result<()> {
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic)?;
    loop {
        let bytes = file.fill_buf()?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        let more = zeros > 0 && zeros == bytes.len();
        file.consume(zeros);
        if !more {
            return Ok(());
        }
    }
}
