//! The open caches of a dataset and of all its views.

use std::path::PathBuf;
use std::sync::Arc;

use super::fingerprint::{Fingerprint, Fingerprinter};
use super::open::{common_payload, common_schema, open_caches};
use super::rows::PhysicalRows;
use crate::error::{CacheError, Result};
use crate::format::names::{MANIFEST, RESERVED_COLUMNS};
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;
use crate::maintain::validate;
use crate::reader::{CorruptSamples, Gatherer};
use crate::store::cache::Cache;
use crate::store::generations::Wanted;
use crate::store::pool::FilePool;
use crate::store::populate::Populator;
use crate::store::slot::SlotPool;
use crate::sync::{Crew, Mutex, OnceLock, available_threads, lock};
use crate::types::{Io, SampleRef, Verify};

/// Open caches with one metadata schema.
#[derive(Debug)]
pub struct Caches {
    list: Arc<[Arc<Cache>]>,
    io: Io,
    schema: Schema,
    rows: PhysicalRows,
    has_deleted: bool,
    payload: Option<Arc<PayloadSchema>>,
    contents: OnceLock<Fingerprint>,
    slots: Arc<SlotPool>,
    /// Gatherers that nobody uses at the moment, with the files they have open.
    gatherers: Mutex<Vec<Gatherer>>,
    crew: OnceLock<Crew>,
    populator: OnceLock<Arc<Populator>>,
    corrupt: Arc<CorruptSamples>,
}

impl Caches {
    /// Opens the caches at `paths`; validates each in full if asked to.
    ///
    /// # Errors
    /// [`CacheError::Option`] without a path, those of [`Cache::open`], [`CacheError::DuplicateCache`],
    /// [`CacheError::SchemaMismatch`], and those of [`validate`].
    pub fn open(paths: &[PathBuf], io: Io, validate_cache: bool) -> Result<Self> {
        let newest = paths.iter().map(|path| (path.clone(), Wanted::Newest));
        let newest: Vec<_> = newest.collect();
        Self::open_stoppable(&newest, io, validate_cache, &mut || Ok(()))
    }

    /// As [`Caches::open`], the wanted generation of each; while it validates, `interrupt` is called about every 50 ms, and its error is returned.
    pub fn open_stoppable(
        caches: &[(PathBuf, Wanted)],
        io: Io,
        validate_cache: bool,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        if caches.is_empty() {
            return Err(CacheError::option("paths", "at least one cache", "none"));
        }
        let list = open_caches(caches, io)?;
        if validate_cache {
            list.iter()
                .try_for_each(|cache| validate(cache, interrupt))?;
        }
        Self::new(list)
    }

    fn new(list: Arc<[Arc<Cache>]>) -> Result<Self> {
        let is_read = list.iter().any(|cache| cache.io() == Io::Pread);
        let io = if is_read { Io::Pread } else { Io::Mmap };
        let schema = common_schema(&list)?;
        let payload = common_payload(&list)?.map(Arc::new);
        let rows = PhysicalRows::new(list.iter().map(|cache| cache.len()))?;
        let has_deleted = list.iter().any(|cache| cache.has_deleted());
        Ok(Self {
            list,
            has_deleted,
            io,
            schema,
            rows,
            payload,
            contents: OnceLock::new(),
            slots: SlotPool::new(),
            gatherers: Mutex::default(),
            crew: OnceLock::new(),
            populator: OnceLock::new(),
            corrupt: Arc::default(),
        })
    }

    /// The same caches with locks of their own and no open file, for a forked child: a lock that another thread of the
    /// parent held at the fork is never released there. Reads nothing.
    pub fn for_child(&self) -> Result<Self> {
        let pool = Arc::new(FilePool::new(self.io));
        let list: Arc<[Arc<Cache>]> = self
            .list
            .iter()
            .map(|cache| Arc::new(cache.reopened(Arc::clone(&pool))))
            .collect();
        Self::new(list)
    }

