//! Scheduler, workers, bounded queues and reorder buffer of sample iteration.
//!
//! The consumer is the scheduler: it keeps at most `prefetch_size` samples out as tasks, each a short run of positions.
//! Workers take tasks in any order and answer with chunks; the consumer puts the chunks back in order. The result queue
//! has room for every task that can be out, so a worker never waits to deliver, and closing the task queue ends them all.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Plan;
use super::chunk::Chunk;
use super::loader::Loader;
use crate::error::{CacheError, Result};
use crate::limits::{CHUNK_BYTES_TARGET, CHUNK_SAMPLES_MAX, PREFETCH_MAX, THREADS_MAX};
use crate::store::cache::Cache;
use crate::sync::{Receiver, RecvTimeoutError, Sender, bounded, spawn};
use crate::types::{Io, SampleRef, Verify};

/// How often a waiting consumer looks for an interrupt.
const PATIENCE: Duration = Duration::from_millis(50);

/// Options of a reader, checked by [`ReaderOptions::check`].
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Most samples in flight: asked for and not yet handed out.
    pub prefetch_size: usize,
    /// Worker threads.
    pub num_workers: usize,
    /// What is compared with its checksum.
    pub verify: Verify,
    /// How files are read; resolved.
    pub io: Io,
}

impl ReaderOptions {
    /// # Errors
    /// [`CacheError::Option`] naming the option, its range and the value.
    pub fn check(&self) -> Result<()> {
        for (name, value, limit) in [
            ("prefetch_size", self.prefetch_size, PREFETCH_MAX),
            ("num_workers", self.num_workers, THREADS_MAX),
        ] {
            if value == 0 || value > limit {
                return Err(CacheError::option(name, format!("1 to {limit}"), value));
            }
        }
        Ok(())
    }
}

/// A run of positions to load.
struct Task {
    number: u64,
    start: u64,
    count: usize,
    chunk: Chunk,
}

/// What a worker made of a task: the samples before the first failure, and the failure.
struct Outcome {
    number: u64,
    count: usize,
    chunk: Chunk,
    failure: Option<CacheError>,
}

