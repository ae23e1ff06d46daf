//! One cache or one generation being written: samples are pushed, chunks submitted, and nothing is visible before it is
//! finished.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::append::{self, AppendRequest, Begun};
use super::before::Before;
use super::block::Block;
use super::chunk::{Chunk, Row, check_payload_len};
use super::layout::{Layout, Learned};
use super::manifest::Written;
use super::options::WriterOptions;
use super::pipeline::Pipeline;
use super::profiler::{Profile, Stage};
use super::training::Training;
use crate::error::{CacheError, Result};
use crate::format::columns::Value;
use crate::format::compression::Recipe;
use crate::format::manifest::Manifest;
use crate::format::names::{MANIFEST, check_source_name};
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;
use crate::store::change::Change;
use crate::store::lock::CacheLock;
use crate::store::publish::Staging;
use crate::store::vfs::Vfs;

/// What to write, and where.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Folder of the caches.
    pub base: &'a Path,
    /// Name of the source and of its cache.
    pub name: &'a str,
    /// Checked options.
    pub options: WriterOptions,
    /// Schema the source declares: fixes names, types and nullability.
    pub schema: Option<Schema>,
    /// Payload fields the source declares.
    pub payload: Option<PayloadSchema>,
    /// Version the source declares.
    pub source_version: Option<String>,
    /// The right to write this cache.
    pub lock: CacheLock,
    /// Where counters go.
    pub profile: Arc<Profile>,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct WriteSummary {
    /// The cache directory.
    pub path: PathBuf,
    /// The manifest of what it holds now.
    pub manifest: Manifest,
    /// The generation before this one; none of a new cache. The same as this one if nothing was appended.
    pub previous: Option<u64>,
    /// Samples that were added.
    pub added: u64,
    /// Bytes of the files that were written, but for the manifest.
    pub bytes_written: u64,
}

/// What the samples become.
enum Target {
    /// A cache, of a source with this name and version.
    Cache(String, Option<String>),
    /// The next generation of one.
    Generation(Box<Change>),
}

/// What is known about payloads before the first sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadOrigin {
    /// Nothing, or what the first sample gave since.
    FirstSample,
    /// The fields that the source declares.
    Source,
    /// What the cache holds that the samples are appended to.
    Cache,
}

/// Takes the samples of one source. Dropped before [`CacheWriter::finish`], it leaves nothing behind.
///
/// After any error the writer is of no more use: drop it.
pub struct CacheWriter {
    target: Target,
    options: WriterOptions,
    profile: Arc<Profile>,
    payload: Option<PayloadSchema>,
    payload_origin: PayloadOrigin,
    layout: Option<(Arc<Layout>, Learned)>,
    chunk_samples: usize,
    rows: u64,
    chunk: Option<Box<Chunk>>,
    /// The samples so far, while there are too few to train a dictionary on.
    training: Option<Training>,
    // Dropped in this order: the threads end before what they write into is removed.
    pipeline: Pipeline,
    staging: Arc<Staging>,
}

impl CacheWriter {
    /// Begins a cache.
    ///
    /// # Errors
    /// [`CacheError::SourceName`], [`CacheError::Exists`], reserved names in the declared schema, and file errors.
    pub fn create(request: WriteRequest<'_>) -> Result<Self> {
        check_source_name(request.name)?;
        let layout = request.schema.map(Layout::declared).transpose()?;
        let staging = Staging::begin(request.vfs, request.base, request.name, request.lock)?;
        let recipe = request.options.recipe()?;
        let training = request.options.dictionary_bytes().map(Training::new);
        let settings = (request.options, request.profile);
        let target = Target::Cache(request.name.to_owned(), request.source_version);
        let mut writer = Self::start(
            target,
            staging,
            settings,
            training,
            recipe,
            Before::nothing(),
        )?;
        writer.layout = layout.map(with_learned);
        if request.payload.is_some() {
            writer.payload_origin = PayloadOrigin::Source;
        }
        writer.payload = request.payload;
        Ok(writer)
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
        let Begun {
            change,
            staging,
            layout,
            payload,
            recipe,
            before,
        } = append::begin(&request)?;
        let settings = (request.options, request.profile);
        let target = Target::Generation(Box::new(change));
        let mut writer = Self::start(target, staging, settings, None, Some(recipe), before)?;
        writer.layout = Some(with_learned(layout));
        writer.payload = payload;
        writer.payload_origin = PayloadOrigin::Cache;
        Ok(writer)
    }

