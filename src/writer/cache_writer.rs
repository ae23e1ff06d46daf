//! One cache or one generation being written: samples are pushed, chunks submitted, and nothing is visible before it is
//! finished.

use std::sync::Arc;

use super::begin::{self, AppendRequest, Begun, WriteRequest};
use super::block::Block;
use super::chunk::{Chunk, Row, check_payload_len};
use super::known::{Known, PayloadOrigin};
use super::options::WriterOptions;
use super::outlet::Outlet;
use super::pipeline::Pipeline;
use super::profiler::Profile;
use super::target::{Target, WriteSummary};
use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::payload::PayloadSchema;
use crate::store::publish::Staging;

/// Takes the samples of one source. Dropped before [`CacheWriter::finish`], it leaves nothing behind.
///
/// After any error the writer is of no more use: drop it.
pub struct CacheWriter {
    target: Target,
    options: WriterOptions,
    profile: Arc<Profile>,
    known: Known,
    chunk_samples: usize,
    rows: u64,
    chunk: Option<Box<Chunk>>,
    // Dropped in this order: the threads end before what they write into is removed.
    outlet: Outlet,
    staging: Arc<Staging>,
}

impl CacheWriter {
    /// Begins a cache.
    ///
    /// # Errors
    /// [`CacheError::SourceName`], [`CacheError::Exists`], reserved names in the declared schema, and file errors.
    pub fn create(request: WriteRequest<'_>) -> Result<Self> {
        Self::start(begin::create(request)?)
    }

    /// Begins the next generation of a cache, with the samples to come behind those it has.
    ///
    /// The cache is locked until the writer is finished or dropped. What is pushed must have the metadata columns and the
    /// payload fields of the cache. Rows in errors are those of the source.
    ///
    /// # Errors
    /// [`CacheError::NotFound`] without a cache, [`CacheError::Locked`] if somebody else writes or maintains it, and those
    /// of opening it; [`CacheError::Misfit`] for a source that declares other columns or fields; [`CacheError::Option`]
    /// for a dictionary that the cache has not.
    pub fn append(request: AppendRequest<'_>) -> Result<Self> {
        Self::start(begin::append(request)?)
    }

    fn start(begun: Begun) -> Result<Self> {
        let Begun {
            target,
            staging,
            options,
            profile,
            known,
            before,
            recipe,
            training,
        } = begun;
        let staging = Arc::new(staging);
        let pipeline = Pipeline::start(&staging, &options, recipe, before, &profile)?;
        let mut outlet = Outlet::new(pipeline, training);
        let chunk = outlet.empty_chunk(&mut || Ok(()))?;
        Ok(Self {
            target,
            options,
            profile,
            known,
            chunk_samples: options.chunks().1,
            rows: 0,
            chunk: Some(chunk),
            outlet,
            staging,
        })
    }

    /// Samples taken so far, which is also the row of the next one.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Column names in ascending order, once they are declared or taken from the first sample.
    pub fn columns(&self) -> Option<&[String]> {
        self.known.names()
    }

    /// Sets the columns from the keys of the first sample, in any order.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for a reserved or repeated name, or too many.
    pub fn set_columns(&mut self, names: Vec<String>) -> Result<()> {
        self.known.set_columns(names)
    }

    /// Fields of the payloads, once they are declared or taken from the first sample; none for plain bytes.
    pub fn payload(&self) -> Option<&PayloadSchema> {
        self.known.payload.as_ref()
    }

    /// Who says what the payloads are.
    pub fn payload_origin(&self) -> PayloadOrigin {
        self.known.payload_origin
    }

    /// Sets the payload fields as the first sample shows them. Every payload pushed must then be laid out as
    /// [`crate::format::payload`] says.
    ///
    /// # Errors
    /// [`CacheError::Sample`] if the cache that is appended to holds plain bytes. A defect of the caller: fields that are
    /// set already, or after the first sample.
    pub fn set_payload(&mut self, schema: PayloadSchema) -> Result<()> {
        self.known.set_payload(schema, self.rows)
    }

    /// The error for a next sample with other keys than the columns: names one missing or unexpected key.
    pub fn key_fault(&self, found: &[&str]) -> CacheError {
        self.known.key_fault(self.rows, found)
    }

