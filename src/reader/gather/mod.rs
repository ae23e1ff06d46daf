//! Many scattered records into one destination per field, with one copy each.
//!
//! A gather has two steps, so that nothing is written before everything about it is known: [`Gatherer::measure`] finds
//! the records and the length of every value, [`Measured::fill`] verifies, restores and copies them.

mod cold;
mod copy;
mod direct;
mod files;
mod selection;
mod share;
mod target;

use std::sync::Arc;

use self::cold::Cold;
use self::copy::{Scratch, Source, copy, restored_len, stored};
use self::files::{Files, Located};
pub use self::selection::Selection;
use self::share::Shares;
use self::target::{Lens, Target};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::reader::laps::Laps;
use crate::reader::profile::Stage;
use crate::store::cache::Cache;
use crate::store::populate::Populator;
use crate::store::slot::{Slot, SlotPool};
use crate::sync::{Crew, Mutex, lock};
use crate::types::{SampleRef, Verify};

/// Rows that are located and copied together where every value has one length, so that very long gathers need little
/// memory besides their destination.
const SPAN_ROWS: usize = 1 << 16;
/// Bytes of a gather from which on a second thread is worth its start.
const SHARED_BYTES_MIN: usize = 1 << 20;
/// Bytes that a thread takes at a time of a shared gather.
const BLOCK_BYTES: usize = 256 << 10;
/// Index rows that are looked at for each record gathered, to learn whether they can be done without.
const LEARNED_PER_ROW: usize = 2;

/// What a column of a gather holds besides its values.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Bytes of all values together.
    pub byte_len: usize,
    /// Where each value starts, and where the last one ends, in bytes; `None` if all have one length.
    pub offsets: Option<Vec<u64>>,
    /// Per row the extents of the axes that the schema leaves open.
    pub open_extents: Vec<u64>,
}

/// One field of many samples.
#[derive(Debug)]
pub struct Column {
    /// The values, one after the other.
    pub values: Slot,
    /// Where each of them is.
    pub extent: Extent,
}

/// Gathers records of open caches. Each thread has its own.
#[derive(Debug)]
pub struct Gatherer {
    files: Files,
    pool: Arc<SlotPool>,
    located: Vec<Located>,
    /// One for each thread that has copied so far.
    scratch: Vec<Scratch>,
    cold: Cold,
    populator: Arc<Populator>,
    laps: Laps,
    shares: Shares,
    filled: Filled,
}

/// What a gather wrote.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filled {
    /// Samples.
    pub rows: usize,
    /// Bytes of all columns.
    pub bytes: usize,
}

/// A gather whose lengths are known.
pub struct Measured<'a> {
    gatherer: &'a mut Gatherer,
    samples: &'a [SampleRef],
    selection: &'a Selection,
    extents: Vec<Extent>,
    restored: Option<Column>,
}

impl Gatherer {
    /// A gatherer for `caches` that verifies as `verify` says, takes memory from `pool`, and starts `populator` once a
    /// batch is not in memory.
    pub fn new(
        caches: Arc<[Arc<Cache>]>,
        verify: Verify,
        pool: Arc<SlotPool>,
        populator: Arc<Populator>,
    ) -> Self {
        Self {
            files: Files::new(caches, verify),
            pool,
            located: Vec::new(),
            scratch: Vec::new(),
            cold: Cold::default(),
            populator,
            laps: Laps::default(),
            shares: Shares::default(),
            filled: Filled::default(),
        }
    }

    /// The clock of the thread that gathers; it has to be started before.
    pub fn laps(&mut self) -> &mut Laps {
        &mut self.laps
    }

    /// Where it takes memory from.
    pub fn pool(&self) -> &Arc<SlotPool> {
        &self.pool
    }

