//! Samples of chosen rows, together.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Dataset;
use super::caches::Caches;
use super::metadata_rows::metadata_of;
use super::profile::Timed;
use super::recipe::Recipe;
use super::select::rows_of;
use crate::error::{CacheError, Result};
use crate::reader::{Column, Gatherer, Selection};
use crate::sync::Crew;
use crate::types::SampleRef;

/// Rows of a dataset, by number; signed ones below 0 count from the end.
#[derive(Clone, Copy, Debug)]
pub enum RowNumbers<'a> {
    /// As NumPy counts.
    Signed(&'a [i64]),
    /// From the first row on.
    Unsigned(&'a [u64]),
}

/// Samples together: their values, and everything to look their metadata up.
#[derive(Debug)]
pub struct Batch {
    /// The samples in order.
    pub samples: Vec<SampleRef>,
    /// One column per chosen field.
    pub columns: Vec<Column>,
    /// Rows of damaged samples, which hold nothing; ascending.
    pub left_out: Vec<usize>,
    /// The caches they come from.
    pub caches: Arc<Caches>,
}

impl Batch {
    /// Metadata columns in name order, one row per sample.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a metadata file that differs from its manifest.
    pub fn metadata(&self) -> Result<RecordBatch> {
        metadata_of(&self.caches, &self.samples)
    }
}

impl Dataset {
    /// Whole payloads, or those of their fields for which `is_chosen` holds; plain payloads are one field named "".
    pub fn selection(&self, is_chosen: impl Fn(&str) -> bool) -> Result<Selection> {
        let recipe = self.recipe()?;
        Ok(Selection::new(recipe.caches.payload().cloned(), is_chosen))
    }

    /// The physical samples of active rows.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for the first row that the dataset does not have.
    pub fn samples_of(&self, rows: RowNumbers<'_>) -> Result<Vec<SampleRef>> {
        let recipe = self.recipe()?;
        match rows {
            RowNumbers::Signed(rows) => {
                let len = recipe.row_count();
                let wrapped = rows.iter().map(|&row| match row {
                    0.. => row as u64,
                    // Further below than there are rows: as far above as that, so that it is out of range too.
                    _ => len.checked_sub(row.unsigned_abs()).unwrap_or(u64::MAX),
                });
                resolve(&recipe, wrapped, |position| {
                    rows.get(position).copied().map_or(0, i128::from)
                })
            }
            RowNumbers::Unsigned(rows) => resolve(&recipe, rows.iter().copied(), |position| {
                rows.get(position).copied().map_or(0, i128::from)
            }),
        }
    }

    /// The first active row of each sample that `batches` names, in their order.
    ///
    /// # Errors
    /// [`CacheError::Weights`] naming samples that are not active here, a missing column or a wrong type.
    pub fn rows_of(
        &self,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
    ) -> Result<Vec<u64>> {
        let recipe = self.recipe()?;
        rows_of(&recipe.caches, &recipe.rows, batches)
    }

    /// Reads the chosen fields of samples in the calling thread, and in others where there is enough to share.
    ///
    /// # Errors
    /// As [`Gatherer::gather`]; and what `interrupt` returns, which is called from time to time.
    pub fn gather(
        &self,
        samples: Vec<SampleRef>,
        selection: &Selection,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Batch> {
        self.with_gatherer(|gatherer, crew| {
            gatherer.gather(&samples, selection, Some(crew), interrupt)
        })
        .map(|(columns, caches)| Batch {
            samples,
            columns,
            left_out: Vec::new(),
            caches,
        })
    }

    /// Calls `body` with a gatherer over the caches and the threads that it may use.
    pub fn with_gatherer<T>(
        &self,
        body: impl FnOnce(&mut Gatherer, &Crew) -> Result<T>,
    ) -> Result<(T, Arc<Caches>)> {
        let state = self.state()?;
        let (recipe, profile) = (Arc::clone(&state.recipe), Arc::clone(&state.profile));
        drop(state);
        let caches = Arc::clone(&recipe.caches);
        let crew = caches.crew(self.options.num_workers);
        let mut gatherer = caches.gatherer(self.options.verify, self.options.populate_bytes);
        let timed = Timed::begin(&profile, &mut gatherer);
        let outcome = body(&mut gatherer, crew)?;
        timed.end(&mut gatherer);
        caches.put_back(gatherer);
        Ok((outcome, caches))
    }
}

/// `given` is the number that the caller gave at a position, for messages.
fn resolve(
    recipe: &Recipe,
    rows: impl ExactSizeIterator<Item = u64>,
    given: impl Fn(usize) -> i128,
) -> Result<Vec<SampleRef>> {
    let mut samples = Vec::with_capacity(rows.len());
    let outcome = recipe
        .rows
        .extend_samples(&recipe.caches, rows, &mut samples);
    match outcome {
        Ok(()) => Ok(samples),
        Err(CacheError::OutOfRange { len, .. }) => Err(CacheError::OutOfRange {
            index: given(samples.len()),
            len,
        }),
        Err(other) => Err(other),
    }
}
