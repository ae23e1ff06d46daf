//! Whether a gather is shared with the crew, though it may take less time than waking a thread does.

use std::time::{Duration, Instant};

use crate::sync::Crew;

/// Bytes of a gather from which on a thread is worth waking.
pub(super) const WAKING_BYTES_MIN: usize = 1 << 20;
/// Bytes of a gather from which on a thread that is awake is worth asking.
const ASKING_BYTES_MIN: usize = 32 << 10;
/// Time after a gather within which another one follows it closely: they are worth a thread that stays awake.
const CLOSELY: Duration = Duration::from_micros(50);
/// A small gather that took longer than this waited for a thread that the system had put aside.
const LATE: Duration = Duration::from_millis(1);
/// Time in which small gathers are not shared, for each time lost by that.
const THRIFT: u32 = 100;

/// What is known of the gathers before.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// When the last one ended.
    ended: Option<Instant>,
    /// Until when small ones are not shared.
    alone_until: Option<Instant>,
}

impl Sharing {
    /// The crew, if it is to share a gather of so many bytes that begins now.
    pub fn crew<'a>(&self, crew: Option<&'a Crew>, bytes: usize, now: Instant) -> Option<&'a Crew> {
        let crew = crew.filter(|crew| crew.threads() > 1)?;
        if bytes >= WAKING_BYTES_MIN {
            return Some(crew);
        }
        if bytes < ASKING_BYTES_MIN || self.alone_until.is_some_and(|until| now < until) {
            return None;
        }
        if crew.is_awake() {
            return Some(crew);
        }
        let is_close = |ended: &Instant| now.saturating_duration_since(*ended) < CLOSELY;
        if self.ended.as_ref().is_some_and(is_close) {
            crew.call();
        }
        None
    }

    /// Learns that a gather of so many bytes has ended now on `threads`, after `time`.
    pub fn ended(&mut self, now: Instant, time: Duration, bytes: usize, threads: usize) {
        self.ended = Some(now);
        if threads > 1 && bytes < WAKING_BYTES_MIN && time > LATE {
            self.alone_until = Some(now + time.saturating_mul(THRIFT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls the crew until one of its threads looks out for work.
    fn wake(crew: &Crew) {
        while !crew.is_awake() {
            crew.call();
            crate::sync::yield_now();
        }
    }

    #[test]
    fn large_gathers_are_shared_and_tiny_ones_are_not() {
        let (crew, alone) = (Crew::new(2), Crew::new(1));
        let (sharing, now) = (Sharing::default(), Instant::now());
        let is_shared = |crew, bytes| sharing.crew(Some(crew), bytes, now).is_some();
        assert!(is_shared(&crew, WAKING_BYTES_MIN));
        assert!(!is_shared(&alone, WAKING_BYTES_MIN));
        assert!(sharing.crew(None, WAKING_BYTES_MIN, now).is_none());
        wake(&crew);
        assert!(!is_shared(&crew, ASKING_BYTES_MIN - 1));
    }

    #[test]
    fn small_gathers_that_follow_each_other_closely_wake_the_crew_and_others_do_not() {
        let crew = Crew::new(2);
        let (mut sharing, began) = (Sharing::default(), Instant::now());
        let small = WAKING_BYTES_MIN - 1;
        sharing.ended(began, Duration::ZERO, small, 1);
        assert!(sharing.crew(Some(&crew), small, began + CLOSELY).is_none());
        assert!(!crew.has_started(), "a thread for gathers far apart");
        while sharing.crew(Some(&crew), small, began).is_none() {
            crate::sync::yield_now();
        }
    }

    #[test]
    fn after_a_thread_was_late_small_gathers_are_not_shared_for_a_hundred_times_as_long() {
        let crew = Crew::new(2);
        let (mut sharing, now) = (Sharing::default(), Instant::now());
        let small = WAKING_BYTES_MIN - 1;
        let late = LATE * 2;
        sharing.ended(now, late, small, 2);
        let is_shared = |sharing: &Sharing, after| {
            wake(&crew);
            (0..100).any(|_| sharing.crew(Some(&crew), small, now + after).is_some())
        };
        assert!(!is_shared(&sharing, late * THRIFT - CLOSELY));
        assert!(is_shared(&sharing, late * THRIFT));
        // Whoever gathers alone, or much, may take long.
        let mut sharing = Sharing::default();
        sharing.ended(now, late, small, 1);
        sharing.ended(now, late, WAKING_BYTES_MIN, 2);
        assert!(is_shared(&sharing, CLOSELY));
    }
}
