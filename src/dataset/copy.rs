//! The active rows of a dataset as a cache of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Dataset;
use super::metadata_rows::metadata_of;
use super::recipe::Recipe;
use crate::error::Result;
use crate::maintain::copy::{CopyRequest, Rows, copy};
use crate::store::lock::CacheLock;
use crate::store::vfs::Vfs;
use crate::types::SampleRef;

impl Dataset {
    /// Writes the cache `base/name` from the active rows, in their order; one that is there several times becomes several
    /// samples. Weights are not part of a cache.
    ///
    /// # Errors
    /// As [`copy`].
    pub fn copy_to(
        &self,
        vfs: Arc<dyn Vfs>,
        (base, name): (&Path, &str),
        lock: CacheLock,
        max_shard_bytes: u64,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<PathBuf> {
        let recipe = self.recipe()?;
        recipe.caches.check_table()?;
        let request = CopyRequest {
            vfs,
            base,
            name,
            lock,
            max_shard_bytes,
            caches: Arc::clone(recipe.caches.list()),
            schema: recipe.caches.schema().clone(),
            payload: recipe.caches.payload().map(|payload| (**payload).clone()),
            rows: Box::new(Active(recipe)),
        };
        copy(request, interrupt)
    }
}

/// The active rows of a recipe.
struct Active(Arc<Recipe>);

impl Rows for Active {
    fn count(&self) -> u64 {
        self.0.row_count()
    }

    fn append(&self, first: u64, count: u64, samples: &mut Vec<SampleRef>) -> Result<()> {
        let rows = first..first.saturating_add(count);
        self.0.rows.extend_samples(&self.0.caches, rows, samples)
    }

    fn metadata(&self, samples: &[SampleRef]) -> Result<RecordBatch> {
        metadata_of(&self.0.caches, samples)
    }
}
