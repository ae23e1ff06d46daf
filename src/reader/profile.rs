//! Where the time of reading goes: counters that all readers of a dataset share. Cheap enough to be always on, and without
//! a lock, so that a fork cannot leave one held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::laps::Spent;

/// A part of what threads that load do. Their times add up to more than the whole where several threads load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Computing which samples come.
    Plan,
    /// Looking up index rows, opening files, finding out lengths; with positional reads also reading and verifying.
    Locate,
    /// Comparing records with their checksums.
    Verify,
    /// Decompressing payloads; of single samples also decoding metadata.
    Decode,
    /// Copying values to their place, and fetching them from memory for that; also finding the records that are copied as
    /// soon as they are found.
    Copy,
    /// A worker that waits until the consumer makes room.
    Room,
}

impl Stage {
    /// Every stage with its name, in order.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Plan, "plan"),
        (Self::Locate, "locate"),
        (Self::Verify, "verify"),
        (Self::Decode, "decode"),
        (Self::Copy, "copy"),
        (Self::Room, "room"),
    ];
}

/// What was handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Samples, those of batches and gathers included.
    pub samples: u64,
    /// Batches.
    pub batches: u64,
    /// Calls of gather.
    pub gathers: u64,
    /// Bytes of payloads, or of those fields that were asked for.
    pub payload_bytes: u64,
}

/// Counters of one dataset since it was opened or they were last reset.
#[derive(Debug)]
pub struct Profile {
    opened: Instant,
    /// Nanoseconds from `opened` to the last reset.
    began: AtomicU64,
    stages: [AtomicU64; Stage::ALL.len()],
    blocked: AtomicU64,
    waited: AtomicU64,
    worked: AtomicU64,
    hand_overs: AtomicU64,
    gathering: AtomicU64,
    samples: AtomicU64,
    batches: AtomicU64,
    gathers: AtomicU64,
    payload_bytes: AtomicU64,
    has_warned: AtomicBool,
}

/// What the counters said at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Since the counters began.
    pub elapsed: Duration,
    /// What was handed out.
    pub delivered: Delivered,
    /// Time by stage, without waiting for disks.
    pub stages: Vec<(&'static str, Duration)>,
    /// Waiting for disks.
    pub disk: Duration,
    /// Consumers waiting for samples and batches.
    pub waited: Duration,
    /// What consumers did between them.
    pub worked: Duration,
    /// Callers in gather.
    pub gathering: Duration,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            opened: Instant::now(),
            began: AtomicU64::new(0),
            stages: Default::default(),
            blocked: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            worked: AtomicU64::new(0),
            hand_overs: AtomicU64::new(0),
            gathering: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            gathers: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }
    }
}

/// Shares of its time that a starving consumer waits. One that waits longer does nothing but iterate.
const STARVING: (f64, f64) = (0.5, 0.95);
/// Time of iteration before which nobody starves.
const STARVING_AFTER: Duration = Duration::from_secs(10);
/// Times that something was handed over before which nobody starves.
const STARVING_HAND_OVERS: u64 = 100;
/// What a consumer that is in need does with what it is handed, on average.
const STARVING_WORK: Duration = Duration::from_millis(1);

impl Profile {
    /// Adds what a thread has spent, of which it was kept from running for `blocked`.
    pub fn add(&self, spent: &Spent, blocked: Duration) {
        for ((stage, _), slot) in Stage::ALL.iter().zip(&self.stages) {
            add(slot, spent.get(*stage));
        }
        add(&self.blocked, blocked);
    }

    /// Adds a consumer's waiting for what it got next.
    pub fn add_waiting(&self, time: Duration) {
        add(&self.waited, time);
    }

    /// Adds what a consumer did between getting something and asking for more, `hand_overs` times.
    pub fn add_working(&self, time: Duration, hand_overs: u64) {
        add(&self.worked, time);
        self.hand_overs.fetch_add(hand_overs, Ordering::Relaxed);
    }

    /// Adds the time of a caller in gather.
    pub fn add_gathering(&self, time: Duration) {
        add(&self.gathering, time);
    }

