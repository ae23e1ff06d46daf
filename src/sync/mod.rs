//! The only door to threads, locks and channels, so that one place decides what they do when something goes wrong.

mod crew;
mod process;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Builder;
pub use std::thread::{JoinHandle, sleep as pause, yield_now};
use std::time::Duration;

pub use crossbeam_channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};

pub use self::crew::Crew;
pub use self::process::process_id;
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

/// Threads that can run at once here. The system is asked once: the answer takes it longer than a small gather.
pub fn available_threads() -> usize {
    static THREADS: OnceLock<usize> = OnceLock::new();
    *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
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
    let shared = Shared::new(items);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            if Builder::new()
                .spawn_scoped(scope, || shared.run(&work))
                .is_err()
            {
                break;
            }
        }
        shared.run(&work);
    });
    shared.results()
}

/// Applies `work` to every item on up to `threads` other threads, while this one calls `watch` about once in each `pause`.
/// Results come in item order. After a failure no further item is begun; whatever `watch` fails with is returned once the items begun are done, so it
/// has to tell `work` to hurry itself.
///
/// # Errors
/// That of `watch`, or that of the first item, in item order, that failed; [`CacheError::Thread`] if the system has no
/// thread left at all.
pub fn try_map_watched<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
    pause: Duration,
    watch: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<R>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let shared = Shared::new(items);
    let guarded = |item: &T| {
        catch_unwind(AssertUnwindSafe(|| work(item)))
            .unwrap_or_else(|_| Err(CacheError::internal("a thread panicked over its work")))
    };
    let (working, ended) = bounded::<()>(0);
    let watched = std::thread::scope(|scope| {
        for number in 0..threads.clamp(1, items.len()) {
            let (working, shared, guarded) = (working.clone(), &shared, &guarded);
            let body = move || {
                shared.run(guarded);
                drop(working);
            };
            let name = format!("dataset_rt-work-{number}");
            let started = Builder::new().name(name).spawn_scoped(scope, body);
            match started {
                Ok(_) => {}
                Err(_) if number > 0 => break,
                Err(source) => {
                    let name = "work".to_owned();
                    return Err(CacheError::Thread { name, source });
                }
            }
        }
        drop(working);
        while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if let Err(failure) = watch() {
                shared.begin_no_more();
                return Err(failure);
            }
        }
        Ok(())
    });
    watched?;
    shared.results()
}

/// Items that several threads take in turns, and what became of them.
struct Shared<'a, T, R> {
    items: &'a [T],
    outcomes: Vec<Mutex<Option<Result<R>>>>,
    next: AtomicUsize,
}

impl<'a, T: Sync, R: Send> Shared<'a, T, R> {
    fn new(items: &'a [T]) -> Self {
        Self {
            items,
            outcomes: items.iter().map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Works until there is no item left, or one has failed.
    fn run(&self, work: &(impl Fn(&T) -> Result<R> + Sync)) {
        while let Some((item, place)) = {
            let position = self.next.fetch_add(1, Ordering::Relaxed);
            self.items.get(position).zip(self.outcomes.get(position))
        } {
            let outcome = work(item);
            if outcome.is_err() {
                self.begin_no_more();
            }
            *lock(place) = Some(outcome);
        }
    }

    fn begin_no_more(&self) {
        self.next.fetch_max(self.items.len(), Ordering::Relaxed);
    }

    fn results(self) -> Result<Vec<R>> {
        let wanted = self.items.len();
        // Items are begun in order, so whatever comes before a failure has an outcome.
        let outcomes = self
            .outcomes
            .into_iter()
            .map_while(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner));
        let results = outcomes.collect::<Result<Vec<R>>>()?;
        if results.len() == wanted {
            return Ok(results);
        }
        Err(CacheError::internal(
            "an item was skipped by the threads that shared the work",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_item_order_and_the_first_failure_wins() {
        let items: Vec<u64> = (0..1000).collect();
        for threads in [0, 1, 2, 7] {
            let crew = Crew::new(threads);
            for _ in 0..3 {
                let doubles = crew.try_map(&items, |item| Ok(item * 2)).unwrap();
                assert!(
                    doubles
                        .iter()
                        .zip(&items)
                        .all(|(double, item)| *double == item * 2)
                );
            }
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
            let error = crew.try_map(&items, failing).unwrap_err();
            assert!(error.to_string().contains("error: 99;"), "{error}");
        }
        assert!(
            try_map_on_threads(4, &[] as &[u64], |_| Ok(()))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn watched_work_ends_with_the_failure_of_the_watcher_or_of_the_first_item() {
        let items: Vec<u64> = (0..100).collect();
        let done = AtomicUsize::new(0);
        let count = |_: &u64| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let hour = Duration::from_secs(3600);
        for threads in [0, 1, 3, 200] {
            done.store(0, Ordering::Relaxed);
            try_map_watched(threads, &items, count, hour, &mut || Ok(())).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 100);
        }
        let failing = |item: &u64| match item {
            0..40 => Ok(()),
            40 => panic!("on purpose"),
            _ => Err(CacheError::internal("later")),
        };
        let error = try_map_watched(1, &items, failing, hour, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        // The work waits for the watcher, so the watcher is called.
        let stopped = AtomicUsize::new(0);
        let waiting = |_: &u64| {
            while stopped.load(Ordering::Relaxed) == 0 {
                yield_now();
            }
            Ok(())
        };
        let mut watch = || {
            stopped.store(1, Ordering::Relaxed);
            Err(CacheError::Interrupted)
        };
        let outcome = try_map_watched(2, &items, waiting, Duration::ZERO, &mut watch);
        assert!(matches!(outcome, Err(CacheError::Interrupted)));
    }
}