    fn start(
        target: Target,
        staging: Staging,
        (options, profile): (WriterOptions, Arc<Profile>),
        training: Option<Training>,
        recipe: Option<Recipe>,
        before: Before,
    ) -> Result<Self> {
        let staging = Arc::new(staging);
        let mut pipeline = Pipeline::start(&staging, &options, recipe, before, &profile)?;
        let chunk = match training {
            Some(_) => Box::default(),
            None => pipeline.empty_chunk(&mut || Ok(()))?,
        };
        Ok(Self {
            target,
            options,
            profile,
            payload: None,
            payload_origin: PayloadOrigin::FirstSample,
            layout: None,
            chunk_samples: options.chunks().1,
            rows: 0,
            chunk: Some(chunk),
            training,
            pipeline,
            staging,
        })
    }

    /// Samples taken so far, which is also the row of the next one.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Column names in ascending order, once they are declared or taken from the first sample.
    pub fn columns(&self) -> Option<&[String]> {
        self.layout
            .as_ref()
            .map(|(layout, _)| layout.names.as_slice())
    }

    /// Sets the columns from the keys of the first sample, in any order.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for a reserved or repeated name, or too many.
    pub fn set_columns(&mut self, names: Vec<String>) -> Result<()> {
        if self.layout.is_some() {
            return Err(CacheError::internal(
                "the columns of a source were set twice",
            ));
        }
        self.layout = Some(with_learned(Layout::inferred(names)?));
        Ok(())
    }

    /// Fields of the payloads, once they are declared or taken from the first sample; none for plain bytes.
    pub fn payload(&self) -> Option<&PayloadSchema> {
        self.payload.as_ref()
    }

    /// Who says what the payloads are.
    pub fn payload_origin(&self) -> PayloadOrigin {
        self.payload_origin
    }

    /// Sets the payload fields as the first sample shows them. Every payload pushed must then be laid out as
    /// [`crate::format::payload`] says.
    ///
    /// # Errors
    /// [`CacheError::Sample`] if the cache that is appended to holds plain bytes. A defect of the caller: fields that are
    /// set already, or after the first sample.
    pub fn set_payload(&mut self, schema: PayloadSchema) -> Result<()> {
        if self.payload.is_none() && self.payload_origin == PayloadOrigin::Cache {
            let names = schema.fields().iter().map(|field| field.name.as_str());
            let names: Vec<&str> = names.collect();
            let fault = format!(
                "payload fields `{}` where the cache that is appended to holds plain bytes",
                names.join("`, `")
            );
            let row = self.rows;
            return Err(CacheError::Sample { row, fault });
        }
        if self.payload.is_some() || self.rows > 0 {
            return Err(CacheError::internal(
                "the payload fields of a source were set twice or too late",
            ));
        }
        self.payload = Some(schema);
        Ok(())
    }