    /// Adds what was handed out.
    pub fn add_delivered(&self, delivered: Delivered) {
        let Delivered {
            samples,
            batches,
            gathers,
            payload_bytes,
        } = delivered;
        for (slot, count) in [
            (&self.samples, samples),
            (&self.batches, batches),
            (&self.gathers, gathers),
            (&self.payload_bytes, payload_bytes),
        ] {
            slot.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Calls of gather so far.
    pub fn gathers(&self) -> u64 {
        self.gathers.load(Ordering::Relaxed)
    }

    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        self.read(|slot| slot.load(Ordering::Relaxed))
    }

    /// The counters now; they begin again.
    pub fn reset(&self) -> Snapshot {
        let snapshot = self.read(|slot| slot.swap(0, Ordering::Relaxed));
        self.hand_overs.store(0, Ordering::Relaxed);
        self.began
            .store(nanoseconds(self.opened.elapsed()), Ordering::Relaxed);
        snapshot
    }

    fn read(&self, read: impl Fn(&AtomicU64) -> u64) -> Snapshot {
        let time = |slot| Duration::from_nanos(read(slot));
        let began = Duration::from_nanos(self.began.load(Ordering::Relaxed));
        let stages = Stage::ALL
            .iter()
            .zip(&self.stages)
            .map(|((stage, name), slot)| (*stage, *name, time(slot)));
        let stages: Vec<_> = stages.collect();
        let is_stopped = |stage: Stage| !matches!(stage, Stage::Plan | Stage::Room);
        let loading: Duration = stages
            .iter()
            .filter(|(stage, ..)| is_stopped(*stage))
            .map(|(.., time)| *time)
            .sum();
        let disk = time(&self.blocked).min(loading);
        // Nobody knows in which stage a thread was stopped, so each gives of its time what it has of the whole.
        let kept = 1.0 - disk.as_secs_f64() / loading.as_secs_f64().max(f64::MIN_POSITIVE);
        let stages = stages.into_iter().map(|(stage, name, time)| {
            let own = if is_stopped(stage) {
                time.mul_f64(kept.clamp(0.0, 1.0))
            } else {
                time
            };
            (name, own)
        });
        Snapshot {
            elapsed: self.opened.elapsed().saturating_sub(began),
            delivered: Delivered {
                samples: read(&self.samples),
                batches: read(&self.batches),
                gathers: read(&self.gathers),
                payload_bytes: read(&self.payload_bytes),
            },
            stages: stages.collect(),
            disk,
            waited: time(&self.waited),
            worked: time(&self.worked),
            gathering: time(&self.gathering),
        }
    }

    /// Whether a consumer starves and nobody was told yet; true once at most. A consumer starves if it has iterated for a
    /// while, does something with what it gets, and still waits for most of the time.
    pub fn is_newly_starving(&self) -> bool {
        let hand_overs = self.hand_overs.load(Ordering::Relaxed);
        if hand_overs < STARVING_HAND_OVERS || self.has_warned.load(Ordering::Relaxed) {
            return false;
        }
        let load = |slot: &AtomicU64| slot.load(Ordering::Relaxed) as f64;
        let (waited, worked) = (load(&self.waited), load(&self.worked));
        let total = waited + worked;
        let (least, most) = STARVING;
        let is_starving = total >= STARVING_AFTER.as_nanos() as f64
            && worked >= STARVING_WORK.as_nanos() as f64 * hand_overs as f64
            && (least..=most).contains(&(waited / total));
        is_starving && !self.has_warned.swap(true, Ordering::Relaxed)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn add(slot: &AtomicU64, time: Duration) {
    if !time.is_zero() {
        slot.fetch_add(nanoseconds(time), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn every_stage_has_its_own_slot_and_name() {
        let profile = Profile::default();
        let mut spent = Spent::default();
        for (position, (stage, _)) in Stage::ALL.iter().enumerate() {
            assert_eq!(*stage as usize, position);
            spent.add(*stage, Duration::from_secs(position as u64 + 1));
        }
        profile.add(&spent, Duration::ZERO);
        for (position, (name, time)) in profile.snapshot().stages.into_iter().enumerate() {
            assert_eq!(name, Stage::ALL[position].1);
            assert_eq!(time, Duration::from_secs(position as u64 + 1));
        }
    }

    #[test]
    fn waiting_for_disks_is_taken_from_the_stages_that_read() {
        let profile = Profile::default();
        let mut spent = Spent::default();
        for (stage, _) in Stage::ALL {
            spent.add(stage, seconds(2.0));
        }
        profile.add(&spent, seconds(4.0));
        let snapshot = profile.snapshot();
        let times: Vec<f64> = snapshot
            .stages
            .iter()
            .map(|(_, time)| time.as_secs_f64())
            .collect();
        assert_eq!(snapshot.disk, seconds(4.0));
        assert_eq!(times, [2.0, 1.0, 1.0, 1.0, 1.0, 2.0]);
        // It is a sample in part, so it can come out too large.
        profile.add(&Spent::default(), seconds(40.0));
        let snapshot = profile.snapshot();
        assert_eq!(snapshot.disk, seconds(8.0));
        assert_eq!(snapshot.stages[4].1, Duration::ZERO);
    }

    #[test]
    fn a_reset_begins_again_and_returns_what_was() {
        let profile = Profile::default();
        let delivered = Delivered {
            samples: 3,
            batches: 1,
            gathers: 2,
            payload_bytes: 99,
        };
        profile.add_delivered(delivered);
        profile.add_waiting(seconds(1.0));
        profile.add_working(seconds(2.0), 1);
        profile.add_gathering(seconds(3.0));
        let before = profile.reset();
        assert_eq!(before.delivered, delivered);
        assert_eq!(
            [before.waited, before.worked, before.gathering],
            [1.0, 2.0, 3.0].map(seconds)
        );
        let after = profile.snapshot();
        assert!(after.elapsed <= profile.opened.elapsed());
        let empty = Profile::default().snapshot();
        assert_eq!(
            after,
            Snapshot {
                elapsed: after.elapsed,
                ..empty
            }
        );
    }

    #[test]
    fn a_consumer_starves_if_it_works_and_waits_longer() {
        let starving = |waited: f64, worked: f64, hand_overs: u64| {
            let profile = Profile::default();
            profile.add_waiting(seconds(waited));
            profile.add_working(seconds(worked), hand_overs);
            let is_starving = profile.is_newly_starving();
            assert!(!profile.is_newly_starving(), "told twice");
            is_starving
        };
        assert!(starving(8.0, 4.0, 1000));
        assert!(!starving(4.0, 8.0, 1000), "it waits, but less");
        assert!(!starving(4.0, 2.0, 1000), "it has just begun");
        assert!(!starving(8.0, 4.0, 99), "it got too little to tell");
        assert!(!starving(8.0, 4.0, 5000), "it hardly works between batches");
        assert!(!starving(990.0, 10.0, 1000), "it only iterates");
    }

    #[test]
    fn a_reset_does_not_warn_again() {
        let profile = Profile::default();
        for is_first in [true, false] {
            profile.add_waiting(seconds(8.0));
            profile.add_working(seconds(4.0), 1000);
            assert_eq!(profile.is_newly_starving(), is_first);
            profile.reset();
        }
    }
}