    /// Takes a sample; `fill` gives its values in column order. True if the chunk is full: then call
    /// [`CacheWriter::submit`] before the next sample.
    ///
    /// # Errors
    /// What `fill` returns; [`CacheError::Sample`] for a payload larger than
    /// [`PAYLOAD_BYTES_MAX`](crate::limits::PAYLOAD_BYTES_MAX).
    pub fn push<E: From<CacheError>>(
        &mut self,
        payload: &[u8],
        fill: impl FnOnce(&mut Row<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        check_payload_len(self.rows, payload.len())?;
        let copy = |out: &mut Vec<u8>| {
            out.extend_from_slice(payload);
            Ok(())
        };
        self.push_with(copy, fill)
    }

    /// Takes a sample whose payload `append` puts at the end of a buffer. Otherwise as [`CacheWriter::push`].
    ///
    /// # Errors
    /// What `append` returns, and as [`CacheWriter::push`].
    pub fn push_with<E: From<CacheError>>(
        &mut self,
        append: impl FnOnce(&mut Vec<u8>) -> std::result::Result<(), E>,
        fill: impl FnOnce(&mut Row<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        let (Some((layout, learned)), Some(chunk)) = (&mut self.known.columns, &mut self.chunk)
        else {
            let what = "a sample was pushed without columns or into a full chunk";
            return Err(E::from(CacheError::internal(what)));
        };
        let before = chunk.payloads.byte_len();
        let mut row = chunk.push_with(append, layout, learned)?;
        fill(&mut row)?;
        let text_bytes = row.finish()?;
        self.rows += 1;
        let is_enough = self.outlet.training.as_mut().is_some_and(|training| {
            training.count(chunk.payloads.byte_len().saturating_sub(before), text_bytes);
            training.is_enough()
        });
        Ok(chunk.len() >= self.chunk_samples || chunk.is_heavy() || is_enough)
    }

    /// Takes as many samples of a block, from number `from` on, as belong in one chunk, and returns where they end. Then
    /// call [`CacheWriter::submit`]. A first block sets the columns.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for other columns, or a payload or metadata that is too large;
    /// [`CacheError::MetadataValue`].
    pub(super) fn push_block(&mut self, block: &Block, from: usize) -> Result<usize> {
        if self.known.columns.is_none() {
            self.set_columns(block.names().to_vec())?;
        }
        let rows = self.rows;
        let (Some((layout, learned)), Some(chunk)) = (&mut self.known.columns, &mut self.chunk)
        else {
            return Err(CacheError::internal("a block was pushed into a full chunk"));
        };
        if chunk.len() > 0 {
            return Err(CacheError::internal("a block was pushed behind samples"));
        }
        if layout.names != block.names() {
            let found: Vec<&str> = block.names().iter().map(String::as_str).collect();
            return Err(layout.key_fault(rows, &found));
        }
        let end = chunk.push_block(block, from, layout, learned, self.outlet.training.as_mut())?;
        self.rows = rows.saturating_add((end - from) as u64);
        Ok(end)
    }

    /// Takes a sample with named values in any order; the first sample sets the columns. Otherwise as
    /// [`CacheWriter::push`].
    pub fn push_named(&mut self, payload: &[u8], values: &[(&str, Value<'_>)]) -> Result<bool> {
        let sorted = self.known.in_order(values, self.rows)?;
        self.push(payload, |row| {
            sorted.into_iter().try_for_each(|v| row.set(v))
        })
    }

    /// Sends the full chunk on and waits for an empty one, calling `interrupt` at least every 50 ms while waiting.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread of this write.
    pub fn submit(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.outlet.send(self.chunk.take(), interrupt)?;
        let mut chunk = self.outlet.empty_chunk(interrupt)?;
        chunk.first_row = self.rows;
        self.chunk = Some(chunk);
        Ok(())
    }

    /// Waits until all samples are durable and publishes the cache, or its next generation. Without samples there is none.
    ///
    /// `interrupt` is called at least every 50 ms while waiting, but no more once publication has begun.
    ///
    /// # Errors
    /// [`CacheError::EmptySource`] for a cache without samples, the error of `interrupt`, the first error of any thread, and
    /// those of [`Staging::publish`] and [`Change::publish`](crate::store::change::Change::publish). Nothing is left behind
    /// but where that says so.
    pub fn finish(mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<WriteSummary> {
        if self.rows == 0 {
            return self.target.without_samples();
        }
        self.outlet.send(self.chunk, interrupt)?;
        let written = self.outlet.finish(interrupt)?;
        let staging = Arc::into_inner(self.staging)
            .ok_or_else(|| CacheError::internal("a cache is still being written after its end"))?;
        let payload = self.known.payload;
        self.target
            .publish(staging, written, payload, &self.options, &self.profile)
    }
}
