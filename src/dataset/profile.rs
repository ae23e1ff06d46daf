//! Where the time of this dataset's iterators and gathers goes.

use std::sync::Arc;
use std::time::Instant;

use super::Dataset;
use super::session::Latest;
use crate::error::Result;
use crate::reader::{Delivered, Filled, Gatherer, Profile, Snapshot, Window};
use crate::sync::lock;

/// Gathers that are looked at more closely at first, all of them, and later, one of so many: it costs two system calls.
const LOOKED_AT: u64 = 8;
const LOOKED_AT_EVERY: u32 = 64;

impl Dataset {
    /// The counters that readers of this dataset add to in this process.
    pub(super) fn counters(&self) -> Result<Arc<Profile>> {
        Ok(Arc::clone(&self.state()?.profile))
    }

    /// What this dataset's iterators and gathers spent their time on in this process since it was opened, or since the
    /// counters last began again, which they do now if `is_reset`. Views have counters of their own.
    ///
    /// # Errors
    /// [`crate::error::CacheError::ForkedDataset`] in a child that cannot use the dataset.
    pub fn profile(&self, is_reset: bool) -> Result<Snapshot> {
        let state = self.state()?;
        let (profile, latest) = (Arc::clone(&state.profile), state.latest.clone());
        drop(state);
        if let Some(Latest::Samples(stream)) = latest {
            lock(&stream).count();
        }
        Ok(if is_reset {
            profile.reset()
        } else {
            profile.snapshot()
        })
    }

    /// Counts as if a consumer had waited and worked so long, in nanoseconds, with so many batches, for tests of what
    /// follows from it.
    ///
    /// # Errors
    /// As [`Dataset::profile`].
    pub fn pretend_consumer(&self, waited: u64, worked: u64, batches: u64) -> Result<()> {
        let profile = self.counters()?;
        profile.add_waiting(std::time::Duration::from_nanos(waited));
        profile.add_working(std::time::Duration::from_nanos(worked), batches);
        Ok(())
    }
}

/// One gather in the thread that asked for it.
pub(super) struct Timed<'a> {
    profile: &'a Profile,
    began: Instant,
    /// Where this gather is looked at more closely: that of the thread, and for how many gathers it stands.
    window: Option<(Window, u32)>,
}

impl<'a> Timed<'a> {
    /// Begins now.
    pub fn begin(profile: &'a Profile, gatherer: &mut Gatherer) -> Self {
        let stands_for = match profile.gathers() {
            ..LOOKED_AT => Some(1),
            number if number % u64::from(LOOKED_AT_EVERY) == 0 => Some(LOOKED_AT_EVERY),
            _ => None,
        };
        let window = stands_for.map(|weight| (Window::begin(), weight));
        gatherer.take_filled();
        gatherer.laps().take();
        Self {
            profile,
            began: gatherer.laps().start(),
            window,
        }
    }

    /// Adds it to the profile.
    pub fn end(self, gatherer: &mut Gatherer) {
        let Filled { rows, bytes } = gatherer.take_filled();
        let laps = gatherer.laps();
        let whole = laps.last().saturating_duration_since(self.began);
        let spent = laps.take();
        let blocked = self
            .window
            .map_or_else(Default::default, |(mut window, weight)| {
                window.turn(spent.busy()).saturating_mul(weight)
            });
        self.profile.add(&spent, blocked);
        self.profile.add_gathering(whole);
        self.profile.add_delivered(Delivered {
            samples: rows as u64,
            gathers: 1,
            payload_bytes: bytes as u64,
            ..Delivered::default()
        });
    }
}
