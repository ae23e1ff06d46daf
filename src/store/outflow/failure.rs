//! How the threads of a write stop together: the first error is kept, and everybody else ends quietly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{CacheError, Result};
use crate::sync::{Mutex, lock};

/// Longest a blocked thread waits before it looks whether it should stop.
pub const TICK: Duration = Duration::from_millis(50);

/// The state of a write that all its threads watch.
#[derive(Debug, Default)]
pub struct Failure {
    stopped: AtomicBool,
    first: Mutex<Option<CacheError>>,
}

impl Failure {
    /// Asks all threads to end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether the threads should end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// [`CacheError::Interrupted`] once the threads should end.
    pub fn check(&self) -> Result<()> {
        match self.is_stopped() {
            false => Ok(()),
            true => Err(CacheError::Interrupted),
        }
    }

    /// Keeps an error if it is the first, and stops everybody.
    ///
    /// A thread that ends because another has ended does so with [`CacheError::Interrupted`], which is no reason: the
    /// other's error may not have been kept yet.
    pub fn set(&self, error: CacheError) {
        if matches!(error, CacheError::Interrupted) {
            return;
        }
        lock(&self.first).get_or_insert(error);
        self.stop();
    }

    /// The first error, once all threads have ended; a write that stopped without one is a defect.
    pub fn take(&self) -> CacheError {
        lock(&self.first)
            .take()
            .unwrap_or_else(|| CacheError::internal("a write stopped without saying why"))
    }

    /// Runs the body of a thread: its error, or its panic as one, is kept.
    pub fn guard(&self, thread: &str, body: impl FnOnce() -> Result<()>) {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.set(error),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                self.set(CacheError::internal(format!(
                    "the {thread} thread of a write panicked: {text}"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_one_reported() {
        let failure = Failure::default();
        failure.set(CacheError::Interrupted);
        assert!(!failure.is_stopped());
        failure.set(CacheError::internal("first"));
        failure.set(CacheError::internal("second"));
        assert!(failure.is_stopped());
        assert!(failure.take().to_string().contains("first"));
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let failure = Failure::default();
        failure.guard("test", || panic!("by {}", "intent"));
        let text = failure.take().to_string();
        assert!(
            text.contains("test thread") && text.contains("by intent"),
            "{text}"
        );
    }
}
