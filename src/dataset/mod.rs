//! What a training job holds: caches, active rows, their weights, and the order an epoch delivers them in.

mod active;
mod caches;
mod fingerprint;
mod identity;
mod lookup;
mod open;
mod plan;
mod recipe;
mod rows;
mod samples_metadata;
mod select;
mod state;
mod steps;
mod stream;
mod table;
mod weights;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use active::ActiveRows;
pub use caches::Caches;
pub use plan::Share;
pub use recipe::OrderOptions;
pub use state::{Cursor, SavedState};
pub use steps::{BatchOptions, Step};
pub use stream::{BatchStream, Loaded, Polled, Ranks, SampleOptions, SampleStream};
pub use weights::Weights;

use self::plan::zeros;
use self::recipe::Recipe;
use crate::error::{CacheError, Result};
use crate::format::schema::Schema;
use crate::reader::{Chunk, Loader, Placement, ReaderOptions};
use crate::sampling::order::Mode;
use crate::sync::{Mutex, MutexGuard, TryLockError, lock, yield_now};
use crate::types::{Io, Verify};

/// Options of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct DatasetOptions {
    /// How epochs are drawn.
    pub order: OrderOptions,
    /// This consumer among those that share the order.
    pub ranks: Ranks,
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

impl DatasetOptions {
    /// The options of a `ReaderConfig` of which only the seed was given.
    pub fn with_seed(seed: u64) -> Self {
        Self {
            order: OrderOptions {
                mode: Mode::WithReplacement,
                seed,
                epoch_length: None,
            },
            ranks: Ranks::SINGLE,
            prefetch_size: 64,
            num_workers: 4,
            verify: Verify::First,
            io: Io::Auto,
            validate_cache: false,
        }
    }
}

/// Open caches and the state of their sampling. Shared by threads; an iterator keeps the recipe it started with.
pub struct Dataset {
    options: DatasetOptions,
    process: u32,
    state: Mutex<State>,
}

struct State {
    /// The process that `recipe` may lock things in.
    process: u32,
    recipe: Arc<Recipe>,
    /// Where the next iterator starts.
    next: Cursor,
    /// The last iterator, whose progress is the dataset's.
    latest: Option<Latest>,
}

/// An iterator that a dataset was asked for.
#[derive(Clone)]
pub enum Latest {
    /// Of samples.
    Samples(Arc<Mutex<SampleStream>>),
    /// Of batches.
    Batches(Arc<Mutex<BatchStream>>),
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Dataset {
    /// Opens the caches at `paths` as one dataset. Reads manifests; payloads, metadata and index rows only if the options
    /// ask for validation.
    ///
    /// # Errors
    /// As [`Caches::open`], and [`CacheError::Option`] for an option outside its range.
    pub fn open(paths: &[PathBuf], options: DatasetOptions) -> Result<Self> {
        Self::open_stoppable(paths, options, &mut || Ok(()))
    }

    /// As [`Dataset::open`]; while it validates, `interrupt` is called about every 50 ms, and its error is returned.
    pub fn open_stoppable(
        paths: &[PathBuf],
        options: DatasetOptions,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        steps::check_rank(options.ranks.rank, options.ranks.world_size)?;
        let caches = Caches::open_stoppable(paths, options.io, options.validate_cache, interrupt)?;
        let dataset = Self::new(
            Arc::new(caches),
            ActiveRows::All,
            Weights::Equal(1.0),
            options,
        );
        dataset.reader_options(Io::Mmap).check()?;
        dataset.epoch_len()?;
        Ok(dataset)
    }

    fn new(
        caches: Arc<Caches>,
        rows: ActiveRows,
        weights: Weights,
        options: DatasetOptions,
    ) -> Self {
        let process = std::process::id();
        let recipe = Arc::new(Recipe::new(caches, rows, weights, options.order));
        let state = State {
            process,
            recipe,
            next: Cursor::default(),
            latest: None,
        };
        Self {
            options,
            process,
            state: Mutex::new(state),
        }
    }

    /// The state, with caches that this process may use.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let process = std::process::id();
        if process == self.process {
            return Ok(lock(&self.state));
        }
        let mut state = try_lock_forked(&self.state)?;
        if state.process != process {
            let Recipe {
                caches,
                rows,
                weights,
                options,
                ..
            } = &*state.recipe;
            let recipe = Recipe::new(
                Arc::new(caches.for_child()?),
                rows.clone(),
                weights.clone(),
                *options,
            );
            // What the parent's recipe locks may stay locked for ever here, so it is left alone rather than dropped.
            std::mem::forget(std::mem::replace(&mut state.recipe, Arc::new(recipe)));
            std::mem::forget(state.latest.take());
            state.process = process;
        }
        Ok(state)
    }