/// Samples of a plan in order, loaded ahead by worker threads. Dropping it stops them.
pub struct SampleReader {
    total: u64,
    prefetch_size: usize,
    /// First position no task covers yet.
    next_position: u64,
    /// Number of the next task to send, and of the next chunk to hand out.
    next_task: u64,
    next_chunk: u64,
    /// Samples in tasks that are out or in the chunk last handed out.
    in_flight: usize,
    held: usize,
    chunk_len: usize,
    tasks: Option<Sender<Task>>,
    outcomes: Receiver<Outcome>,
    /// Chunks that came early; the front is `next_chunk`.
    reorder: VecDeque<Option<Outcome>>,
    failed: Option<CacheError>,
    recycled: Vec<Chunk>,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl SampleReader {
    /// Starts reading `plan` from position `start`.
    pub fn start(
        plan: Arc<dyn Plan>,
        caches: &Arc<[Arc<Cache>]>,
        options: ReaderOptions,
        start: u64,
    ) -> Result<Self> {
        options.check()?;
        let remaining = plan.len().saturating_sub(start);
        let prefetch_size = options.prefetch_size;
        let (tasks, task_queue) = bounded::<Task>(prefetch_size);
        let (outcome_queue, outcomes) = bounded::<Outcome>(prefetch_size);
        let stop = Arc::new(AtomicBool::new(false));
        let wanted = usize::try_from(remaining)
            .unwrap_or(usize::MAX)
            .min(options.num_workers);
        let mut reader = Self {
            total: plan.len(),
            prefetch_size,
            next_position: start,
            next_task: 0,
            next_chunk: 0,
            in_flight: 0,
            held: 0,
            chunk_len: 1,
            tasks: Some(tasks),
            outcomes,
            reorder: VecDeque::new(),
            failed: None,
            recycled: Vec::new(),
            stop: Arc::clone(&stop),
            workers: Vec::new(),
        };
        for _ in 0..wanted {
            let worker = Worker {
                plan: Arc::clone(&plan),
                loader: Loader::new(Arc::clone(caches), options.io, options.verify),
                stop: Arc::clone(&stop),
                references: Vec::new(),
            };
            let (tasks, outcomes) = (task_queue.clone(), outcome_queue.clone());
            reader
                .workers
                .push(spawn("reader", move || worker.run(&tasks, &outcomes))?);
        }
        reader.schedule();
        Ok(reader)
    }

    /// The next samples in order, or `None` after the last; a sample that cannot be read is reported in its place, after
    /// the samples before it, and ends the iteration.
    ///
    /// `interrupt` is called about every 50 ms of waiting; its error ends the wait and is returned.
    ///
    /// # Errors
    /// As [`Loader::load`], and whatever `interrupt` returns.
    pub fn next_chunk(
        &mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Chunk>> {
        self.in_flight -= self.held;
        self.held = 0;
        if let Some(failure) = self.failed.take() {
            self.close();
            return Err(failure);
        }
        self.schedule();
        if self.tasks.is_none() || self.next_chunk == self.next_task {
            self.close();
            return Ok(None);
        }
        let outcome = self.wait(interrupt)?;
        self.next_chunk += 1;
        self.held = outcome.count;
        self.adapt(&outcome);
        match outcome.failure {
            Some(failure) if outcome.chunk.is_empty() => {
                self.close();
                Err(failure)
            }
            failure => {
                self.failed = failure;
                Ok(Some(outcome.chunk))
            }
        }
    }

    /// Takes back a chunk whose samples were consumed, to use its memory again.
    pub fn recycle(&mut self, mut chunk: Chunk) {
        chunk.clear();
        self.recycled.push(chunk);
    }

    /// Stops the workers and waits for them: each finishes at most the record it is reading.
    pub fn close(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks = None;
        for worker in self.workers.drain(..) {
            // A worker that panicked has already reported it as the outcome of its task.
            let _ = worker.join();
        }
        self.reorder.clear();
        self.recycled.clear();
    }

    /// Sends tasks until `prefetch_size` samples are in flight or the plan ends.
    fn schedule(&mut self) {
        let Some(tasks) = &self.tasks else { return };
        while self.next_position < self.total {
            let room = self.prefetch_size.saturating_sub(self.in_flight);
            let left = usize::try_from(self.total - self.next_position).unwrap_or(usize::MAX);
            // A short task at the edge of the window would cost as much as a full one.
            if room < self.chunk_len.min(left) {
                return;
            }
            let count = self.chunk_len.min(left);
            let chunk = self.recycled.pop().unwrap_or_default();
            let task = Task {
                number: self.next_task,
                start: self.next_position,
                count,
                chunk,
            };
            if tasks.send(task).is_err() {
                return;
            }
            self.next_task += 1;
            self.next_position += count as u64;
            self.in_flight += count;
        }
    }

    /// The outcome of task `next_chunk`.
    fn wait(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Outcome> {
        loop {
            if let Some(front) = self.reorder.front_mut().and_then(Option::take) {
                self.reorder.pop_front();
                return Ok(front);
            }
            let outcome = match self.outcomes.recv_timeout(PATIENCE) {
                Ok(outcome) => outcome,
                Err(RecvTimeoutError::Timeout) => {
                    interrupt()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.close();
                    return Err(CacheError::internal("every reader thread is gone"));
                }
            };
            let ahead = usize::try_from(outcome.number - self.next_chunk).unwrap_or(usize::MAX);
            if ahead == 0 {
                self.reorder.pop_front();
                return Ok(outcome);
            }
            if self.reorder.len() <= ahead {
                self.reorder.resize_with(ahead + 1, || None);
            }
            if let Some(place) = self.reorder.get_mut(ahead) {
                *place = Some(outcome);
            }
        }
    }

    /// Makes later tasks longer until a chunk holds enough bytes, so that small samples cost few wake-ups and large ones
    /// are spread over the workers. Starts at one sample: the first comes as soon as it can.
    fn adapt(&mut self, outcome: &Outcome) {
        let mean = outcome.chunk.payload_bytes() / outcome.chunk.len().max(1);
        let by_bytes = CHUNK_BYTES_TARGET / mean.max(1);
        let by_window = (self.prefetch_size / 4).max(1);
        self.chunk_len = (outcome.count * 2)
            .min(by_bytes)
            .min(by_window)
            .clamp(1, CHUNK_SAMPLES_MAX);
    }
}

impl Drop for SampleReader {
    fn drop(&mut self) {
        self.close();
    }
}

struct Worker {
    plan: Arc<dyn Plan>,
    loader: Loader,
    stop: Arc<AtomicBool>,
    references: Vec<SampleRef>,
}

impl Worker {
    fn run(mut self, tasks: &Receiver<Task>, outcomes: &Sender<Outcome>) {
        while let Ok(task) = tasks.recv() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let Task {
                number,
                start,
                count,
                mut chunk,
            } = task;
            let loaded = catch_unwind(AssertUnwindSafe(|| self.load(start, count, &mut chunk)));
            let failure = loaded
                .unwrap_or_else(|_| Err(CacheError::internal("a reader thread panicked")))
                .err();
            if outcomes
                .send(Outcome {
                    number,
                    count,
                    chunk,
                    failure,
                })
                .is_err()
            {
                return;
            }
        }
    }

    fn load(&mut self, start: u64, count: usize, chunk: &mut Chunk) -> Result<()> {
        self.plan.fill(start, count, &mut self.references)?;
        for reference in &self.references {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CacheError::Interrupted);
            }
            self.loader.load(*reference, chunk)?;
        }
        Ok(())
    }
}
