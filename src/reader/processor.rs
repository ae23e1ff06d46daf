//! How much of a piece of time this thread was kept from running, which for a reader means that it waited for a disk.
//!
//! A page of a mapped file that is not in memory stops the thread where it is read, so no call can be timed. The
//! processor time of the thread can: what passes besides it was spent waiting.

use std::time::Duration;

/// Waiting below this is noise, and not worth asking who is to blame.
const BLOCKED_MIN: Duration = Duration::from_micros(100);

/// A piece of this thread's time.
#[derive(Debug)]
pub struct Window {
    /// What the thread had run when it began; `None` where the system does not tell.
    ran: Option<Duration>,
    /// What the thread had waited for a processor by then, as far as it was looked up.
    queued: Duration,
}

impl Window {
    /// Begins now.
    pub fn begin() -> Self {
        Self {
            ran: processor_time(),
            queued: queue_time(),
        }
    }

    /// How long the thread was kept from running in `busy`, its working time since the window began, and not for want of a
    /// processor. The next window begins.
    ///
    /// What it did meanwhile besides working makes this less, never more.
    pub fn turn(&mut self, busy: Duration) -> Duration {
        let now = processor_time();
        let blocked = match (now, self.ran) {
            (Some(now), Some(before)) => busy.saturating_sub(now.saturating_sub(before)),
            _ => Duration::ZERO,
        };
        self.ran = now;
        if blocked < BLOCKED_MIN {
            return Duration::ZERO;
        }
        let queued = queue_time();
        let crowded = queued.saturating_sub(self.queued);
        self.queued = queued;
        blocked.saturating_sub(crowded)
    }
}

/// What this thread has run so far.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?);
    Some(Duration::new(seconds, nanoseconds))
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn processor_time() -> Option<Duration> {
    None
}

/// What this thread has waited for a processor so far; nothing where the system does not count it.
#[cfg(target_os = "linux")]
fn queue_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_ascii_whitespace().nth(1);
    let nanoseconds = nanoseconds.and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

#[cfg(not(target_os = "linux"))]
fn queue_time() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_the_thread_did_not_run_is_time_it_was_blocked() {
        let mut window = Window::begin();
        let is_told = window.ran.is_some();
        // Working time that never passed: the thread cannot have run in it.
        let hour = Duration::from_secs(3600);
        let blocked = window.turn(hour);
        if is_told {
            assert!(blocked > hour / 2, "{blocked:?}");
        } else {
            assert_eq!(blocked, Duration::ZERO);
        }
        assert_eq!(window.turn(BLOCKED_MIN / 2), Duration::ZERO);
    }

    #[test]
    fn time_that_the_thread_ran_is_not() {
        let mut window = Window::begin();
        let before = processor_time();
        let mut sum = 0_u64;
        while processor_time() < before.map(|before| before + Duration::from_millis(5)) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(window.turn(Duration::from_millis(5)), Duration::ZERO);
    }
}