    fn recipe(&self) -> Result<Arc<Recipe>> {
        Ok(Arc::clone(&self.state()?.recipe))
    }

    /// This consumer among those that share the order.
    pub fn ranks(&self) -> Ranks {
        self.options.ranks
    }

    fn reader_options(&self, io: Io) -> ReaderOptions {
        let DatasetOptions {
            prefetch_size,
            num_workers,
            verify,
            ..
        } = self.options;
        ReaderOptions {
            prefetch_size,
            num_workers,
            verify,
            io,
        }
    }

    /// Number of active rows.
    pub fn row_count(&self) -> Result<u64> {
        Ok(self.recipe()?.row_count())
    }

    /// Number of positions of an epoch, over all ranks.
    pub fn epoch_len(&self) -> Result<u64> {
        self.recipe()?.epoch_len()
    }

    /// Metadata columns of every sample.
    pub fn schema(&self) -> Result<Schema> {
        Ok(self.recipe()?.caches.schema().clone())
    }

    /// Where the next iterator starts.
    pub fn next(&self) -> Result<Cursor> {
        Ok(self.state()?.next)
    }

    /// Chooses the epoch that the next iterator delivers from its start.
    pub fn set_epoch(&self, epoch: u32) -> Result<()> {
        let mut state = self.state()?;
        state.next = Cursor { epoch, position: 0 };
        state.latest = None;
        Ok(())
    }

    /// Starts an iterator over the next epoch, or the rest of it, with the weights of this moment; the one after it gets
    /// the epoch after it.
    ///
    /// # Errors
    /// [`CacheError::Limit`] after the last epoch number, or if the rows are too many to be weighted.
    pub fn samples(&self, options: SampleOptions) -> Result<Arc<Mutex<SampleStream>>> {
        let make = |recipe: &Arc<Recipe>, start| {
            let reader = self.reader_options(recipe.caches.io());
            SampleStream::new(Arc::clone(recipe), reader, options, start)
        };
        self.begin(1, make, Latest::Samples)
    }

    /// Starts an iterator over batches from the next epoch, or the rest of it, on; the next iterator gets the epoch after
    /// the last of this one.
    ///
    /// # Errors
    /// As [`Dataset::samples`], and [`CacheError::Option`] for a batch size of 0.
    pub fn batches(&self, options: BatchOptions) -> Result<Arc<Mutex<BatchStream>>> {
        let make = |recipe: &Arc<Recipe>, start| {
            let reader = self.reader_options(recipe.caches.io());
            BatchStream::new(Arc::clone(recipe), reader, options, start)
        };
        self.begin(options.epochs.unwrap_or(1), make, Latest::Batches)
    }

