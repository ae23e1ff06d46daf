//! Sample references in, bytes out, in the order asked for.
//!
//! The reader knows nothing of sampling: a [`Plan`] tells it which sample stands at each position.

mod batches;
mod chunk;
mod corrupt;
mod files;
mod gather;
mod laps;
mod loader;
mod mend;
mod options;
mod pipeline;
mod processor;
mod profile;
mod samples;

pub use batches::{BatchReader, Loaded as LoadedBatch};
pub use chunk::{Chunk, Sample};
pub use corrupt::{CorruptSample, CorruptSamples};
pub use gather::{Column, Extent, Filled, Gatherer, Measured, Selection};
pub use loader::Loader;
pub use options::ReaderOptions;
pub use pipeline::Run;
pub use processor::Window;
pub use profile::{Delivered, Profile, Snapshot};
pub use samples::SampleReader;

use std::sync::Arc;

use crate::error::Result;
use crate::types::SampleRef;

/// Who learns what a reader meets.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Which samples are damaged, where that is no error.
    pub corrupt: &'a Arc<CorruptSamples>,
    /// Where the time goes.
    pub profile: &'a Arc<Profile>,
}

/// The samples of an epoch by position. A plan does not change: every call gives the same answers, in whatever order
/// and from whatever thread the positions are asked for.
pub trait Plan: Send + Sync {
    /// Number of positions.
    fn len(&self) -> u64;

    /// Whether there is no position.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces the contents of `out` with the samples at positions `start..start + count`, in that order. All of them
    /// must be below [`Plan::len`].
    ///
    /// # Errors
    /// Those of the plan; `out` then holds nothing to rely on.
    fn fill(&self, start: u64, count: usize, out: &mut Vec<SampleRef>) -> Result<()>;

    /// The sample in the place of that at `position`, which is damaged; `attempt` counts those that were damaged too.
    ///
    /// # Errors
    /// Those of the plan.
    fn substitute(&self, position: u64, attempt: u32) -> Result<SampleRef>;
}
