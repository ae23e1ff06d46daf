//! Many scattered records into one destination per field, with one copy each.
//!
//! A gather has two steps, so that nothing is written before everything about it is known: [`Gatherer::measure`] finds
//! the records and the length of every value, [`Measured::fill`] verifies, restores and copies them.

mod blocks;
mod cold;
mod columns;
mod copy;
mod direct;
mod files;
mod fill;
mod measure;
mod selection;
mod share;
mod target;

use std::sync::Arc;

use self::blocks::copy_shared;
use self::cold::Cold;
pub use self::columns::{Column, Extent};
use self::copy::{Scratch, Source};
use self::files::{Files, Located};
pub use self::fill::Measured;
pub use self::selection::Selection;
use self::share::Shares;
use self::target::Target;
use crate::error::Result;
use crate::reader::laps::Laps;
use crate::store::cache::Cache;
use crate::store::populate::Populator;
use crate::store::slot::SlotPool;
use crate::sync::Crew;
use crate::types::{SampleRef, Verify};

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

    /// Finds the records of `samples`, and has them read if they are not in memory.
    fn locate(&mut self, samples: &[SampleRef]) -> Result<()> {
        self.files.locate(samples, &mut self.located)?;
        if self.cold.prepare(&self.files, &self.located) {
            self.populator.start();
        }
        Ok(())
    }

    /// Copies the values of the records that were found to `targets`, and notes the time that it took.
    fn transfer(
        &mut self,
        selection: &Selection,
        targets: Vec<Target<'_>>,
        crew: Option<&Crew>,
    ) -> Result<()> {
        let (files, located) = (&self.files, self.located.as_slice());
        let source = Source::Records(files);
        let threads = copy_shared(source, selection, located, targets, crew, &mut self.scratch)?;
        let find = |row| located.get(row).copied();
        self.shares
            .lap(&mut self.laps, files, located.len(), threads, find);
        Ok(())
    }
}
