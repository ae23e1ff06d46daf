//! What users' tables say about a dataset: weights out and in, and the rows of a view.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::Dataset;
use super::recipe::Recipe;
use super::weights::Weights;
use super::{samples_metadata, select};
use crate::error::Result;

impl Dataset {
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
}