    /// Starts an iterator of `epochs` epochs: takes them at once, so that two threads never get the same, and gives them
    /// back if the iterator cannot be made.
    fn begin<T>(
        &self,
        epochs: u64,
        make: impl FnOnce(&Arc<Recipe>, Cursor) -> Result<T>,
        latest: impl FnOnce(Arc<Mutex<T>>) -> Latest,
    ) -> Result<Arc<Mutex<T>>> {
        if epochs == 0 {
            return Err(CacheError::option("epochs", "at least 1", epochs));
        }
        self.catch_up()?;
        let mut state = self.state()?;
        let (recipe, start) = (Arc::clone(&state.recipe), state.next);
        let last = u64::from(start.epoch).saturating_add(epochs);
        let epoch = u32::try_from(last).map_err(|_| CacheError::Limit {
            what: "epoch".to_owned(),
            found: last,
            limit: u64::from(u32::MAX),
        })?;
        let after = Cursor { epoch, position: 0 };
        state.next = after;
        // Tables that weights cost may take a while; other threads go on meanwhile.
        drop(state);
        let made = make(&recipe, start);
        let mut state = self.state()?;
        match made {
            Ok(stream) => {
                let stream = Arc::new(Mutex::new(stream));
                // Another thread may have gone on meanwhile; then its iterator is the later one.
                if state.next == after {
                    state.latest = Some(latest(Arc::clone(&stream)));
                }
                Ok(stream)
            }
            Err(error) => {
                if state.next == after {
                    state.next = start;
                }
                Err(error)
            }
        }
    }

    /// Moves the next epoch behind what the last iterator has delivered: it may be endless, or have loaded a state.
    fn catch_up(&self) -> Result<()> {
        let state = self.state()?;
        let (next, latest) = (state.next, state.latest.clone());
        drop(state);
        let reached = match latest {
            None => return Ok(()),
            Some(Latest::Samples(stream)) => lock(&stream).cursor()?,
            Some(Latest::Batches(stream)) => lock(&stream).cursor(),
        };
        let epoch = reached
            .epoch
            .saturating_add(u32::from(reached.position > 0));
        let mut state = self.state()?;
        if state.next == next && epoch > next.epoch {
            state.next = Cursor { epoch, position: 0 };
        }
        Ok(())
    }

    /// Where to resume: after what the last iterator handed out, or where the next one starts.
    ///
    /// # Errors
    /// Only internal ones.
    pub fn saved_state(&self) -> Result<SavedState> {
        let state = self.state()?;
        let (recipe, next, latest) = (Arc::clone(&state.recipe), state.next, state.latest.clone());
        drop(state);
        let unfinished = match latest {
            None => None,
            Some(Latest::Samples(stream)) => lock(&stream).unfinished_state()?,
            Some(Latest::Batches(stream)) => lock(&stream).unfinished_state()?,
        };
        // After its end, what counts is what the next iterator does: with other weights, if they were changed since.
        Ok(unfinished.unwrap_or_else(|| recipe.state(next)))
    }

    /// Where the next iterator starts, whatever the last one has handed out.
    pub fn start_state(&self) -> Result<SavedState> {
        let state = self.state()?;
        let (recipe, next) = (Arc::clone(&state.recipe), state.next);
        drop(state);
        Ok(recipe.state(next))
    }

    /// Makes the next iterator start where `saved` was taken.
    ///
    /// # Errors
    /// [`CacheError::State`] listing what differs; nothing changes then.
    pub fn load_state(&self, saved: &SavedState, ignore: &[String]) -> Result<()> {
        let recipe = self.recipe()?;
        let cursor = recipe.resume(saved, ignore)?;
        let mut state = self.state()?;
        state.next = cursor;
        state.latest = None;
        Ok(())
    }

    /// Reads the sample of one active row in the calling thread.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last row; as [`Loader::load`] for damage.
    pub fn sample(&self, row: u64) -> Result<Chunk> {
        let recipe = self.recipe()?;
        let caches = &recipe.caches;
        let sample = recipe.rows.sample(caches, row)?;
        let mut chunk = Chunk::default();
        let list = Arc::clone(caches.list());
        Loader::new(list, caches.io(), self.options.verify, Placement::InFile)
            .load(sample, &mut chunk)?;
        Ok(chunk)
    }

    /// Active-row numbers at positions `start..stop` of an epoch; `stop` is at most the epoch length.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for positions that the epoch does not have.
    pub fn rows(&self, epoch: u32, start: u64, stop: Option<u64>) -> Result<Vec<u64>> {
        let order = self.recipe()?.epoch(epoch)?;
        let stop = stop.unwrap_or(order.len());
        let count = usize::try_from(stop.saturating_sub(start)).unwrap_or(usize::MAX);
        if stop > order.len() {
            return Err(CacheError::OutOfRange {
                index: i128::from(stop),
                len: order.len(),
            });
        }
        let mut rows = zeros(count)?;
        order.fill(start, &mut rows)?;
        Ok(rows)
    }

