//! The second step of a gather: verifies the records, restores their values and copies them to their destinations.

use super::blocks::copy_shared;
use super::columns::{Column, Extent};
use super::copy::Source;
use super::direct;
use super::selection::{Dense, Selection};
use super::target::{Target, split_fronts};
use super::{Filled, Gatherer};
use crate::error::{CacheError, Result};
use crate::reader::profile::Stage;
use crate::sync::Crew;
use crate::types::SampleRef;

/// Rows that are located and copied together where every value has one length, so that very long gathers need little
/// memory besides their destination.
const SPAN_ROWS: usize = 1 << 16;
/// Index rows that are looked at for each record gathered, to learn whether they can be done without.
const LEARNED_PER_ROW: usize = 2;

/// A gather whose lengths are known.
pub struct Measured<'a> {
    pub(super) gatherer: &'a mut Gatherer,
    pub(super) samples: &'a [SampleRef],
    pub(super) selection: &'a Selection,
    pub(super) extents: Vec<Extent>,
    /// The payloads, if they had to be restored to be measured.
    pub(super) restored: Option<Column>,
}

impl Measured<'_> {
    /// What each column will hold.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The error that an extent led to, unless one of the records is damaged: none was compared with its checksum yet.
    ///
    /// # Errors
    /// Always.
    pub fn explain<T>(&self, error: CacheError) -> Result<T> {
        self.gatherer.explain(error)
    }

    /// Writes the values of each column to a destination of exactly its length. A crew shares the work if there is
    /// enough of it; `interrupt` is called from time to time, and its error is returned.
    ///
    /// # Errors
    /// [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] for the first sample that cannot be trusted, and
    /// those of [`Gatherer::measure`]; the destinations then hold nothing to rely on.
    pub fn fill(
        self,
        out: Vec<&mut [u8]>,
        crew: Option<&Crew>,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Extent>> {
        let Self {
            gatherer,
            samples,
            selection,
            extents,
            restored,
        } = self;
        let rows = samples.len();
        gatherer.filled = Filled {
            rows,
            bytes: extents.iter().map(|extent| extent.byte_len).sum(),
        };
        let targets = out.into_iter().zip(&extents);
        let targets = targets.map(|(out, extent)| Target::new(out, extent.lens(rows), rows));
        let targets = targets.collect::<Result<Vec<_>>>()?;
        if targets.len() != extents.len() {
            return Err(CacheError::internal("a gather with too few destinations"));
        }
        match (selection.dense(), &restored) {
            (Some(dense), _) => {
                gatherer.fill_dense(dense, samples, selection, targets, crew, interrupt)?;
            }
            (None, Some(payloads)) => {
                gatherer.fill_restored(payloads, selection, targets, crew)?;
            }
            (None, None) => gatherer.transfer(selection, targets, crew)?,
        }
        Ok(extents)
    }
}

impl Gatherer {
    /// Copies fields of payloads that [`Gatherer::measure`] restored.
    fn fill_restored(
        &mut self,
        payloads: &Column,
        selection: &Selection,
        targets: Vec<Target<'_>>,
        crew: Option<&Crew>,
    ) -> Result<()> {
        let offsets = payloads.extent.offsets.as_deref().unwrap_or_default();
        let source = Source::Restored(&self.files, &payloads.values, offsets);
        let (rows, scratch) = (&self.located, &mut self.scratch);
        copy_shared(source, selection, rows, targets, crew, scratch)?;
        self.laps.lap(Stage::Copy);
        Ok(())
    }

    /// Finds and copies fields of payloads that have one length, which nothing had to be found for before.
    fn fill_dense(
        &mut self,
        dense: &Dense,
        samples: &[SampleRef],
        selection: &Selection,
        mut targets: Vec<Target<'_>>,
        crew: Option<&Crew>,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        for span in samples.chunks(SPAN_ROWS) {
            self.files.begin();
            self.located.clear();
            let done = self.fill_warm(dense, span, &mut targets, crew)?;
            if let Some(sample) = span.first() {
                self.files.learn(*sample, span.len() * LEARNED_PER_ROW);
            }
            let rest = span.get(done..).unwrap_or_default();
            if !rest.is_empty() {
                self.locate(rest)?;
                self.laps.lap(Stage::Locate);
                let fronts = split_fronts(&mut targets, rest.len())?;
                self.transfer(selection, fronts, crew)?;
            }
            if samples.len() > SPAN_ROWS {
                interrupt()?;
            }
        }
        Ok(())
    }

    /// Copies the first of `span` in one pass, as long as they are in memory and need nothing else. Returns their number.
    fn fill_warm(
        &mut self,
        dense: &Dense,
        span: &[SampleRef],
        targets: &mut [Target<'_>],
        crew: Option<&Crew>,
    ) -> Result<usize> {
        let files = &self.files;
        let bytes = dense.payload_len.saturating_mul(span.len());
        let find = |row: usize| files.locate_open(*span.get(row)?);
        if !self.cold.is_warm(files, span.len(), bytes, find) {
            return Ok(0);
        }
        let (done, threads) = direct::copy(files, dense, span, targets, crew)?;
        for target in targets {
            target.split_front(done)?;
        }
        let time = self.shares.lap(&mut self.laps, files, done, threads, find);
        self.cold.took(time, span.len(), bytes);
        Ok(done)
    }
}