    /// The caches in list order.
    pub fn list(&self) -> &Arc<[Arc<Cache>]> {
        &self.list
    }

    /// [`Io::Pread`] if files of any cache are read, which takes descriptors, otherwise [`Io::Mmap`]. Each cache has an
    /// engine of its own.
    pub fn io(&self) -> Io {
        self.io
    }

    /// Metadata columns of every sample.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Fields of every payload; `None` if payloads are plain bytes.
    pub fn payload(&self) -> Option<&Arc<PayloadSchema>> {
        self.payload.as_ref()
    }

    /// A gatherer over these caches, which are read ahead as a whole if that takes no more than `populate_bytes`; those put
    /// back before are used first. The arguments must always be the same.
    pub fn gatherer(&self, verify: Verify, populate_bytes: u64) -> Gatherer {
        let recycled = lock(&self.gatherers).pop();
        recycled.unwrap_or_else(|| {
            let list = || Arc::clone(&self.list);
            let populator = self
                .populator
                .get_or_init(|| Arc::new(Populator::new(list(), populate_bytes)));
            let slots = Arc::clone(&self.slots);
            Gatherer::new(list(), verify, slots, Arc::clone(populator))
        })
    }

    /// The damaged samples that were left out or replaced in this process.
    pub fn corrupt(&self) -> &Arc<CorruptSamples> {
        &self.corrupt
    }

    /// The threads that share large gathers: as many as can run at once, but no more than `most`, which must always be
    /// the same.
    pub fn crew(&self, most: usize) -> &Crew {
        self.crew
            .get_or_init(|| Crew::new(available_threads().min(most)))
    }

    /// Keeps a gatherer for later.
    pub fn put_back(&self, gatherer: Gatherer) {
        const KEPT_MAX: usize = 4;
        let mut gatherers = lock(&self.gatherers);
        if gatherers.len() < KEPT_MAX {
            gatherers.push(gatherer);
        }
    }

    /// Refuses the samples metadata table to caches with a metadata column of one of its own names, which releases
    /// before 1.0 wrote. Their samples are read as any other's.
    ///
    /// # Errors
    /// [`CacheError::Manifest`] naming the column and the first cache.
    pub fn check_table(&self) -> Result<()> {
        let columns = self.schema.columns();
        let reserved = columns
            .iter()
            .find(|column| RESERVED_COLUMNS.contains(&column.name.as_str()));
        let (Some(column), Some(cache)) = (reserved, self.list.first()) else {
            return Ok(());
        };
        Err(CacheError::manifest(
            &cache.path().join(MANIFEST),
            format!(
                "metadata column `{}` has a name that the samples metadata table uses itself; write the cache again with another name",
                column.name
            ),
        ))
    }

    /// All physical samples, numbered.
    pub fn rows(&self) -> &PhysicalRows {
        &self.rows
    }

    /// Physical sample number `row`, deleted ones not counted.
    pub fn sample(&self, row: u64) -> Result<SampleRef> {
        let placed = self.rows.sample(row)?;
        if !self.has_deleted {
            return Ok(placed);
        }
        let cache = self.list.get(placed.cache as usize);
        let live = cache.map_or(Ok(None), |cache| cache.live())?;
        Ok(live.map_or(placed, |live| SampleRef {
            cache: placed.cache,
            sample: live.id(placed.sample),
        }))
    }

    /// Whether samples were taken out of any cache: then ids and positions differ.
    pub fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// Names the bytes of all caches in list order, by the checksums in their manifests; where they lie does not
    /// matter.
    pub fn contents(&self) -> &Fingerprint {
        self.contents.get_or_init(|| {
            let mut name = Fingerprinter::new("contents");
            name.number(self.list.len() as u64);
            for cache in self.list.iter() {
                let take = &mut |bytes: &[u8]| name.bytes(bytes);
                cache.manifest().name_contents(take);
            }
            name.finish()
        })
    }
}
