//! The threads of one write, and the bounded ways between them.
//!
//! ```text
//! source ─ chunks ─> workers: encode ── in order ──> commit ─ blocks ─┬─> write ─ files ─> sync
//!    ^                                                 │              └─> hash
//!    └──────────────── emptied chunks ─────────────────┘
//! ```
//!
//! There is no commit thread: whoever brings the next chunk in order commits it ([`super::turn`]), so a chunk crosses
//! threads only twice. The number of chunks is fixed, so nothing here can pile up: a source that is faster than its
//! workers does a light chunk of their work itself, which is quicker than waking them for it, and a source that is
//! faster than the disk waits for an emptied chunk.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::before::Before;
use super::chunk::Chunk;
use super::commit::{Committed, Committer};
use super::options::WriterOptions;
use super::profiler::{Profile, Stage};
use super::training::Lesson;
use super::turn::{Patience, Shared, Work};
use crate::error::{CacheError, Result};
use crate::format::compression::Recipe;
use crate::store::outflow::failure::{Failure, TICK};
use crate::store::outflow::files::{self, Digest, SYNC_QUEUE};
use crate::store::outflow::output::{Outputs, Tag};
use crate::store::publish::Staging;
use crate::sync::{JoinHandle, Receiver, RecvTimeoutError, Sender, bounded, lock, spawn};

/// The running threads of one write. Dropped, it stops and joins them.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    work: Option<Sender<Work>>,
    /// The other end of `work`, and of `emptied`, for doing the workers' part.
    queue: Receiver<Work>,
    emptied: Receiver<Box<Chunk>>,
    to_emptied: Sender<Box<Chunk>>,
    /// Chunks that may still be made, and those sent so far.
    unmade: usize,
    sent: u64,
    /// Whether this thread may compress too, where that is light work.
    helps: bool,
    /// Nothing is sent; it disconnects when all threads have ended.
    ended: Receiver<Infallible>,
    workers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Pipeline {
    /// Creates the first files in `staging` and starts the threads. Without a recipe, a dictionary is to be trained.
    pub fn start(
        staging: &Arc<Staging>,
        options: &WriterOptions,
        recipe: Option<Recipe>,
        before: Before,
        profile: &Arc<Profile>,
    ) -> Result<Self> {
        let failure = Arc::new(Failure::default());
        let (outputs, to_write, to_hash) = Outputs::new(Arc::clone(staging), Arc::clone(&failure));
        let first_id = before.ids;
        let committer = Committer::new(Arc::new(outputs), options.max_shard_bytes(), before)?;
        let shared = Arc::new(Shared::new(
            options.level(),
            first_id,
            failure,
            Arc::clone(profile),
            committer,
        ));
        if let Some(recipe) = recipe {
            shared.set_recipe(recipe)?;
        }
        let (chunks, _) = options.chunks();
        // Room for all chunks, one nudge and the end, so that nobody ever waits to send.
        let (work, queue) = bounded(chunks + 2);
        let (to_emptied, emptied) = bounded(chunks);
        let (alive, ended) = bounded(1);
        let mut pipeline = Self {
            shared,
            work: Some(work),
            queue,
            emptied,
            to_emptied,
            unmade: chunks,
            sent: 0,
            helps: options.compresses_lightly(),
            ended,
            workers: Vec::new(),
            others: Vec::new(),
        };
        let (to_sync, synced) = bounded(SYNC_QUEUE);
        pipeline.other("write", &alive, move |shared| {
            files::write(
                &to_write,
                &to_sync,
                &shared.failure,
                &shared.profile.watch(),
            )
        })?;
        pipeline.other("sync", &alive, move |shared| {
            files::sync(&synced, &shared.failure, &shared.profile.watch())
        })?;
        pipeline.other("hash", &alive, move |shared| {
            let digests = files::hash(&to_hash, &shared.failure, &shared.profile.watch())?;
            lock(&shared.outcome).digests = digests;
            Ok(())
        })?;
        for _ in 0..options.workers() {
            let (queue, to_emptied) = (pipeline.queue.clone(), pipeline.to_emptied.clone());
            let worker = pipeline.thread("encode", &alive, move |shared| {
                worker(shared, &queue, &to_emptied)
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
        while self.help() {
            if let Ok(chunk) = self.emptied.try_recv() {
                return Ok(chunk);
            }
        }
        let began = Instant::now();
        loop {
            match self.emptied.recv_timeout(TICK) {
                Ok(chunk) => {
                    self.shared.profile.add(Stage::QueueWait, began.elapsed());
                    return Ok(chunk);
                }
                Err(_) => self.look(interrupt)?,
            }
        }
    }

    /// Does one piece of the workers' work, if there is one that cannot make this thread wait. An error is kept as any
    /// worker's.
    fn help(&self) -> bool {
        if !self.helps {
            return false;
        }
        let (Ok(work), Some(sender)) = (self.queue.try_recv(), &self.work) else {
            return false;
        };
        let is_light = match &work {
            Work::Chunk(chunk) => chunk.is_light(),
            Work::Train(_) | Work::End(_) | Work::Nudge => false,
        };
        if !is_light || self.shared.failure.is_stopped() {
            // Work is ordered by its number, not by its place in the queue.
            let _ = sender.try_send(work);
            return false;
        }
        self.shared.failure.guard("source", || {
            let shared = &self.shared;
            let emptied = &self.to_emptied;
            let is_done = shared.perform(work, &mut None, emptied, Patience::MustNotWait)?;
            if !is_done && !shared.nudged.swap(true, Ordering::AcqRel) {
                let _ = sender.try_send(Work::Nudge);
            }
            Ok(())
        });
        true
    }

    /// Sends a filled chunk. Never waits: the queue has room for every chunk there is.
    ///
    /// # Errors
    /// The first error of any thread.
    pub fn send(&mut self, mut chunk: Box<Chunk>) -> Result<()> {
        chunk.number = self.sent;
        self.shared
            .profile
            .enter(chunk.len() as u64, chunk.payload_bytes() as u64);
        self.pass(Work::Chunk(chunk))?;
        self.sent += 1;
        Ok(())
    }

    /// Has a worker train the dictionary, and waits for it, calling `interrupt` at least every 50 ms.
    ///
    /// # Errors
    /// The error of `interrupt`, or the first error of any thread.
    pub fn train(
        &mut self,
        lesson: impl FnOnce(Sender<()>) -> Lesson,
        interrupt: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (done, trained) = bounded(1);
        self.pass(Work::Train(Box::new(lesson(done))))?;
        loop {
            self.look(interrupt)?;
            if trained.recv_timeout(TICK).is_ok() {
                return Ok(());
            }
        }
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
        self.shared.drop_committer();
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

fn worker(shared: &Shared, queue: &Receiver<Work>, emptied: &Sender<Box<Chunk>>) -> Result<()> {
    let mut encoder = None;
    for work in queue {
        shared.failure.check()?;
        if matches!(work, Work::Nudge) {
            shared.nudged.store(false, Ordering::Release);
        }
        shared.perform(work, &mut encoder, emptied, Patience::MayWait)?;
    }
    Ok(())
}
