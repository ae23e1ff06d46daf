//! Where the time of a write goes: busy time and count per stage, the peak of what was in flight, and a JSON report.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::{CacheError, Result};
use crate::store::outflow::files::Step;
use crate::sync::{Mutex, lock};

/// A part of the work that is timed by itself. Stages run side by side, so their times add up to more than the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the source to yield; counted per chunk.
    SourceWait,
    /// Taking payload and metadata out of what the source yielded; per chunk.
    Ingest,
    /// Writing metadata as JSON; per chunk.
    Encode,
    /// Compressing payloads, or copying them into their stored form; per chunk.
    Compress,
    /// Checksums of records; per chunk.
    Checksum,
    /// The source's thread waiting for room in the pipeline; per wait.
    QueueWait,
    /// Placing records into shards, index and metadata table; per chunk.
    Commit,
    /// Handing blocks to the operating system; per block.
    Write,
    /// SHA-256 of the files; per block.
    Hash,
    /// Making files durable; per file.
    Fsync,
    /// Making the cache visible and durable; per cache.
    Publish,
}

impl Stage {
    const ALL: [(Self, &'static str); 11] = [
        (Self::SourceWait, "source_wait"),
        (Self::Ingest, "ingest"),
        (Self::Encode, "encode"),
        (Self::Compress, "compress"),
        (Self::Checksum, "checksum"),
        (Self::QueueWait, "queue_wait"),
        (Self::Commit, "commit"),
        (Self::Write, "write"),
        (Self::Hash, "hash"),
        (Self::Fsync, "fsync"),
        (Self::Publish, "publish"),
    ];
}

#[derive(Debug, Default)]
struct Spent {
    nanoseconds: AtomicU64,
    count: AtomicU64,
}

/// Counters of one `write_cache` call, shared by all its threads. Cheap enough to be always on.
#[derive(Debug)]
pub struct Profile {
    began: Instant,
    stages: [Spent; Stage::ALL.len()],
    samples: AtomicU64,
    payload_bytes: AtomicU64,
    flight: Flight,
    sources: Mutex<Vec<Value>>,
}

/// Samples and payload bytes between the source and the write blocks.
#[derive(Debug, Default)]
struct Flight {
    samples: AtomicU64,
    payload_bytes: AtomicU64,
    samples_peak: AtomicU64,
    payload_bytes_peak: AtomicU64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            stages: Default::default(),
            samples: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            flight: Flight::default(),
            sources: Mutex::new(Vec::new()),
        }
    }
}

impl Profile {
    /// Runs `work` as part of `stage`.
    pub fn time<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let outcome = work();
        self.add(stage, began.elapsed());
        outcome
    }

    /// Adds what the threads between blocks and the disk do.
    pub(super) fn watch(&self) -> impl Fn(Step, Duration) {
        |step, spent| {
            let stage = match step {
                Step::Write => Stage::Write,
                Step::Hash => Stage::Hash,
                Step::Sync => Stage::Fsync,
            };
            self.add(stage, spent);
        }
    }

    /// Adds one piece of work of `stage` that was timed elsewhere.
    pub fn add(&self, stage: Stage, spent: Duration) {
        if let Some(slot) = self.stages.get(stage as usize) {
            let nanoseconds = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            slot.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
            slot.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Time since the profile was begun.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Samples and payload bytes that reached the write blocks.
    pub fn committed(&self) -> (u64, u64) {
        (
            self.samples.load(Ordering::Relaxed),
            self.payload_bytes.load(Ordering::Relaxed),
        )
    }

    /// Most samples and payload bytes that were in flight at once.
    pub fn peak_in_flight(&self) -> (u64, u64) {
        (
            self.flight.samples_peak.load(Ordering::Relaxed),
            self.flight.payload_bytes_peak.load(Ordering::Relaxed),
        )
    }

    /// A filled chunk enters the pipeline.
    pub(super) fn enter(&self, samples: u64, payload_bytes: u64) {
        let flight = &self.flight;
        let now = flight.samples.fetch_add(samples, Ordering::Relaxed) + samples;
        flight.samples_peak.fetch_max(now, Ordering::Relaxed);
        let now = flight
            .payload_bytes
            .fetch_add(payload_bytes, Ordering::Relaxed)
            + payload_bytes;
        flight.payload_bytes_peak.fetch_max(now, Ordering::Relaxed);
    }

    /// A chunk has been copied into the write blocks.
    pub(super) fn leave(&self, samples: u64, payload_bytes: u64) {
        self.flight.samples.fetch_sub(samples, Ordering::Relaxed);
        self.flight
            .payload_bytes
            .fetch_sub(payload_bytes, Ordering::Relaxed);
        self.samples.fetch_add(samples, Ordering::Relaxed);
        self.payload_bytes
            .fetch_add(payload_bytes, Ordering::Relaxed);
    }

    /// Notes how one source ended: `written`, `reused`, `error` or `interrupted`.
    pub fn note_source(&self, name: &str, status: &str, detail: &str) {
        lock(&self.sources).push(json!({ "name": name, "status": status, "detail": detail }));
    }

    /// The report.
    pub fn report(&self, status: &str) -> Value {
        let stages: Map<String, Value> = Stage::ALL
            .iter()
            .zip(&self.stages)
            .map(|((_, name), spent)| {
                let seconds = spent.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
                let count = spent.count.load(Ordering::Relaxed);
                (
                    (*name).to_owned(),
                    json!({ "seconds": seconds, "count": count }),
                )
            })
            .collect();
        let (samples, payload_bytes) = self.committed();
        let (samples_peak, payload_bytes_peak) = self.peak_in_flight();
        json!({
            "status": status,
            "wall_seconds": self.elapsed().as_secs_f64(),
            "samples": samples,
            "payload_bytes": payload_bytes,
            "peak_samples_in_flight": samples_peak,
            "peak_payload_bytes_in_flight": payload_bytes_peak,
            "stages": stages,
            "sources": *lock(&self.sources),
        })
    }

    /// Writes the report to a file of its own, replacing an earlier one.
    pub fn write_report(&self, path: &Path, status: &str) -> Result<()> {
        let fault = |error| CacheError::io("write the profile to", path, error);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fault)?;
        }
        let mut text =
            serde_json::to_vec_pretty(&self.report(status)).map_err(|error| fault(error.into()))?;
        text.push(b'\n');
        fs::write(path, text).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_its_own_slot_and_name() {
        let profile = Profile::default();
        for (position, (stage, _)) in Stage::ALL.iter().enumerate() {
            assert_eq!(*stage as usize, position);
            profile.add(*stage, Duration::from_secs(position as u64 + 1));
        }
        let report = profile.report("ok");
        for (position, (_, name)) in Stage::ALL.iter().enumerate() {
            assert_eq!(report["stages"][name]["seconds"], position as f64 + 1.0);
            assert_eq!(report["stages"][name]["count"], 1);
        }
    }

    #[test]
    fn the_peak_is_of_what_was_in_flight_at_once() {
        let profile = Profile::default();
        profile.enter(3, 30);
        profile.enter(2, 20);
        profile.leave(3, 30);
        profile.enter(1, 10);
        assert_eq!(profile.peak_in_flight(), (5, 50));
        assert_eq!(profile.committed(), (3, 30));
    }

    #[test]
    fn the_report_is_written_into_folders_it_creates() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/profile.json");
        let profile = Profile::default();
        profile.note_source("train", "error", "sample 3: no");
        profile.write_report(&path, "interrupted").unwrap();
        let report: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(report["status"], "interrupted");
        assert_eq!(report["sources"][0]["detail"], "sample 3: no");
    }
}