    /// What was written since this was last asked.
    pub fn take_filled(&mut self) -> Filled {
        std::mem::take(&mut self.filled)
    }

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
        let mut slots = lens.map(|len| pool.take(len)).collect::<Result<Vec<_>>>()?;
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
    /// fails; [`CacheError::Limit`] where memory does not suffice.
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
                lens.map(|len| fixed(len, samples.len()))
                    .collect::<Result<Vec<_>>>()?
            }
            None if selection.chosen().is_empty() => Vec::new(),
            None => {
                self.files.locate(samples, &mut self.located)?;
                if self.cold.prepare(&self.files, &self.located) {
                    self.populator.start();
                }
                let extents = match selection.schema() {
                    None => vec![self.measure_payloads()?],
                    Some(_) => {
                        restored = self.restore(crew)?;
                        self.measure_fields(selection, restored.as_ref())?
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

    /// Whole payloads, one after the other.
    fn measure_payloads(&self) -> Result<Extent> {
        let mut offsets = Vec::with_capacity(self.located.len() + 1);
        let mut end: u64 = 0;
        offsets.push(0);
        for at in &self.located {
            end = end.saturating_add(restored_len(&self.files, at)?);
            offsets.push(end);
        }
        Ok(Extent {
            byte_len: usize::try_from(end).unwrap_or(usize::MAX),
            offsets: Some(offsets),
            open_extents: Vec::new(),
        })
    }

    /// Restores all payloads if any of them is compressed: the lengths of their fields are inside.
    fn restore(&mut self, crew: Option<&Crew>) -> Result<Option<Column>> {
        let is_plain = |at: &Located| at.algorithm == Algorithm::None;
        if self.located.iter().all(is_plain) {
            return Ok(None);
        }
        let extent = self.measure_payloads()?;
        self.laps.lap(Stage::Locate);
        let mut values = self.pool.take(extent.byte_len)?;
        let offsets = extent.offsets.as_deref().unwrap_or_default();
        let whole = Target::new(&mut values, Lens::Between(offsets), self.located.len())?;
        let source = Source::Records(&self.files);
        let rows = (0, self.located.as_slice());
        let selection = Selection::all(None);
        let threads = share(
            source,
            &selection,
            rows,
            vec![whole],
            crew,
            &mut self.scratch,
        )?;
        let find = |row| self.located.get(row).copied();
        let rows = self.located.len();
        self.shares
            .lap(&mut self.laps, &self.files, rows, threads, find);
        Ok(Some(Column { values, extent }))
    }

    fn measure_fields(
        &mut self,
        selection: &Selection,
        restored: Option<&Column>,
    ) -> Result<Vec<Extent>> {
        let Some(schema) = selection.schema() else {
            return Err(CacheError::internal("fields of plain payloads"));
        };
        let rows = self.located.len();
        let empty = |_| Extent {
            offsets: Some(Vec::with_capacity(rows + 1)),
            ..Extent::default()
        };
        let mut columns: Vec<Extent> = selection.chosen().iter().map(empty).collect();
        let (mut extents, mut places) = (Vec::new(), Vec::new());
        for (row, at) in self.located.iter().enumerate() {
            let payload = match restored {
                Some(column) => column.row(row)?,
                None => stored(&self.files, at, self.files.bytes(at).unwrap_or_default())?,
            };
            schema
                .split(payload, &mut extents, &mut places)
                .map_err(|found| self.files.fault(at, found))?;
            for (column, number) in columns.iter_mut().zip(selection.chosen()) {
                let Some(place) = places.get(*number) else {
                    return Err(CacheError::internal("a field beyond the schema"));
                };
                let open = extents.get(place.extents.clone()).unwrap_or_default();
                column.open_extents.extend_from_slice(open);
                if let Some(offsets) = &mut column.offsets {
                    offsets.push(column.byte_len as u64);
                }
                column.byte_len = column.byte_len.saturating_add(place.bytes.len());
            }
        }
        for (column, number) in columns.iter_mut().zip(selection.chosen()) {
            let field = schema.fields().get(*number);
            if field.is_some_and(|field| field.is_dense()) {
                column.offsets = None;
            } else if let Some(offsets) = &mut column.offsets {
                offsets.push(column.byte_len as u64);
            }
        }
        Ok(columns)
    }
}

impl Column {
    fn row(&self, row: usize) -> Result<&[u8]> {
        let offsets = self.extent.offsets.as_deref().unwrap_or_default();
        let value = match offsets.get(row..row + 2) {
            Some([start, end]) => self.values.get(*start as usize..*end as usize),
            _ => None,
        };
        value.ok_or_else(|| CacheError::internal("a row beyond its column"))
    }
}

impl Measured<'_> {
    /// What each column will hold.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Writes the values of each column to a destination of exactly its length. A crew shares the work if
    /// there is enough of it;
    /// `interrupt` is called from time to time, and its error is returned.
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
        let Gatherer {
            files,
            located,
            scratch,
            cold,
            populator,
            laps,
            shares,
            filled,
            ..
        } = gatherer;
        let rows = samples.len();
        *filled = Filled {
            rows,
            bytes: extents.iter().map(|extent| extent.byte_len).sum(),
        };
        let lens = |extent: &Extent| extent.byte_len.checked_div(rows).unwrap_or(0);
        let targets = out.into_iter().zip(&extents).map(|(out, extent)| {
            let lens = match &extent.offsets {
                Some(offsets) => Lens::Between(offsets),
                None => Lens::Fixed(lens(extent)),
            };
            Target::new(out, lens, rows)
        });
        let mut targets = targets.collect::<Result<Vec<_>>>()?;
        if targets.len() != extents.len() {
            return Err(CacheError::internal("a gather with too few destinations"));
        }
        let Some(dense) = selection.dense() else {
            let source = match &restored {
                None => Source::Records(files),
                Some(column) => {
                    let offsets = column.extent.offsets.as_deref().unwrap_or_default();
                    Source::Restored(files, &column.values, offsets)
                }
            };
            let threads = share(source, selection, (0, located), targets, crew, scratch)?;
            match restored {
                None => {
                    let find = |row| located.get(row).copied();
                    shares.lap(laps, files, rows, threads, find);
                }
                Some(_) => laps.lap(Stage::Copy),
            }
            return Ok(extents);
        };
        for span in samples.chunks(SPAN_ROWS) {
            files.begin();
            located.clear();
            let bytes = dense.payload_len.saturating_mul(span.len());
            let find = |row: usize| files.locate_open(*span.get(row)?);
            let mut rest = span;
            if cold.is_warm(files, span.len(), bytes, find) {
                let (done, threads) = direct::copy(files, dense, span, &mut targets, crew)?;
                for target in &mut targets {
                    target.split_front(done)?;
                }
                let time = shares.lap(laps, files, done, threads, find);
                cold.took(time, span.len(), bytes);
                rest = span.get(done..).unwrap_or_default();
            }
            if let Some(sample) = span.first() {
                files.learn(*sample, span.len() * LEARNED_PER_ROW);
            }
            if !rest.is_empty() {
                files.locate(rest, located)?;
                if cold.prepare(files, located) {
                    populator.start();
                }
                laps.lap(Stage::Locate);
                let fronts = targets
                    .iter_mut()
                    .map(|target| target.split_front(rest.len()));
                let fronts = fronts.collect::<Result<Vec<_>>>()?;
                let source = Source::Records(files);
                let threads = share(source, selection, (0, located), fronts, crew, scratch)?;
                let find = |row| located.get(row).copied();
                shares.lap(laps, files, rest.len(), threads, find);
            }
            if samples.len() > SPAN_ROWS {
                interrupt()?;
            }
        }
        Ok(extents)
    }
}

