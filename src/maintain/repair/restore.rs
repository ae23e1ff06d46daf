//! The files of a repaired generation, out of the records that can be trusted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::wreck::{Trusted, Wreck};
use crate::error::{CacheError, Result};
use crate::format::columns::{Column, Value};
use crate::format::index::IndexRow;
use crate::format::manifest::{CHECKSUM_BYTES, Manifest};
use crate::format::metadata::to_batch;
use crate::format::names::{CHECKSUMS, INDEX};
use crate::format::row::Rows;
use crate::format::schema::Schema;
use crate::limits::{METADATA_BATCH_ROWS, SHARD_BYTES_DEFAULT};
use crate::maintain::blank::blank;
use crate::maintain::copier::Copier;
use crate::store::outflow::manifest::NewShard;
use crate::store::outflow::output::{Outputs, Tag};
use crate::store::outflow::table;

/// What was written.
pub struct Restored {
    /// Shards for the records of those that are damaged.
    pub shards: Vec<NewShard>,
    /// Samples that are kept.
    pub kept: u64,
    /// Ids of samples that are lost, in ascending order.
    pub lost: Vec<u64>,
}

/// Writes index, checksums and metadata for ids `0..sample_ids`, of which `gone` have no sample, and new shards in place of
/// damaged ones. All metadata is taken from the records, which repeat it.
///
/// # Errors
/// [`CacheError::Interrupted`] if the work was given up.
pub fn restore(
    wreck: &Wreck,
    manifest: &Manifest,
    sample_ids: u64,
    gone: &BTreeSet<u64>,
    outputs: &Arc<Outputs>,
) -> Result<Restored> {
    let mut index = outputs.open(Tag::Index, INDEX)?;
    let checksums = manifest.record_checksums.as_ref();
    let mut checksums = checksums
        .map(|_| outputs.open(Tag::Checksums, CHECKSUMS))
        .transpose()?;
    let mut table = table::create(&manifest.metadata_schema, outputs)?;
    let mut copier = Copier::new(outputs, SHARD_BYTES_DEFAULT);
    let kept = wreck.kept_shards();
    let first_new = kept.iter().flatten().count() as u64;
    let (mut count, mut lost) = (0, Vec::new());
    let mut block = Block::new(&manifest.metadata_schema);
    let (mut record, mut rows) = (Vec::new(), Rows::default());
    for id in 0..sample_ids {
        outputs.failure.check()?;
        let trusted = match gone.contains(&id) {
            true => None,
            false => {
                let trusted = wreck.record(id, &mut record, &mut rows);
                lost.extend(trusted.is_none().then_some(id));
                trusted
            }
        };
        let (row, checksum) = match trusted {
            None => (IndexRow::GONE, [0; CHECKSUM_BYTES as usize]),
            Some(trusted) => {
                count += 1;
                let row = settle(&trusted, &record, (&kept, first_new), &mut copier)?;
                (row, trusted.checksum.0.to_le_bytes())
            }
        };
        index.append(&row.to_bytes())?;
        if let Some(checksums) = &mut checksums {
            checksums.append(&checksum)?;
        }
        block.push(trusted.map(|_| &rows))?;
        if block.len == METADATA_BATCH_ROWS || id + 1 == sample_ids {
            let batch = to_batch(&block.columns, &manifest.metadata_schema, block.len);
            let batch = table::arrow(batch, outputs)?;
            table::arrow(table.write(&batch), outputs)?;
            block = Block::new(&manifest.metadata_schema);
        }
    }
    index.close()?;
    if let Some(checksums) = checksums {
        checksums.close()?;
    }
    table::ended(table, outputs)?.close()?;
    Ok(Restored {
        shards: copier.close()?,
        kept: count,
        lost,
    })
}

/// Where a record lies from now on: where it is, in a shard that stays, or in a new one, of which the first gets number
/// `first_new`.
fn settle(
    trusted: &Trusted,
    record: &[u8],
    (kept, first_new): (&[Option<u64>], u64),
    copier: &mut Copier,
) -> Result<IndexRow> {
    let row = trusted.row;
    let shard = usize::try_from(row.shard)
        .ok()
        .and_then(|shard| kept.get(shard));
    if let Some(Some(shard)) = shard {
        return Ok(IndexRow {
            shard: *shard,
            ..row
        });
    }
    let place = copier.push(trusted.compression, &[record], trusted.payload_len)?;
    Ok(IndexRow {
        shard: first_new.saturating_add(place.shard),
        offset: place.offset,
        byte_len: row.byte_len,
    })
}

/// Metadata of consecutive ids.
struct Block<'a> {
    schema: &'a Schema,
    columns: Vec<Column>,
    len: usize,
}

impl<'a> Block<'a> {
    fn new(schema: &'a Schema) -> Self {
        let columns = schema.columns().iter();
        Self {
            columns: columns.map(|spec| Column::new(Some(spec.kind))).collect(),
            schema,
            len: 0,
        }
    }

    /// Appends the only row of `rows`, or a blank one.
    fn push(&mut self, rows: Option<&Rows>) -> Result<()> {
        let width = self.columns.len();
        let values: Vec<Value<'_>> = match rows {
            Some(rows) => rows.row(0, width).collect(),
            None => self.schema.columns().iter().map(blank).collect(),
        };
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value).map_err(|(_, found)| {
                CacheError::internal(format!("metadata that fitted the schema holds {found}"))
            })?;
        }
        self.len += 1;
        Ok(())
    }
}
