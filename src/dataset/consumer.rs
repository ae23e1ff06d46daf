//! The consumer's side of the profile: how long it waits for what it gets next, and what it does in between.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::error::{CacheError, Result};
use crate::reader::{Delivered, Profile};

/// The one that takes what a stream delivers.
#[derive(Debug)]
pub struct Consumer {
    profile: Arc<Profile>,
    /// When something was last handed to it, if it has not asked for more since.
    handed: Option<Instant>,
}

impl Consumer {
    /// One that has not asked yet.
    pub fn new(profile: Arc<Profile>) -> Self {
        Self {
            profile,
            handed: None,
        }
    }

    /// What it tells.
    pub fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// It asks `next` for more and waits for a moment, after which the interrupt that `next` calls ends the wait: `Pending`
    /// means to ask again.
    ///
    /// # Errors
    /// As `next`.
    pub fn wait<T>(
        &mut self,
        next: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<Option<T>>,
    ) -> Result<Poll<Option<T>>> {
        let asked = Instant::now();
        if let Some(handed) = self.handed.take() {
            let worked = asked.saturating_duration_since(handed);
            self.profile.add_working(worked, 1);
        }
        let answer = next(&mut || Err(CacheError::Interrupted));
        let answered = Instant::now();
        self.profile
            .add_waiting(answered.saturating_duration_since(asked));
        self.handed = matches!(answer, Ok(Some(_))).then_some(answered);
        match answer {
            Err(CacheError::Interrupted) => Ok(Poll::Pending),
            answer => answer.map(Poll::Ready),
        }
    }

    /// It was handed this.
    pub fn takes(&self, delivered: Delivered) {
        self.profile.add_delivered(delivered);
    }
}
