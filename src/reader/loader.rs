//! Reads one record: where it lies, its bytes, their checksum, its metadata and its payload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::chunk::Chunk;
use super::corrupt::{Mended, Mending};
use super::files::{ShardFiles, TableFiles};
use super::laps::{Laps, Spent};
use super::pipeline::{Load, Run};
use super::profile::Stage;
use crate::error::{CacheError, Result};
use crate::format::compression::{Decoder, payload_len, plain};
use crate::format::envelope;
use crate::format::payload::FieldPlace;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::store::cache::Cache;
use crate::types::{Io, SampleRef, Verify};

/// Plain payloads up to this length are copied beside each other, in bytes; the consumer reads them faster there than
/// all over the file.
const COPY_MAX: usize = 4096;
/// Of so many samples one is timed.
const TIMED_EVERY: u32 = 64;

/// Loads samples of open caches into chunks. Each thread has its own.
#[derive(Debug)]
pub struct Loader {
    caches: Arc<[Arc<Cache>]>,
    verify: Verify,
    io: Io,
    tables: TableFiles,
    shards: ShardFiles,
    scratch: Vec<u8>,
    extents: Vec<u64>,
    places: Vec<FieldPlace>,
    decoder: Decoder,
    laps: Laps,
    sampled: Sampled,
    /// What is done about damaged samples, if they are not errors.
    mending: Option<Mending>,
}

impl Loader {
    /// A loader for `caches` that verifies as `verify` says. `io` is [`Io::Pread`] if any of them is read that way, and
    /// limits the files held open.
    pub fn new(caches: Arc<[Arc<Cache>]>, io: Io, verify: Verify) -> Self {
        Self {
            caches,
            verify,
            tables: TableFiles::new(io, 1),
            shards: ShardFiles::new(io, 1),
            io,
            scratch: Vec::new(),
            extents: Vec::new(),
            places: Vec::new(),
            decoder: Decoder::default(),
            laps: Laps::default(),
            sampled: Sampled::default(),
            mending: None,
        }
    }

    /// The same loader, which does about damaged samples what `mending` says.
    pub(super) fn mending(self, mending: Mending) -> Self {
        Self {
            mending: Some(mending),
            ..self
        }
    }

    /// The same loader, one of `readers` that run at a time and share the descriptors of the process.
    pub fn among(self, readers: usize) -> Self {
        Self {
            tables: TableFiles::new(self.io, readers),
            shards: ShardFiles::new(self.io, readers),
            ..self
        }
    }

