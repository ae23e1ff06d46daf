//! Single samples by row, and the order of an epoch by position: what needs no iterator.

use std::sync::Arc;

use super::Dataset;
use super::plan::zeros;
use super::recipe::Recipe;
use crate::error::{CacheError, Result};
use crate::reader::{Chunk, Loader};

impl Dataset {
    /// Reads the sample of one active row in the calling thread.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] beyond the last row; as [`Loader::append`] for damage.
    pub fn sample(&self, row: u64) -> Result<Chunk> {
        let recipe = self.recipe()?;
        let caches = &recipe.caches;
        let sample = recipe.rows.sample(caches, row)?;
        let mut chunk = Chunk::default();
        let list = Arc::clone(caches.list());
        Loader::new(list, caches.io(), self.options.verify).append(sample, &mut chunk)?;
        Ok(chunk)
    }

    /// Active-row numbers at positions `start..stop` of an epoch, by default to its end.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] naming the first bound that the epoch does not have.
    pub fn rows(&self, epoch: u32, start: u64, stop: Option<u64>) -> Result<Vec<u64>> {
        let recipe = self.recipe()?;
        drawn(&recipe, epoch, start, stop)
    }

    /// Cache and sample numbers at positions `start..stop` of an epoch, without reading payloads.
    ///
    /// # Errors
    /// As [`Dataset::rows`].
    pub fn order(&self, epoch: u32, start: u64, stop: Option<u64>) -> Result<(Vec<u64>, Vec<u64>)> {
        let recipe = self.recipe()?;
        let rows = drawn(&recipe, epoch, start, stop)?;
        let mut samples = Vec::with_capacity(rows.len());
        recipe
            .rows
            .extend_samples(&recipe.caches, rows, &mut samples)?;
        let each = samples.into_iter();
        Ok(each
            .map(|sample| (u64::from(sample.cache), sample.sample))
            .unzip())
    }
}

/// Active-row numbers at positions of an epoch.
fn drawn(recipe: &Recipe, epoch: u32, start: u64, stop: Option<u64>) -> Result<Vec<u64>> {
    let order = recipe.order()?.epoch(epoch)?;
    let len = order.len();
    let stop = stop.unwrap_or(len);
    if let Some(bound) = [start, stop].into_iter().find(|bound| *bound > len) {
        return Err(CacheError::OutOfRange {
            index: i128::from(bound),
            len,
        });
    }
    let count = usize::try_from(stop.saturating_sub(start)).unwrap_or(usize::MAX);
    let mut rows = zeros(count)?;
    order.fill(start, &mut rows)?;
    Ok(rows)
}