    /// Cache and sample numbers at positions `start..stop` of an epoch, without reading payloads.
    ///
    /// # Errors
    /// As [`Dataset::rows`].
    pub fn order(&self, epoch: u32, start: u64, stop: Option<u64>) -> Result<(Vec<u64>, Vec<u64>)> {
        let recipe = self.recipe()?;
        let mut columns = (Vec::new(), Vec::new());
        for row in self.rows(epoch, start, stop)? {
            let sample = recipe.rows.sample(&recipe.caches, row)?;
            columns.0.push(u64::from(sample.cache));
            columns.1.push(sample.sample);
        }
        Ok(columns)
    }

    /// The samples metadata table with the weights of this moment.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a metadata file that differs from its manifest.
    pub fn samples_metadata(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let recipe = self.recipe()?;
        let schema = samples_metadata::table_schema(recipe.caches.schema());
        Ok((
            schema,
            samples_metadata::table(&recipe.caches, &recipe.rows, &recipe.weights)?,
        ))
    }

    /// Replaces all weights; on an error nothing changes. Iterators already running keep theirs.
    ///
    /// # Errors
    /// As [`Weights::from_batches`].
    pub fn set_samples_metadata(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<()> {
        let recipe = self.recipe()?;
        let weights = Weights::from_batches(&recipe.caches, &recipe.rows, batches)?;
        let Recipe {
            caches,
            rows,
            options,
            ..
        } = &*recipe;
        let changed = Arc::new(Recipe::new(
            Arc::clone(caches),
            rows.clone(),
            weights,
            *options,
        ));
        self.state()?.recipe = changed;
        Ok(())
    }

    /// A view: the rows that `batches` names, in that order, over the same open caches, with a state of its own.
    ///
    /// # Errors
    /// [`CacheError::Weights`] naming rows that are not active here or weights that cannot be drawn from.
    pub fn select(&self, batches: impl IntoIterator<Item = Result<RecordBatch>>) -> Result<Self> {
        let recipe = self.recipe()?;
        let Recipe {
            caches,
            rows,
            weights,
            ..
        } = &*recipe;
        let (rows, weights) = select::select(caches, rows, weights, batches)?;
        Ok(Self::new(Arc::clone(caches), rows, weights, self.options))
    }

    /// What a copy in another process needs besides paths and options: chosen rows, weights, and where it stands.
    pub fn parts(&self) -> Result<(ActiveRows, Weights, SavedState)> {
        let state = self.state()?;
        let recipe = Arc::clone(&state.recipe);
        let next = state.next;
        drop(state);
        Ok((
            recipe.rows.clone(),
            recipe.weights.clone(),
            recipe.state(next),
        ))
    }

    /// Puts a copy where its original stood.
    ///
    /// # Errors
    /// [`CacheError::State`] if the caches are not those of the original; [`CacheError::Weights`] or
    /// [`CacheError::OutOfRange`] for parts that do not fit them.
    pub fn restore(&self, rows: ActiveRows, weights: Weights, saved: &SavedState) -> Result<()> {
        let caches = Arc::clone(&self.recipe()?.caches);
        if let ActiveRows::Chosen(chosen) = &rows {
            chosen
                .iter()
                .try_for_each(|row| caches.sample(*row).map(drop))?;
        }
        let recipe = Recipe::new(caches, rows, weights, self.options.order);
        let next = recipe.resume(saved, &[])?;
        let mut state = self.state()?;
        state.recipe = Arc::new(recipe);
        state.next = next;
        state.latest = None;
        Ok(())
    }
}

/// Locks a mutex that may have been held by a thread which a fork did not copy.
fn try_lock_forked<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => yield_now(),
            Err(TryLockError::WouldBlock) => return Err(CacheError::ForkedDataset),
        }
    }
}