/// The extent of a column whose values have one length.
fn fixed(len: usize, rows: usize) -> Result<Extent> {
    let byte_len = len.checked_mul(rows).ok_or_else(|| {
        CacheError::limit("rows of a gather", rows as u64, (usize::MAX / len) as u64)
    })?;
    Ok(Extent {
        byte_len,
        ..Extent::default()
    })
}

/// Copies `rows` in blocks that the threads of a crew take in turns, if there is enough to share. Returns the number of
/// threads.
fn share(
    source: Source<'_>,
    selection: &Selection,
    (first, rows): (usize, &[Located]),
    mut targets: Vec<Target<'_>>,
    crew: Option<&Crew>,
    scratch: &mut Vec<Scratch>,
) -> Result<usize> {
    let bytes: usize = rows.iter().map(|at| at.len).sum();
    let crew = crew.filter(|crew| crew.threads() > 1 && bytes >= SHARED_BYTES_MIN);
    let Some(crew) = crew else {
        let mut own = scratch.pop().unwrap_or_default();
        copy(source, selection, (first, rows), &mut targets, &mut own)?;
        scratch.push(own);
        return Ok(1);
    };
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        let mut end = start;
        let mut len = 0;
        while let Some(at) = rows.get(end).filter(|_| len < BLOCK_BYTES) {
            len += at.len;
            end += 1;
        }
        let fronts = targets
            .iter_mut()
            .map(|target| target.split_front(end - start));
        let fronts = fronts.collect::<Result<Vec<_>>>()?;
        blocks.push(Mutex::new((start..end, fronts)));
        start = end;
    }
    // A decoder takes as long to make as a few records take to decode.
    let spare = Mutex::new(std::mem::take(scratch));
    crew.try_map(&blocks, |block| {
        let (range, targets) = &mut *lock(block);
        let own = rows.get(range.clone()).unwrap_or_default();
        let mut scratch = lock(&spare).pop().unwrap_or_default();
        let rows = (first + range.start, own);
        copy(source, selection, rows, targets, &mut scratch)?;
        lock(&spare).push(scratch);
        Ok(())
    })?;
    *scratch = std::mem::take(&mut *lock(&spare));
    Ok(crew.threads())
}
