//! Threads that wait for work which is too short to start threads for.
//!
//! Waking a thread takes longer than copying a batch, so members look out for more work for a moment after they have done
//! some, and sleep only then; the caller waits for the last of them in the same way.

#![expect(
    unsafe_code,
    reason = "threads that outlive a call cannot borrow from it"
)]

use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::{Thread, current, park};
use std::time::{Duration, Instant};

use super::{JoinHandle, Mutex, OnceLock, Shared, lock, process_id, spawn};
use crate::error::Result;

/// How long a thread looks out before it sleeps: about what waking one takes, twice.
const LOOKING_OUT: Duration = Duration::from_micros(100);
/// Looks between two at the clock.
const LOOKS: u32 = 64;

/// A crew that shares work. The first work starts its threads; dropped, the crew ends them and waits for that.
pub struct Crew {
    threads: usize,
    /// The process that the threads live in.
    process: u32,
    members: OnceLock<Members>,
}

struct Members {
    desk: Arc<Desk>,
    handles: Vec<JoinHandle<()>>,
}

/// Where work is offered and taken.
#[derive(Default)]
struct Desk {
    /// Members that the offers ask for together, for looking at without the lock. Changed under it only.
    places: AtomicUsize,
    offers: Mutex<Offers>,
    called: Condvar,
}

#[derive(Default)]
struct Offers {
    open: Vec<Offer>,
    sleepers: usize,
    is_over: bool,
}

/// Work that more members may join.
struct Offer {
    job: Arc<Job>,
    places: usize,
}

/// Work of one caller.
struct Job {
    /// Borrowed from the caller, whatever it says: see [`Offered::new`].
    work: &'static (dyn Fn() + Sync),
    /// Members that are at it.
    active: AtomicUsize,
    caller: Thread,
}

/// Work that is on offer, or still being done, as long as this exists.
struct Offered<'a> {
    desk: &'a Desk,
    job: Arc<Job>,
}

impl Crew {
    /// A crew of `threads`, the one that brings the work included.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            process: process_id(),
            members: OnceLock::new(),
        }
    }

    /// As [`super::try_map_on_threads`], on the threads of the crew.
    ///
    /// # Errors
    /// The failure of the first item, in item order, that failed.
    pub fn try_map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let shared = Shared::new(items);
        let run = || shared.run(&work);
        let others = self.threads.min(items.len()).saturating_sub(1);
        if others == 0 {
            run();
        } else {
            let members = self
                .members
                .get_or_init(|| Members::start(self.threads - 1));
            let offered = Offered::new(&members.desk, &run, others.min(members.handles.len()));
            run();
            drop(offered);
        }
        shared.results()
    }

    /// Threads of the crew, the one that brings the work included.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl Members {
    /// `count` of them, or as many as the system has left.
    fn start(count: usize) -> Self {
        let desk = Arc::new(Desk::default());
        let mut handles = Vec::new();
        for number in 0..count {
            let own = Arc::clone(&desk);
            match spawn(&format!("crew-{number}"), move || own.serve()) {
                Ok(handle) => handles.push(handle),
                Err(_) => break,
            }
        }
        Self { desk, handles }
    }
}

impl Desk {
    /// Does what is offered until the crew ends.
    fn serve(&self) {
        while let Some(job) = self.take() {
            // What panicked has said so, and its caller misses the outcome.
            let _ = catch_unwind(AssertUnwindSafe(job.work));
            let caller = job.caller.clone();
            if job.active.fetch_sub(1, Ordering::Release) == 1 {
                caller.unpark();
            }
            drop(job);
            look_out(|| self.places.load(Ordering::Relaxed) > 0);
        }
    }

    /// The next work, or `None` once the crew ends. Whoever takes it is counted as active.
    fn take(&self) -> Option<Arc<Job>> {
        let mut offers = lock(&self.offers);
        while !offers.is_over {
            if let Some(offer) = offers.open.iter_mut().find(|offer| offer.places > 0) {
                offer.places -= 1;
                self.places.fetch_sub(1, Ordering::Relaxed);
                offer.job.active.fetch_add(1, Ordering::Relaxed);
                return Some(Arc::clone(&offer.job));
            }
            offers.sleepers += 1;
            offers = self
                .called
                .wait(offers)
                .unwrap_or_else(PoisonError::into_inner);
            offers.sleepers -= 1;
        }
        None
    }
}

