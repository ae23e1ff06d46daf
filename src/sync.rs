//! The only door to threads, locks and channels, so that one place decides what they do when something goes wrong.

use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Builder;
pub use std::thread::{JoinHandle, sleep as pause, yield_now};

pub use crossbeam_channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};

use crate::error::{CacheError, Result};

/// Starts a named thread.
///
/// # Errors
/// [`CacheError::Thread`] if the system has none left.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Builder::new()
        .name(format!("dataset_rt-{name}"))
        .spawn(body)
        .map_err(|source| CacheError::Thread {
            name: name.to_owned(),
            source,
        })
}

/// Locks a mutex whose data stays consistent even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that can run at once here.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Applies `work` to every item, on this thread and on up to `threads - 1` others; fewer if the system has no more.
/// Results come in item order; after a failure no further item is begun.
///
/// # Errors
/// The failure of the first item, in item order, that failed.
pub fn try_map_on_threads<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let places: Vec<Mutex<Option<Result<R>>>> = items.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some((item, place)) = {
            let position = next.fetch_add(1, Ordering::Relaxed);
            items.get(position).zip(places.get(position))
        } {
            let outcome = work(item);
            if outcome.is_err() {
                next.fetch_max(items.len(), Ordering::Relaxed);
            }
            *lock(place) = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            if Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    // Items are begun in order, so whatever comes before a failure has an outcome.
    let outcomes = places
        .into_iter()
        .map_while(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner));
    let results = outcomes.collect::<Result<Vec<R>>>()?;
    if results.len() == items.len() {
        return Ok(results);
    }
    Err(CacheError::internal(
        "an item was skipped by the threads that shared the work",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_item_order_and_the_first_failure_wins() {
        let items: Vec<u64> = (0..1000).collect();
        for threads in [0, 1, 2, 7] {
            let squares = try_map_on_threads(threads, &items, |item| Ok(item * item)).unwrap();
            assert!(
                squares
                    .iter()
                    .zip(&items)
                    .all(|(square, item)| *square == item * item)
            );
            let failing = |item: &u64| {
                if item % 100 == 99 {
                    Err(CacheError::internal(item.to_string()))
                } else {
                    Ok(())
                }
            };
            let error = try_map_on_threads(threads, &items, failing).unwrap_err();
            assert!(error.to_string().contains("error: 99;"), "{error}");
        }
        assert!(
            try_map_on_threads(4, &[] as &[u64], |_| Ok(()))
                .unwrap()
                .is_empty()
        );
    }
}
