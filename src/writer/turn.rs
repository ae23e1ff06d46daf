//! Encoded chunks take turns: whoever brings the next one in order commits it, and all that wait behind it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::chunk::Chunk;
use super::commit::{Committed, Committer};
use super::encode::encode;
use super::profiler::{Profile, Stage};
use super::training::Lesson;
use crate::error::{CacheError, Result};
use crate::format::compression::{Encoder, Recipe, ZstdParameters, train};
use crate::store::outflow::failure::Failure;
use crate::store::outflow::files::Digest;
use crate::store::outflow::output::Tag;
use crate::sync::{Mutex, MutexGuard, OnceLock, Sender, lock};

/// What the workers are given.
pub(super) enum Work {
    /// Train the dictionary; nothing else is sent before that is done.
    Train(Box<Lesson>),
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
    /// How payloads are stored; unknown until a dictionary is trained.
    recipe: OnceLock<Recipe>,
    level: i32,
    /// Sample id of the first row of the source.
    first_id: u64,
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
        level: i32,
        first_id: u64,
        failure: Arc<Failure>,
        profile: Arc<Profile>,
        committer: Committer,
    ) -> Self {
        Self {
            recipe: OnceLock::new(),
            level,
            first_id,
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

    /// Sets how payloads are stored, once.
    pub fn set_recipe(&self, recipe: Recipe) -> Result<()> {
        self.recipe
            .set(recipe)
            .map_err(|_| CacheError::internal("the recipe of a cache was set twice"))
    }

    fn encoder(&self) -> Result<Encoder<'_>> {
        let recipe = self
            .recipe
            .get()
            .ok_or_else(|| CacheError::internal("a chunk came before the recipe"))?;
        Encoder::new(recipe).map_err(no_encoder)
    }

    /// Trains the dictionary, hands it to the committer, and sets the recipe.
    fn train(&self, lesson: &Lesson) -> Result<()> {
        let (dictionary, parameters) = self.profile.time(Stage::Compress, || {
            let dictionary = train(&lesson.samples, &lesson.lengths, lesson.dictionary_bytes);
            let parameters = ZstdParameters::new(self.level, dictionary.as_deref());
            (dictionary, parameters)
        });
        if let Some(dictionary) = &dictionary {
            match &mut lock(&self.turn).committer {
                Some(committer) => committer.store_dictionary(dictionary)?,
                None => return Err(CacheError::internal("a dictionary came after its cache")),
            }
        }
        self.set_recipe(Recipe::Zstd(parameters.map_err(no_encoder)?))?;
        // Nobody waits for it once the write is given up.
        let _ = lesson.done.try_send(());
        Ok(())
    }

    /// Lets go of the files, so that the threads behind them end.
    pub fn drop_committer(&self) {
        drop(lock(&self.turn).committer.take());
    }

    /// Encodes and queues one piece of work, and commits what is next for as long as nobody else does. False if a
    /// commit is left undone that has nobody to do it, which only happens to those who must not wait.
    ///
    /// `encoder` is this thread's, made with its first chunk.
    pub fn perform<'s>(
        &'s self,
        mut work: Work,
        encoder: &mut Option<Encoder<'s>>,
        emptied: &Sender<Box<Chunk>>,
        patience: Patience,
    ) -> Result<bool> {
        let number = match &mut work {
            Work::Chunk(chunk) => {
                let encoder = match encoder {
                    Some(encoder) => encoder,
                    none => none.insert(self.encoder()?),
                };
                encode(chunk, self.first_id, encoder, &self.profile)?;
                Some(chunk.number)
            }
            Work::Train(lesson) => {
                self.train(lesson)?;
                return Ok(true);
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
                        .leave(chunk.len() as u64, chunk.payload_bytes() as u64);
                    chunk.clear();
                    // Nobody waits for it once the source has ended.
                    let _ = emptied.try_send(chunk);
                }
                Work::End(_) => {
                    lock(&self.outcome).committed = Some(committer.complete()?);
                    return Ok(true);
                }
                Work::Train(_) | Work::Nudge => {}
            }
            turn = lock(&self.turn);
            turn.committer = Some(committer);
        }
    }
}

fn no_encoder(fault: String) -> CacheError {
    CacheError::internal(format!("payloads cannot be compressed: {fault}"))
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
        Work::Train(_) | Work::End(_) | Work::Nudge => false,
    };
    if patience == Patience::MustNotWait && !is_quick {
        turn.committer = Some(committer);
        turn.waiting.insert(number, work);
        return Next::Wait;
    }
    turn.next += 1;
    Next::Take(work, committer)
}