impl<'a> Offered<'a> {
    /// Offers `work` to `places` members.
    fn new(desk: &'a Desk, work: &'a (dyn Fn() + Sync + 'a), places: usize) -> Self {
        // SAFETY: the reference is used as long as `work` lives, whatever lifetime it claims. Members call it only while they
        // are counted in `active`, and get there only while the offer is open. This value borrows `work`; its `drop` closes
        // the offer, and returns only when nobody is active. It is private to this module and never forgotten, and the thread
        // that holds it runs `drop` in a panic too.
        let work = unsafe {
            std::mem::transmute::<&'a (dyn Fn() + Sync + 'a), &'static (dyn Fn() + Sync)>(work)
        };
        let job = Arc::new(Job {
            work,
            active: AtomicUsize::new(0),
            caller: current(),
        });
        let mut offers = lock(&desk.offers);
        offers.open.push(Offer {
            job: Arc::clone(&job),
            places,
        });
        desk.places.fetch_add(places, Ordering::Relaxed);
        let calls = places.min(offers.sleepers);
        drop(offers);
        (0..calls).for_each(|_| desk.called.notify_one());
        Self { desk, job }
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        let mut offers = lock(&self.desk.offers);
        let own = |offer: &Offer| Arc::ptr_eq(&offer.job, &self.job);
        if let Some(place) = offers.open.iter().position(own) {
            let offer = offers.open.swap_remove(place);
            self.desk.places.fetch_sub(offer.places, Ordering::Relaxed);
        }
        drop(offers);
        let is_done = || self.job.active.load(Ordering::Acquire) == 0;
        while !look_out(is_done) {
            park();
        }
    }
}

/// Looks for a moment whether something has come true.
fn look_out(is_true: impl Fn() -> bool) -> bool {
    let mut until = None;
    loop {
        for _ in 0..LOOKS {
            if is_true() {
                return true;
            }
            spin_loop();
        }
        let now = Instant::now();
        if now > *until.get_or_insert(now + LOOKING_OUT) {
            return is_true();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let Some(members) = self.members.take() else {
            return;
        };
        if self.process != process_id() {
            // A forked child has neither the threads nor their locks to itself.
            std::mem::forget(members);
            return;
        }
        lock(&members.desk.offers).is_over = true;
        members.desk.called.notify_all();
        for handle in members.handles {
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crew({} threads)", self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CacheError;

    #[test]
    fn callers_at_the_same_time_each_get_their_own_results() {
        let crew = Crew::new(3);
        std::thread::scope(|scope| {
            for caller in 0..4_u64 {
                let crew = &crew;
                scope.spawn(move || {
                    for round in 0..200 {
                        let items: Vec<u64> = (0..1 + round % 7).collect();
                        let found = crew.try_map(&items, |item| Ok(item * caller)).unwrap();
                        assert!(found.iter().zip(&items).all(|(a, b)| *a == b * caller));
                    }
                });
            }
        });
    }

    #[test]
    fn members_that_sleep_are_called_and_end_with_the_crew() {
        let crew = Crew::new(2);
        let items = [(); 2];
        let both = std::sync::Barrier::new(2);
        for _ in 0..3 {
            // Returns only if two threads are at it.
            crew.try_map(&items, |()| {
                both.wait();
                Ok(())
            })
            .unwrap();
            let desk = &crew.members.get().unwrap().desk;
            while lock(&desk.offers).sleepers == 0 {
                super::super::yield_now();
            }
        }
        let desk = Arc::downgrade(&crew.members.get().unwrap().desk);
        drop(crew);
        assert!(desk.upgrade().is_none(), "a thread outlived its crew");
    }

    #[test]
    fn work_that_panics_in_a_member_fails_and_the_crew_goes_on() {
        let crew = Crew::new(2);
        let caller = current().id();
        let both = std::sync::Barrier::new(2);
        let outcome = crew.try_map(&[(); 2], |()| {
            both.wait();
            assert_eq!(current().id(), caller, "on purpose");
            Ok(())
        });
        assert!(matches!(outcome, Err(CacheError::Internal { .. })));
        let found = crew.try_map(&[1, 2, 3], |item| Ok(*item)).unwrap();
        assert_eq!(found, [1, 2, 3]);
    }
}
