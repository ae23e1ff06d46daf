//! The only door to threads, locks and channels, so that one place decides what they do when something goes wrong.

use std::sync::PoisonError;
pub use std::sync::{Mutex, MutexGuard};
use std::thread::Builder;
pub use std::thread::JoinHandle;

pub use crossbeam_channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};

use crate::error::{CacheError, Result};

/// Starts a named thread; a system that is out of threads gives an error, not a panic.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Builder::new()
        .name(format!("dataset_rt-{name}"))
        .spawn(body)
        .map_err(|error| CacheError::internal(format!("cannot start thread {name}: {error}")))
}

/// Locks a mutex whose data stays consistent even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that can run at once here.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `work` on this thread and on `threads - 1` others, and returns when all are done.
pub fn run_on_threads(threads: usize, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}