    /// Appends one sample to `chunk`; on an error the chunk holds what it held before.
    ///
    /// # Errors
    /// [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] naming file, sample and byte for whatever cannot be
    /// trusted; [`CacheError::Io`] if reading fails; [`CacheError::Memory`] for a payload that is too large for it.
    pub fn append(&mut self, sample: SampleRef, chunk: &mut Chunk) -> Result<()> {
        self.sampled.begin();
        let position = sample.cache as usize;
        let cache = self.caches.get(position).ok_or(CacheError::OutOfRange {
            index: i128::from(sample.cache),
            len: self.caches.len() as u64,
        })?;
        let tables = self.tables.get(sample.cache, cache)?;
        let row = cache.index_row(&tables.index, sample.sample)?;
        let shard = self.shards.get(sample.cache, cache, row.shard)?;
        let record = shard.view(row.offset, row.byte_len, &mut self.scratch)?;
        self.sampled.lap(Stage::Locate);
        let files = (&*tables.index, tables.checksums.as_deref(), &**shard);
        cache.verify_record(files, row, sample.sample, record, self.verify)?;
        self.sampled.lap(Stage::Verify);

        let fault = |found: String| CacheError::DamagedRecord {
            path: shard.path().to_path_buf(),
            sample_id: sample.sample,
            offset: row.offset,
            subject: "record".to_owned(),
            expected: "metadata and payload as the manifest describes them".to_owned(),
            found,
        };
        let (json, stored) = envelope::split(record).map_err(fault)?;
        let algorithm = cache.algorithm(row.shard);
        let schema = &cache.manifest().metadata_schema;
        chunk.set_width(schema.columns().len());
        let before = chunk.before();
        let held = match plain(algorithm, stored) {
            Some(payload) if payload.len() > COPY_MAX && shard.memory().is_some() => {
                let end = usize::try_from(row.offset + row.byte_len)
                    .map_err(|_| CacheError::internal("a mapped record beyond memory"))?;
                Ok(chunk.map(shard, end - payload.len(), end))
            }
            Some(payload) => Ok(chunk.hold_copy(payload)),
            None => {
                let len = payload_len(algorithm, stored).map_err(fault)?;
                if len as u64 > PAYLOAD_BYTES_MAX {
                    return Err(fault(format!(
                        "a payload of {len} bytes, more than {PAYLOAD_BYTES_MAX}"
                    )));
                }
                let (decoder, dictionary) = (&mut self.decoder, cache.dictionary()?);
                chunk.reserve(len)?;
                chunk.hold(|out| decoder.append(algorithm, dictionary, stored, out))
            }
        };
        self.sampled.lap(match plain(algorithm, stored) {
            Some(_) => Stage::Copy,
            None => Stage::Decode,
        });
        let completed = held.and_then(|payload| {
            if let Some(fields) = &cache.manifest().payload {
                let bytes = chunk.bytes_of(payload).unwrap_or_default();
                fields.split(bytes, &mut self.extents, &mut self.places)?;
            }
            chunk.rows().push(schema, json)?;
            Ok(payload)
        });
        self.sampled.lap(Stage::Decode);
        match completed {
            Ok(payload) => {
                chunk.push(sample, payload);
                Ok(())
            }
            Err(found) => {
                chunk.give_up(before);
                Err(fault(found))
            }
        }
    }
}

impl Loader {
    /// Puts something in the place of `sample`, which is number `place` of `run` and could not be read.
    #[cold]
    fn mend(
        &mut self,
        run: &Run,
        place: usize,
        sample: SampleRef,
        error: CacheError,
        chunk: &mut Chunk,
    ) -> Result<()> {
        let Some(mending) = self.mending.take() else {
            return Err(error);
        };
        let read = |other| self.append(other, chunk);
        let mended = mending.mend(run, place, sample, error, read);
        self.mending = Some(mending);
        if let Mended::LeftOut = mended? {
            chunk.leave_out();
        }
        Ok(())
    }
}

impl Load for Loader {
    type Loaded = Chunk;

    fn load(
        &mut self,
        run: &Run,
        samples: Vec<SampleRef>,
        chunk: &mut Chunk,
        stop: &AtomicBool,
    ) -> Result<Vec<SampleRef>> {
        for (place, sample) in samples.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(CacheError::Interrupted);
            }
            if let Err(error) = self.append(*sample, chunk) {
                self.mend(run, place, *sample, error, chunk)?;
            }
        }
        let time = self.laps.read();
        self.laps.add_by(time, &self.sampled.spent);
        Ok(samples)
    }

    fn laps(&mut self) -> &mut Laps {
        &mut self.laps
    }
}

/// Times of some samples, from which those of all are told.
#[derive(Debug, Default)]
struct Sampled {
    /// Samples before the next one that is timed.
    left: u32,
    /// When the last stage of a sample that is timed ended.
    last: Option<Instant>,
    spent: Spent,
}

impl Sampled {
    #[inline]
    fn begin(&mut self) {
        match self.left.checked_sub(1) {
            Some(left) => (self.left, self.last) = (left, None),
            None => (self.left, self.last) = (TIMED_EVERY - 1, Some(Instant::now())),
        }
    }

    #[inline]
    fn lap(&mut self, stage: Stage) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            self.spent.add(stage, now.saturating_duration_since(*last));
            *last = now;
        }
    }
}
