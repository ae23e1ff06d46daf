//! Records in sample order into shards, index, checksums and metadata table. What comes out depends on the samples and
//! the options alone, never on threads.

use std::sync::Arc;

use super::before::{Before, Carried};
use super::chunk::Chunk;
use super::table::Table;
use crate::error::{CacheError, Result};
use crate::format::index::IndexRow;
use crate::format::names::{CHECKSUMS, DICTIONARY, INDEX, SHARDS, shard};
use crate::format::schema::Schema;
use crate::limits::{CACHE_SAMPLES_MAX, WRITE_BLOCK_BYTES};
use crate::store::outflow::output::{OutFile, Outputs, Tag};

/// Lengths of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardLengths {
    /// Sum of its payload lengths, in bytes.
    pub payload_bytes: u64,
    /// Length of the file, in bytes.
    pub byte_len: u64,
}

/// What a manifest says about samples that have all been committed.
#[derive(Debug)]
pub(super) struct Committed {
    pub rows: u64,
    pub schema: Schema,
    pub shards: Vec<ShardLengths>,
    /// Whether a float was NaN or infinite.
    pub non_finite: bool,
}

/// Takes encoded chunks in order.
pub(super) struct Committer {
    outputs: Arc<Outputs>,
    max_shard_bytes: u64,
    open: Option<OutFile>,
    shards: Vec<ShardLengths>,
    index: OutFile,
    /// Absent from caches of published releases, whatever is added to them.
    checksums: Option<OutFile>,
    table: Option<Table>,
    rows: u64,
    /// Sample ids and shards before the first.
    ids_before: u64,
    shards_before: u64,
    /// Rows of these that are still to be copied.
    index_before: Option<Carried>,
    checksums_before: Option<Carried>,
    non_finite: bool,
}

impl Committer {
    /// Starts the files of a cache.
    pub fn new(outputs: Arc<Outputs>, max_shard_bytes: u64, before: Before) -> Result<Self> {
        outputs.staging.create_dir(SHARDS)?;
        let checksums = || outputs.open(Tag::Checksums, CHECKSUMS);
        Ok(Self {
            index: outputs.open(Tag::Index, INDEX)?,
            checksums: before.has_checksums.then(checksums).transpose()?,
            ids_before: before.ids,
            shards_before: before.shards,
            index_before: before.index,
            checksums_before: before.checksums,
            outputs,
            max_shard_bytes,
            open: None,
            shards: Vec::new(),
            table: None,
            rows: 0,
            non_finite: false,
        })
    }

    /// Whether [`Committer::commit`] of this encoded chunk is certain not to wait for the disk: it opens and closes no
    /// file, and at most one block of each of shard, index and checksums gets full, for which there is room.
    pub fn is_quick(&self, chunk: &Chunk) -> bool {
        let bytes = chunk.heads.byte_len().saturating_add(chunk.stored_bytes());
        let stays =
            |file: &OutFile| file.byte_len().saturating_add(bytes as u64) <= self.max_shard_bytes;
        chunk.is_light()
            && bytes < WRITE_BLOCK_BYTES
            && self.open.as_ref().is_some_and(stays)
            && self
                .table
                .as_ref()
                .is_some_and(|table| table.is_quick(chunk))
            && self.outputs.have_room(3)
    }

    /// Writes the dictionary of the payloads.
    pub fn store_dictionary(&mut self, dictionary: &[u8]) -> Result<()> {
        let mut file = self.outputs.open(Tag::Dictionary, DICTIONARY)?;
        file.append(dictionary)?;
        file.close()
    }

    /// Commits the next chunk.
    pub fn commit(&mut self, chunk: &Chunk) -> Result<()> {
        if chunk.first_row != self.rows {
            return Err(CacheError::internal("a chunk out of order"));
        }
        self.carry()?;
        let shards_before = self.shards_before;
        for ((head, stored, checksum), payload_len) in chunk.records().zip(chunk.payload_lens()) {
            let byte_len = (head.len() as u64).saturating_add(stored.len() as u64);
            let (file, lengths, id) = self.shard_for(byte_len)?;
            let row = IndexRow {
                shard: shards_before.saturating_add(id),
                offset: lengths.byte_len,
                byte_len,
            };
            file.append(head)?;
            stored.parts(|part| file.append(part))?;
            lengths.byte_len = file.byte_len();
            lengths.payload_bytes = lengths.payload_bytes.saturating_add(payload_len as u64);
            self.index.append(&row.to_bytes())?;
            if let Some(checksums) = &mut self.checksums {
                checksums.append(&checksum.0.to_le_bytes())?;
            }
            self.rows += 1;
        }
        let ids = self.ids_before.saturating_add(self.rows);
        if ids > CACHE_SAMPLES_MAX {
            return Err(CacheError::limit(
                "the number of samples of a cache",
                ids,
                CACHE_SAMPLES_MAX,
            ));
        }
        self.non_finite |= chunk.columns.iter().any(|column| column.has_non_finite());
        let table = match (&mut self.table, &chunk.layout) {
            (Some(table), _) => table,
            (none, Some(layout)) => none.insert(Table::new(Arc::clone(layout))),
            (None, None) => return Err(CacheError::internal("a chunk without a layout")),
        };
        table.append(chunk, &self.outputs)
    }

    /// Copies what is to stand before the first row, with the first chunk: by then the files have their threads.
    fn carry(&mut self) -> Result<()> {
        if let Some(before) = self.index_before.take() {
            before.copy_to(&mut self.index)?;
        }
        match (self.checksums_before.take(), &mut self.checksums) {
            (Some(before), Some(checksums)) => before.copy_to(checksums),
            _ => Ok(()),
        }
    }

    /// Ends all files.
    pub fn complete(self) -> Result<Committed> {
        if let Some(shard) = self.open {
            shard.close()?;
        }
        self.index.close()?;
        if let Some(checksums) = self.checksums {
            checksums.close()?;
        }
        let table = self
            .table
            .ok_or_else(|| CacheError::internal("a cache without samples"))?;
        Ok(Committed {
            rows: self.rows,
            schema: table.finish(&self.outputs)?,
            shards: self.shards,
            non_finite: self.non_finite,
        })
    }

    /// The shard that takes a record of this length: the open one, unless that holds something and would get too long.
    fn shard_for(&mut self, byte_len: u64) -> Result<(&mut OutFile, &mut ShardLengths, u64)> {
        let fits = |file: &OutFile| {
            file.byte_len() == 0 || file.byte_len().saturating_add(byte_len) <= self.max_shard_bytes
        };
        if !self.open.as_ref().is_some_and(fits) {
            if let Some(full) = self.open.take() {
                full.close()?;
            }
            let id = self.shards.len() as u64;
            let name = format!("{SHARDS}/{}", shard(id));
            self.open = Some(self.outputs.open(Tag::Shard(id), &name)?);
            self.shards.push(ShardLengths::default());
        }
        let id = (self.shards.len() as u64).saturating_sub(1);
        match (&mut self.open, self.shards.last_mut()) {
            (Some(file), Some(lengths)) => Ok((file, lengths, id)),
            _ => Err(CacheError::internal("no open shard")),
        }
    }
}