    /// The error for a next sample with other keys than the columns: names one missing or unexpected key.
    pub fn key_fault(&self, found: &[&str]) -> CacheError {
        match &self.layout {
            Some((layout, _)) => layout.key_fault(self.rows, found),
            None => CacheError::internal("keys were compared before there were columns"),
        }
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
        let (Some((layout, learned)), Some(chunk)) = (&mut self.layout, &mut self.chunk) else {
            let what = "a sample was pushed without columns or into a full chunk";
            return Err(E::from(CacheError::internal(what)));
        };
        let before = chunk.payloads.byte_len();
        let mut row = chunk.push_with(append, layout, learned)?;
        fill(&mut row)?;
        let text_bytes = row.finish()?;
        self.rows += 1;
        let is_enough = self.training.as_mut().is_some_and(|training| {
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
        if self.layout.is_none() {
            self.set_columns(block.names().to_vec())?;
        }
        let rows = self.rows;
        let (Some((layout, learned)), Some(chunk)) = (&mut self.layout, &mut self.chunk) else {
            return Err(CacheError::internal("a block was pushed into a full chunk"));
        };
        if chunk.len() > 0 {
            return Err(CacheError::internal("a block was pushed behind samples"));
        }
        if layout.names != block.names() {
            let found: Vec<&str> = block.names().iter().map(String::as_str).collect();
            return Err(layout.key_fault(rows, &found));
        }
        let end = chunk.push_block(block, from, layout, learned, self.training.as_mut())?;
        self.rows = rows.saturating_add((end - from) as u64);
        Ok(end)
    }

    /// Takes a sample with named values in any order; the first sample sets the columns. Otherwise as
    /// [`CacheWriter::push`].
    pub fn push_named(&mut self, payload: &[u8], values: &[(&str, Value<'_>)]) -> Result<bool> {
        if self.layout.is_none() {
            self.set_columns(values.iter().map(|(name, _)| (*name).to_owned()).collect())?;
        }
        let names = self.layout.as_ref().map(|(layout, _)| Arc::clone(layout));
        let names = names.as_ref().map_or(&[][..], |layout| &layout.names);
        let mut sorted = Vec::with_capacity(names.len());
        for name in names {
            let value = values.iter().find(|(key, _)| key == name);
            sorted.extend(value.map(|(_, value)| *value));
        }
        if sorted.len() != values.len() || sorted.len() != names.len() {
            let found: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            return Err(self.key_fault(&found));
        }
        self.push(payload, |row| {
            sorted.into_iter().try_for_each(|v| row.set(v))
        })
    }

    /// Sends the full chunk on and waits for an empty one, calling `interrupt` at least every 50 ms while waiting.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread of this write.
    pub fn submit(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.send_on(interrupt)?;
        let mut chunk = match self.training {
            Some(_) => Box::default(),
            None => self.pipeline.empty_chunk(interrupt)?,
        };
        chunk.first_row = self.rows;
        self.chunk = Some(chunk);
        Ok(())
    }

    /// Sends the chunk on, or holds it back while there are too few samples to train a dictionary on.
    fn send_on(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let chunk = self.chunk.take().filter(|chunk| chunk.len() > 0);
        let Some(training) = &mut self.training else {
            return chunk.map_or(Ok(()), |chunk| self.pipeline.send(chunk));
        };
        chunk.into_iter().for_each(|chunk| training.hold(*chunk));
        if training.is_enough() {
            return self.end_training(interrupt);
        }
        Ok(())
    }

    /// Has the dictionary trained on the samples so far, if that is still to be done, and sends them on.
    fn end_training(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let Some(training) = self.training.take() else {
            return Ok(());
        };
        self.pipeline
            .train(|done| training.lesson(done), interrupt)?;
        for chunk in training.into_chunks() {
            // Chunks held back come in place of the empty ones, so that never more are on their way.
            drop(self.pipeline.empty_chunk(interrupt)?);
            self.pipeline.send(Box::new(chunk))?;
        }
        Ok(())
    }

    /// Waits until all samples are durable and publishes the cache, or its next generation. Without samples there is none.
    ///
    /// `interrupt` is called at least every 50 ms while waiting, but no more once publication has begun.
    ///
    /// # Errors
    /// [`CacheError::EmptySource`] for a cache without samples, the error of `interrupt`, the first error of any thread, and those
    /// of [`Staging::publish`] and [`Change::publish`]. Nothing is left behind but where that says so.
    pub fn finish(mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<WriteSummary> {
        if self.rows == 0 {
            return match self.target {
                Target::Cache(name, _) => Err(CacheError::EmptySource { name }),
                Target::Generation(change) => Ok(nothing_appended(&change)),
            };
        }
        self.send_on(interrupt)?;
        self.end_training(interrupt)?;
        let (committed, digests) = self.pipeline.finish(interrupt)?;
        let staging = Arc::into_inner(self.staging)
            .ok_or_else(|| CacheError::internal("a cache is still being written after its end"))?;
        let written = Written { committed, digests };
        let (added, bytes_written) = (written.committed.rows, written.byte_len());
        let (path, manifest, previous) = match self.target {
            Target::Cache(source_name, source_version) => {
                let manifest = Manifest {
                    source_name,
                    source_version,
                    ..written.cache(&self.options, self.payload)?
                };
                let text = manifest.to_bytes()?;
                let publish = || staging.publish(MANIFEST, &text);
                let path = self.profile.time(Stage::Publish, publish)?;
                (path, manifest, None)
            }
            Target::Generation(change) => {
                let manifest = written.appended(&self.options, &change)?;
                let path = change.path().to_path_buf();
                let previous = change.cache().manifest().number();
                let publish = || change.publish(staging, &manifest);
                self.profile.time(Stage::Publish, publish)?;
                (path, manifest, Some(previous))
            }
        };
        Ok(WriteSummary {
            path,
            manifest,
            previous,
            added,
            bytes_written,
        })
    }
}

fn nothing_appended(change: &Change) -> WriteSummary {
    let manifest = change.cache().manifest();
    WriteSummary {
        path: change.path().to_path_buf(),
        manifest: manifest.clone(),
        previous: Some(manifest.number()),
        added: 0,
        bytes_written: 0,
    }
}

fn with_learned(layout: Layout) -> (Arc<Layout>, Learned) {
    let learned = Learned::new(&layout);
    (Arc::new(layout), learned)
}
