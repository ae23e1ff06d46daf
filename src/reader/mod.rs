//! Sample references in, bytes out, in the order asked for.
//!
//! The reader knows nothing of sampling: a [`Plan`] tells it which sample stands at each position.

mod batches;
mod chunk;
mod files;
mod gather;
mod laps;
mod loader;
mod options;
mod pipeline;
mod processor;
mod profile;
mod samples;

pub use batches::{BatchReader, Loaded as LoadedBatch};
pub use chunk::{Chunk, Sample};
pub use gather::{Column, Extent, Filled, Gatherer, Measured, Selection};
pub use loader::Loader;
pub use options::ReaderOptions;
pub use pipeline::Run;
pub use processor::Window;
pub use profile::{Delivered, Profile, Snapshot};
pub use samples::SampleReader;

use crate::error::Result;
use crate::types::SampleRef;

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
}
