//! Encoded chunks take turns: whoever brings the next one in order commits it, and all that wait behind it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::chunk::Chunk;
use super::commit::{Committed, Committer};
use super::encode::encode;
use super::failure::Failure;
use super::files::Digest;
use super::output::Tag;
use super::profiler::{Profile, Stage};
use crate::error::Result;
use crate::format::compression::Algorithm;
use crate::sync::{Mutex, MutexGuard, Sender, lock};

/// What the workers are given.
pub(super) enum Work {
    /// Encode it and commit it in its turn.
    Chunk(Box<Chunk>),
    /// All chunks before this number were sent.
    End(u64),
    /// Somebody who may not wait left a commit undone.
    Nudge,
}

/// What is known when all threads have ended well.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub committed: Option<Committed>,
    pub digests: HashMap<Tag, Digest>,
}

/// What all threads share.
pub(super) struct Shared {
    pub algorithm: Algorithm,
    pub failure: Arc<Failure>,
    pub profile: Arc<Profile>,
    pub outcome: Mutex<Outcome>,
    /// Whether a [`Work::Nudge`] is on its way; one is enough.
    pub nudged: AtomicBool,
    turn: Mutex<Turn>,
}

/// Chunks that wait for their turn to be committed.
struct Turn {
    next: u64,
    waiting: BTreeMap<u64, Work>,
    /// Away while somebody commits.
    committer: Option<Box<Committer>>,
}

/// Whether a thread may block in a commit, for example because the disk is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    MayWait,
    MustNotWait,
}

impl Shared {
    pub fn new(
        algorithm: Algorithm,
        failure: Arc<Failure>,
        profile: Arc<Profile>,
        committer: Committer,
    ) -> Self {
        Self {
            algorithm,
            failure,
            profile,
            outcome: Mutex::default(),
            nudged: AtomicBool::new(false),
            turn: Mutex::new(Turn {
                next: 0,
                waiting: BTreeMap::new(),
                committer: Some(Box::new(committer)),
            }),
        }
    }

    /// Lets go of the files, so that the threads behind them end.
    pub fn drop_committer(&self) {
        drop(lock(&self.turn).committer.take());
    }

    /// Encodes and queues one piece of work, and commits what is next for as long as nobody else does. False if a
    /// commit is left undone that has nobody to do it, which only happens to those who must not wait.
    pub fn perform(
        &self,
        mut work: Work,
        emptied: &Sender<Box<Chunk>>,
        patience: Patience,
    ) -> Result<bool> {
        let number = match &mut work {
            Work::Chunk(chunk) => {
                encode(chunk, self.algorithm, &self.profile)?;
                Some(chunk.number)
            }
            Work::End(number) => Some(*number),
            Work::Nudge => None,
        };
        let mut turn = lock(&self.turn);
        if let Some(number) = number {
            turn.waiting.insert(number, work);
        }
        loop {
            let (work, mut committer) = match next(&mut turn, patience) {
                Next::Take(work, committer) => (work, committer),
                Next::Nothing => return Ok(true),
                Next::Wait => return Ok(false),
            };
            drop(turn);
            match work {
                Work::Chunk(mut chunk) => {
                    self.profile
                        .time(Stage::Commit, || committer.commit(&chunk))?;
                    self.profile
                        .leave(chunk.len() as u64, chunk.payloads.byte_len() as u64);
                    chunk.clear();
                    // Nobody waits for it once the source has ended.
                    let _ = emptied.try_send(chunk);
                }
                Work::End(_) => {
                    lock(&self.outcome).committed = Some(committer.complete()?);
                    return Ok(true);
                }
                Work::Nudge => {}
            }
            turn = lock(&self.turn);
            turn.committer = Some(committer);
        }
    }
}

/// What a thread at the turn is to do.
enum Next {
    /// Commit this.
    Take(Work, Box<Committer>),
    /// Nothing: the next chunk is not there yet, or somebody else is committing and will look again.
    Nothing,
    /// The next chunk is there, but its commit might have to wait.
    Wait,
}

fn next(turn: &mut MutexGuard<'_, Turn>, patience: Patience) -> Next {
    let number = turn.next;
    let Some(committer) = turn.committer.take() else {
        return Next::Nothing;
    };
    let Some(work) = turn.waiting.remove(&number) else {
        turn.committer = Some(committer);
        return Next::Nothing;
    };
    let is_quick = match &work {
        Work::Chunk(chunk) => committer.is_quick(chunk),
        Work::End(_) | Work::Nudge => false,
    };
    if patience == Patience::MustNotWait && !is_quick {
        turn.committer = Some(committer);
        turn.waiting.insert(number, work);
        return Next::Wait;
    }
    turn.next += 1;
    Next::Take(work, committer)
}
