//! The consumer's side of the profile: how long it waits for what it gets next, and what it does in between.

use std::sync::Arc;
use std::time::Instant;

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

    /// It asks for more; returns when.
    pub fn asks(&mut self) -> Instant {
        let now = Instant::now();
        if let Some(handed) = self.handed.take() {
            let worked = now.saturating_duration_since(handed);
            self.profile.add_working(worked, 1);
        }
        now
    }

    /// The wait since it asked is over, and it was handed something or not.
    pub fn is_answered(&mut self, asked: Instant, is_handed: bool) {
        let now = Instant::now();
        self.profile
            .add_waiting(now.saturating_duration_since(asked));
        self.handed = is_handed.then_some(now);
    }

    /// It was handed this.
    pub fn takes(&self, delivered: Delivered) {
        self.profile.add_delivered(delivered);
    }
}
