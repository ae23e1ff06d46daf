//! What a training job holds: caches, active rows, their weights, and the order an epoch delivers them in.

mod access;
mod active;
mod batch_stream;
mod caches;
mod consumer;
mod copy;
mod corrupt;
mod fingerprint;
mod gather;
mod history;
mod identity;
mod iterate;
mod lookup;
mod metadata_rows;
mod open;
mod options;
mod plan;
mod profile;
mod ranks;
mod recipe;
mod resume;
mod rows;
mod sample_stream;
mod samples_metadata;
mod select;
mod session;
mod state;
mod steps;
mod table;
mod tables;
mod weights;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use active::ActiveRows;
pub use batch_stream::{BatchStream, Polled};
pub use caches::Caches;
pub use gather::{Batch, RowNumbers};
pub use options::DatasetOptions;
pub use plan::Share;
pub use ranks::{Ranks, SampleOptions};
pub use recipe::{OrderOptions, Recipe};
pub use sample_stream::{Loaded, SampleStream};
pub use session::Latest;
pub use state::{Cursor, SavedState};
pub use steps::{BatchOptions, Step};
pub use weights::Weights;

use self::session::State;
use crate::error::Result;
use crate::format::payload::PayloadSchema;
use crate::format::schema::Schema;
use crate::store::generations::Wanted;
use crate::sync::{Mutex, process_id};
use crate::types::Io;

/// Open caches and the state of their sampling. Shared by threads; an iterator keeps the recipe it started with.
pub struct Dataset {
    options: DatasetOptions,
    process: u32,
    state: Mutex<State>,
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
        let newest = paths.iter().map(|path| (path.clone(), Wanted::Newest));
        Self::open_stoppable(&newest.collect::<Vec<_>>(), options, &mut || Ok(()))
    }

    /// As [`Dataset::open`], the wanted generation of each cache; while it validates, `interrupt` is called about every 50 ms, and its error is returned.
    pub fn open_stoppable(
        caches: &[(PathBuf, Wanted)],
        options: DatasetOptions,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        options.ranks.check()?;
        let caches = Caches::open_stoppable(caches, options.io, options.validate_cache, interrupt)?;
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
        let process = process_id();
        let recipe = Arc::new(Recipe::new(caches, rows, weights, options.order));
        let state = State {
            process,
            recipe,
            next: Cursor::default(),
            latest: None,
            profile: Arc::default(),
        };
        Self {
            options,
            process,
            state: Mutex::new(state),
        }
    }

    /// This consumer among those that share the order.
    pub fn ranks(&self) -> Ranks {
        self.options.ranks
    }

    /// Number of active rows.
    pub fn row_count(&self) -> Result<u64> {
        Ok(self.recipe()?.row_count())
    }

    /// Number of positions of an epoch, over all ranks.
    pub fn epoch_len(&self) -> Result<u64> {
        self.recipe()?.epoch_len()
    }

    /// Fields of every payload; `None` if payloads are plain bytes.
    pub fn payload(&self) -> Result<Option<Arc<PayloadSchema>>> {
        Ok(self.recipe()?.caches.payload().cloned())
    }

    /// The number of the generation that is read of each cache, and why a newer one was passed over.
    pub fn generations(&self) -> Result<Vec<(u64, Option<String>)>> {
        let recipe = self.recipe()?;
        let each = recipe.caches.list().iter().map(|cache| {
            let passed_over = cache.passed_over().map(str::to_owned);
            (cache.manifest().number(), passed_over)
        });
        Ok(each.collect())
    }

    /// Metadata columns of every sample.
    pub fn schema(&self) -> Result<Schema> {
        Ok(self.recipe()?.caches.schema().clone())
    }
}
