//! The batches of one rank, epoch after epoch: which positions each step holds, computed without reading anything.

use std::sync::Arc;

use super::plan::{Path, Share};
use super::ranks::Ranks;
use super::recipe::Recipe;
use super::state::Cursor;
use crate::error::Result;
use crate::reader::Run;
use crate::sampling::position::{Remainder, Split};

/// How a rank takes batches out of the global order.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// Rows of a full batch on this rank.
    pub batch_size: u64,
    /// What happens to positions that do not fill a global batch.
    pub remainder: Remainder,
    /// Epochs to deliver; `None` never ends.
    pub epochs: Option<u64>,
    /// The steps that this worker takes, counted from the start over all epochs.
    pub share: Share,
    /// This consumer, and the number of consumers that share the order.
    pub rank: u64,
    pub world_size: u64,
}

/// One batch of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Epoch.
    pub epoch: u32,
    /// Number of the global batch in its epoch, counted in batches of this size.
    pub step: u64,
    /// First position.
    pub start: u64,
    /// Rows, padding included; may be 0 where other ranks have some.
    pub rows: u64,
    /// Rows that are not padding; they come first.
    pub valid: u64,
    /// Positions of the epoch: where padding wraps around.
    pub epoch_len: u64,
    /// Where a consumer that has received this batch resumes.
    pub after: Cursor,
}

impl Step {
    /// The position of each row.
    pub fn positions(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, len) = (self.start, self.epoch_len.max(1));
        (0..self.rows).map(move |row| (start + row) % len)
    }
}

/// Steps from a cursor on. A pure function of its arguments, so that two copies of it agree.
#[derive(Clone)]
pub struct Steps {
    recipe: Arc<Recipe>,
    options: BatchOptions,
    epoch: u32,
    split: Split,
    next: u64,
    first: u64,
    epochs_left: Option<u64>,
    /// Steps that others take before the next one of this worker.
    skip: u64,
}

impl Steps {
    /// Steps from `cursor` on.
    ///
    /// # Errors
    /// [`crate::error::CacheError::Option`] for a batch size or world size of 0 or a rank beyond it.
    pub fn new(recipe: Arc<Recipe>, options: BatchOptions, cursor: Cursor) -> Result<Self> {
        let BatchOptions {
            rank, world_size, ..
        } = options;
        Ranks { rank, world_size }.check()?;
        options.share.check()?;
        let split = split(&recipe, &options, cursor.position)?;
        let first = cursor.position.div_ceil(split.global_batch());
        Ok(Self {
            recipe,
            options,
            epoch: cursor.epoch,
            split,
            next: 0,
            first,
            epochs_left: options.epochs,
            skip: options.share.skip,
        })
    }

    /// Steps left, if they end.
    pub fn remaining(&self) -> Result<Option<u64>> {
        let Some(epochs) = self.epochs_left else {
            return Ok(None);
        };
        let Some(later) = epochs.checked_sub(1) else {
            return Ok(Some(0));
        };
        let whole = split(&self.recipe, &self.options, 0)?.steps();
        let open = (self.split.steps() - self.next).saturating_add(later.saturating_mul(whole));
        let share = self.options.share;
        Ok(Some(open.saturating_sub(self.skip).div_ceil(share.step)))
    }
}

fn split(recipe: &Recipe, options: &BatchOptions, position: u64) -> Result<Split> {
    Split::new(
        recipe.epoch_len()?,
        position,
        options.batch_size,
        options.world_size,
        options.remainder,
    )
}

impl Iterator for Steps {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        while self.epochs_left != Some(0) {
            let open = self.split.steps() - self.next;
            if self.skip < open {
                self.next += self.skip + 1;
                self.skip = self.options.share.step - 1;
                return Some(self.step(self.next - 1));
            }
            self.skip -= open;
            self.next += open;
            match self.advance() {
                // An epoch without a step would be followed by others like it for ever.
                Ok(()) if self.split.steps() == 0 => self.epochs_left = Some(0),
                Ok(()) => {}
                Err(error) => {
                    self.epochs_left = Some(0);
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Steps {
    fn step(&self, number: u64) -> Result<Step> {
        let slice = self.split.slice(number, self.options.rank);
        // The rest that is dropped does not come back: after the last step comes the next epoch.
        let epoch_len = self.recipe.epoch_len()?;
        let end = if number + 1 == self.split.steps() {
            epoch_len
        } else {
            self.split.position(number + 1)
        };
        Ok(Step {
            epoch: self.epoch,
            step: self.first + number,
            start: slice.start(),
            rows: slice.rows(),
            valid: slice.valid(),
            epoch_len,
            after: self.recipe.cursor(self.epoch, end)?,
        })
    }

    /// Goes to the next epoch, if there is to be one.
    fn advance(&mut self) -> Result<()> {
        self.epochs_left = self.epochs_left.map(|left| left - 1);
        if self.epochs_left != Some(0) {
            self.epoch = self.recipe.cursor(self.epoch, u64::MAX)?.epoch;
            self.split = split(&self.recipe, &self.options, 0)?;
            (self.next, self.first) = (0, 0);
        }
        Ok(())
    }
}

/// The steps as the reader takes them: one run of positions each.
pub struct Runs {
    steps: Steps,
    /// The plan of the epoch of the last step.
    plan: Option<(u32, Arc<dyn crate::reader::Plan>)>,
}

impl Runs {
    pub fn new(steps: Steps) -> Self {
        Self { steps, plan: None }
    }

    fn run(&mut self, step: &Step) -> Result<Run> {
        let plan = match &self.plan {
            Some((epoch, plan)) if *epoch == step.epoch => Arc::clone(plan),
            _ => {
                let recipe = &self.steps.recipe;
                let order = recipe.epoch(step.epoch)?;
                let path = Path::whole(&order);
                let plan: Arc<dyn crate::reader::Plan> = Arc::new(recipe.plan(order, path));
                self.plan = Some((step.epoch, Arc::clone(&plan)));
                plan
            }
        };
        let count = usize::try_from(step.rows)
            .map_err(|_| crate::error::CacheError::internal("a batch beyond memory"))?;
        Ok(Run {
            plan,
            start: step.start,
            count,
        })
    }
}

impl Iterator for Runs {
    type Item = Result<Run>;

    fn next(&mut self) -> Option<Result<Run>> {
        let step = self.steps.next()?;
        Some(step.and_then(|step| self.run(&step)))
    }
}
