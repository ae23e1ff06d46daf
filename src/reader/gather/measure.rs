//! The first step of a gather: finds the records and the length of every value.

use std::sync::Arc;

use super::Gatherer;
use super::columns::{Column, Extent};
use super::files::Located;
use super::fill::Measured;
use super::selection::Selection;
use super::target::Target;
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::reader::profile::Stage;
use crate::sync::Crew;
use crate::types::SampleRef;

impl Gatherer {
    /// The chosen columns of `samples`, in memory of the pool.
    ///
    /// # Errors
    /// As [`Gatherer::measure`] and [`Measured::fill`].
    pub fn gather(
        &mut self,
        samples: &[SampleRef],
        selection: &Selection,
        crew: Option<&Crew>,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Column>> {
        let pool = Arc::clone(&self.pool);
        let measured = self.measure(samples, selection, crew)?;
        let lens = measured.extents.iter().map(|extent| extent.byte_len);
        let slots = lens.map(|len| pool.take(len)).collect::<Result<Vec<_>>>();
        let mut slots = slots.or_else(|error| measured.explain(error))?;
        let out = slots.iter_mut().map(|slot| &mut **slot).collect();
        let extents = measured.fill(out, crew, interrupt)?;
        let columns = slots.into_iter().zip(extents);
        Ok(columns
            .map(|(values, extent)| Column { values, extent })
            .collect())
    }

    /// Finds out how long every value is.
    ///
    /// # Errors
    /// [`CacheError::OutOfRange`] for a sample that its cache does not have; [`CacheError::DamagedRecord`] or
    /// [`CacheError::DamagedFile`] naming file, sample and byte for whatever cannot be; [`CacheError::Io`] if reading
    /// fails; [`CacheError::Memory`] where there is not enough of it.
    pub fn measure<'a>(
        &'a mut self,
        samples: &'a [SampleRef],
        selection: &'a Selection,
        crew: Option<&Crew>,
    ) -> Result<Measured<'a>> {
        self.files.begin();
        self.located.clear();
        let mut restored = None;
        let extents = match selection.dense() {
            Some(dense) => {
                let lens = dense.places.iter().map(|place| place.len());
                lens.map(|len| Extent::fixed(len, samples.len()))
                    .collect::<Result<Vec<_>>>()?
            }
            None if selection.chosen().is_empty() => Vec::new(),
            None => {
                self.locate(samples)?;
                let extents = match selection.schema() {
                    None => vec![Extent::of_payloads(&self.files, &self.located)?],
                    Some(_) => {
                        restored = self.restore(crew)?;
                        let payloads = restored.as_ref();
                        Extent::of_fields(&self.files, &self.located, selection, payloads)?
                    }
                };
                self.laps.lap(Stage::Locate);
                extents
            }
        };
        Ok(Measured {
            gatherer: self,
            samples,
            selection,
            extents,
            restored,
        })
    }

    /// The error that a length led to, unless the record that told it is damaged: it was not compared with its checksum yet.
    pub(super) fn explain<T>(&self, error: CacheError) -> Result<T> {
        for at in &self.located {
            self.files.record(at)?;
        }
        Err(error)
    }

    /// Restores all payloads if any of them is compressed: the lengths of their fields are inside.
    fn restore(&mut self, crew: Option<&Crew>) -> Result<Option<Column>> {
        let is_plain = |at: &Located| at.algorithm == Algorithm::None;
        if self.located.iter().all(is_plain) {
            return Ok(None);
        }
        let extent = Extent::of_payloads(&self.files, &self.located)?;
        self.laps.lap(Stage::Locate);
        let values = self.pool.take(extent.byte_len);
        let mut values = values.or_else(|error| self.explain(error))?;
        let rows = self.located.len();
        let whole = Target::new(&mut values, extent.lens(rows), rows)?;
        self.transfer(&Selection::all(None), vec![whole], crew)?;
        Ok(Some(Column { values, extent }))
    }
}
