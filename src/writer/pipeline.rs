//! The threads of one write, and the bounded ways between them.
//!
//! ```text
//! source ─ chunks ─> workers: encode ── in order ──> commit ─ blocks ─┬─> write ─ files ─> sync
//!    ^                                                 │              └─> hash
//!    └──────────────── emptied chunks ─────────────────┘
//! ```
//!
//! There is no commit thread: the worker that ends the gap in the order commits its chunk and every later one that
//! already waits, so a chunk crosses threads only twice. The number of chunks is fixed, so nothing here can pile up: a
//! source that is faster than the disk waits for an emptied chunk.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use super::chunk::Chunk;
use super::commit::{Committed, Committer};
use super::encode::encode;
use super::failure::{Failure, TICK};
use super::files::{self, Digest, SYNC_QUEUE};
use super::options::WriterOptions;
use super::output::{Outputs, Tag};
use super::profiler::{Profile, Stage};
use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::store::publish::Staging;
use crate::sync::{Receiver, RecvTimeoutError, Sender, bounded, lock, spawn};

/// What the workers are given.
enum Work {
    Chunk(Box<Chunk>),
    /// All chunks before this number were sent.
    End(u64),
}

/// What is known when all threads have ended well.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub committed: Option<Committed>,
    pub digests: HashMap<Tag, Digest>,
}

/// Chunks that wait for their turn to be committed.
struct Turn {
    next: u64,
    waiting: BTreeMap<u64, Work>,
    /// Away while a worker commits.
    committer: Option<Committer>,
}

/// What all threads share.
struct Shared {
    algorithm: Algorithm,
    failure: Arc<Failure>,
    profile: Arc<Profile>,
    turn: Mutex<Turn>,
    outcome: Mutex<Outcome>,
}

