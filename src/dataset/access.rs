//! Single samples by row, and the order of an epoch by position: what needs no iterator.

use std::sync::Arc;

use super::Dataset;
use super::plan::zeros;
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
}
