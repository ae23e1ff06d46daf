//! What a training job holds: caches, active rows, their weights, and the order an epoch delivers them in.

mod open;
mod order;
mod rows;
mod samples_metadata;
mod weights;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use order::OrderOptions;
pub use rows::Rows;
pub use weights::Weights;

use self::order::Orders;
use crate::error::{CacheError, Result};
use crate::format::schema::Schema;
use crate::reader::{Chunk, Loader, Placement, ReaderOptions, SampleReader};
use crate::store::cache::Cache;
use crate::store::validate::validate;
use crate::sync::{Mutex, lock};
use crate::types::{Io, Verify};

/// Options of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct DatasetOptions {
    /// How epochs are drawn.
    pub order: OrderOptions,
    /// Most samples in flight.
    pub prefetch_size: usize,
    /// Reader threads of an iterator.
    pub num_workers: usize,
    /// What is compared with its checksum while reading.
    pub verify: Verify,
    /// How files are read.
    pub io: Io,
    /// Whether opening hashes every file and compares every record with the metadata table.
    pub validate_cache: bool,
}

/// Open caches and the state of their sampling. Shared by threads; an iterator keeps the weights it started with.
#[derive(Debug)]
pub struct Dataset {
    caches: Arc<[Arc<Cache>]>,
    schema: Schema,
    rows: Arc<Rows>,
    reader: ReaderOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    weights: Weights,
    orders: Orders,
    next_epoch: u32,
}

impl Dataset {
    /// Opens the caches at `paths` as one dataset. Reads manifests; payloads, metadata and index rows only if the options
    /// ask for validation.
    ///
    /// # Errors
    /// [`CacheError::Option`] without a path or for an option outside its range, the errors of [`Cache::open`],
    /// [`CacheError::DuplicateCache`], [`CacheError::SchemaMismatch`], and those of [`validate`] if asked for.
    pub fn open(paths: &[PathBuf], options: DatasetOptions) -> Result<Self> {
        if paths.is_empty() {
            return Err(CacheError::option("paths", "at least one cache", "none"));
        }
        let (caches, io) = open::open_caches(paths, options.io)?;
        let reader = ReaderOptions {
            prefetch_size: options.prefetch_size,
            num_workers: options.num_workers,
            verify: options.verify,
            io,
        };
        reader.check()?;
        let schema = open::common_schema(&caches)?;
        let rows = Arc::new(Rows::new(caches.iter().map(|cache| cache.len()))?);
        if options.validate_cache {
            for cache in caches.iter() {
                validate(cache)?;
            }
        }
        let state = State {
            weights: Weights::Equal,
            orders: Orders::new(options.order),
            next_epoch: 0,
        };
        Ok(Self {
            caches,
            schema,
            rows,
            reader,
            state: Mutex::new(state),
        })
    }

    /// Number of active rows.
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Metadata columns of every sample.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The epoch that the next iterator will deliver.
    pub fn next_epoch(&self) -> u32 {
        lock(&self.state).next_epoch
    }

    /// Chooses the epoch that the next iterator delivers.
    pub fn set_epoch(&self, epoch: u32) {
        lock(&self.state).next_epoch = epoch;
    }

    /// Starts an iterator over the next epoch, with the weights of this moment.
    ///
    /// # Errors
    /// [`CacheError::Limit`] after the last epoch number, or if the rows are too many to be weighted.
    pub fn iterate(&self) -> Result<SampleReader> {
        let mut state = lock(&self.state);
        let epoch = state.next_epoch;
        let State {
            weights, orders, ..
        } = &mut *state;
        let plan = orders.plan(&self.rows, weights, epoch)?;
        state.next_epoch = epoch.checked_add(1).ok_or_else(|| CacheError::Limit {
            what: "epoch".to_owned(),
            found: u64::from(epoch) + 1,
            limit: u64::from(u32::MAX),
        })?;
        drop(state);
        SampleReader::start(plan, &self.caches, self.reader)
    }

    /// Reads the sample of one active row in the calling thread.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last row; as [`Loader::load`] for damage.
    pub fn sample(&self, row: u64) -> Result<Chunk> {
        let sample = self.rows.sample(row)?;
        let mut chunk = Chunk::default();
        Loader::new(
            Arc::clone(&self.caches),
            self.reader.io,
            self.reader.verify,
            Placement::InFile,
        )
        .load(sample, &mut chunk)?;
        Ok(chunk)
    }

    /// The samples metadata table with the weights of this moment.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a metadata file that differs from its manifest.
    pub fn samples_metadata(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let weights = lock(&self.state).weights.clone();
        let batches = samples_metadata::table(&self.caches, &self.schema, &self.rows, &weights)?;
        Ok((samples_metadata::table_schema(&self.schema), batches))
    }

    /// Replaces all weights; on an error nothing changes. Iterators already running keep theirs.
    ///
    /// # Errors
    /// As [`Weights::from_batches`].
    pub fn set_samples_metadata(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<()> {
        let weights = Weights::from_batches(&self.rows, batches)?;
        let mut state = lock(&self.state);
        state.weights = weights;
        state.orders.forget();
        Ok(())
    }
}