/// The running threads of one write. Dropped, it stops and joins them.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    work: Option<Sender<Work>>,
    emptied: Receiver<Box<Chunk>>,
    /// Chunks that may still be made, and those sent so far.
    unmade: usize,
    sent: u64,
    /// Nothing is sent; it disconnects when all threads have ended.
    ended: Receiver<Infallible>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Pipeline {
    /// Creates the first files in `staging` and starts the threads.
    pub fn start(
        staging: &Arc<Staging>,
        options: &WriterOptions,
        profile: &Arc<Profile>,
    ) -> Result<Self> {
        let failure = Arc::new(Failure::default());
        let (outputs, to_write, to_hash) = Outputs::new(Arc::clone(staging), Arc::clone(&failure));
        let committer = Committer::new(Arc::new(outputs), options.max_shard_bytes())?;
        let shared = Arc::new(Shared {
            algorithm: options.compression().algo,
            failure,
            profile: Arc::clone(profile),
            turn: Mutex::new(Turn {
                next: 0,
                waiting: BTreeMap::new(),
                committer: Some(committer),
            }),
            outcome: Mutex::default(),
        });
        let (chunks, _) = options.chunks();
        let (work, to_work) = bounded(chunks + 1);
        let (to_emptied, emptied) = bounded(chunks);
        let (alive, ended) = bounded(1);
        let mut pipeline = Self {
            shared,
            work: Some(work),
            emptied,
            unmade: chunks,
            sent: 0,
            ended,
            workers: Vec::new(),
            others: Vec::new(),
        };
        let (to_sync, synced) = bounded(SYNC_QUEUE);
        pipeline.other("write", &alive, move |shared| {
            files::write(&to_write, &to_sync, &shared.failure, &shared.profile)
        })?;
        pipeline.other("sync", &alive, move |shared| {
            files::sync(&synced, &shared.failure, &shared.profile)
        })?;
        pipeline.other("hash", &alive, move |shared| {
            let digests = files::hash(&to_hash, &shared.failure, &shared.profile)?;
            lock(&shared.outcome).digests = digests;
            Ok(())
        })?;
        for _ in 0..options.workers() {
            let (to_work, to_emptied) = (to_work.clone(), to_emptied.clone());
            let worker = pipeline.thread("encode", &alive, move |shared| {
                worker(shared, &to_work, &to_emptied)
            })?;
            pipeline.workers.push(worker);
        }
        Ok(pipeline)
    }

    fn other(
        &mut self,
        name: &'static str,
        alive: &Sender<Infallible>,
        body: impl FnOnce(&Shared) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let handle = self.thread(name, alive, body)?;
        self.others.push(handle);
        Ok(())
    }

    fn thread(
        &self,
        name: &'static str,
        alive: &Sender<Infallible>,
        body: impl FnOnce(&Shared) -> Result<()> + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let (shared, alive) = (Arc::clone(&self.shared), alive.clone());
        spawn(name, move || {
            shared.failure.guard(name, || body(&shared));
            drop(alive);
        })
    }

    /// An empty chunk to fill; waits for one, calling `interrupt` at least every 50 ms.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn empty_chunk(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<Box<Chunk>> {
        if let Ok(chunk) = self.emptied.try_recv() {
            return Ok(chunk);
        }
        if self.unmade > 0 {
            self.unmade -= 1;
            return Ok(Box::default());
        }
        let began = Instant::now();
        loop {
            match self.emptied.recv_timeout(TICK) {
                Ok(chunk) => {
                    self.shared.profile.add(Stage::QueueWait, began.elapsed());
                    return Ok(chunk);
                }
                Err(RecvTimeoutError::Timeout) => self.look(interrupt)?,
                Err(RecvTimeoutError::Disconnected) => return Err(self.first_error()),
            }
        }
    }

    /// Sends a filled chunk. Never waits: the queue has room for every chunk there is.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn send(&mut self, mut chunk: Box<Chunk>) -> Result<()> {
        chunk.number = self.sent;
        self.shared
            .profile
            .enter(chunk.len() as u64, chunk.payloads.byte_len() as u64);
        self.pass(Work::Chunk(chunk))?;
        self.sent += 1;
        Ok(())
    }

    fn pass(&mut self, work: Work) -> Result<()> {
        let sender = self.work.as_ref();
        let sent = sender.is_some_and(|sender| sender.send(work).is_ok());
        if sent && !self.shared.failure.is_stopped() {
            return Ok(());
        }
        Err(self.first_error())
    }

    fn look(&mut self, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        if self.shared.failure.is_stopped() {
            return Err(self.first_error());
        }
        interrupt()
    }

    /// Ends all threads, so that none has an error left to tell.
    fn first_error(&mut self) -> CacheError {
        self.stop();
        self.shared.failure.take()
    }

    fn stop(&mut self) {
        self.shared.failure.stop();
        self.work = None;
        for handle in self.workers.drain(..) {
            let _ = handle.join();
        }
        // The committer holds the ways to the other threads, which end once it is gone.
        drop(lock(&self.shared.turn).committer.take());
        for handle in self.others.drain(..) {
            let _ = handle.join();
        }
    }

    /// Waits until everything sent is in durable files, calling `interrupt` at least every 50 ms.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn finish(
        mut self,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Committed, HashMap<Tag, Digest>)> {
        self.pass(Work::End(self.sent))?;
        self.work = None;
        while let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(TICK) {
            self.look(interrupt)?;
        }
        if self.shared.failure.is_stopped() {
            return Err(self.first_error());
        }
        let outcome = std::mem::take(&mut *lock(&self.shared.outcome));
        match outcome.committed {
            Some(committed) => Ok((committed, outcome.digests)),
            None => Err(self.first_error()),
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.stop();
    }
}

fn worker(shared: &Shared, work: &Receiver<Work>, emptied: &Sender<Box<Chunk>>) -> Result<()> {
    for mut work in work {
        shared.failure.check()?;
        let number = match &mut work {
            Work::End(number) => *number,
            Work::Chunk(chunk) => {
                encode(chunk, shared.algorithm, &shared.profile)?;
                chunk.number
            }
        };
        take_turn(shared, number, work, emptied)?;
    }
    Ok(())
}

/// Queues one piece of work by its number, and commits what is next for as long as nobody else does.
fn take_turn(shared: &Shared, number: u64, work: Work, emptied: &Sender<Box<Chunk>>) -> Result<()> {
    let mut turn = lock(&shared.turn);
    turn.waiting.insert(number, work);
    loop {
        let next = turn.next;
        if turn.committer.is_none() || !turn.waiting.contains_key(&next) {
            return Ok(());
        }
        let (Some(work), Some(mut committer)) = (turn.waiting.remove(&next), turn.committer.take())
        else {
            return Ok(());
        };
        turn.next += 1;
        drop(turn);
        match work {
            Work::Chunk(mut chunk) => {
                shared
                    .profile
                    .time(Stage::Commit, || committer.commit(&chunk))?;
                shared
                    .profile
                    .leave(chunk.len() as u64, chunk.payloads.byte_len() as u64);
                chunk.clear();
                // Nobody waits for it once the source has ended.
                let _ = emptied.try_send(chunk);
            }
            Work::End(_) => {
                lock(&shared.outcome).committed = Some(committer.complete()?);
                return Ok(());
            }
        }
        turn = lock(&shared.turn);
        turn.committer = Some(committer);
    }
}
