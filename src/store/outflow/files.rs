//! The threads between blocks and the disk: one writes, one hashes the same blocks, one makes finished files durable.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::failure::Failure;
use super::output::{Tag, ToHash, ToWrite};
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Crc32cHasher, Sha256Digest, Sha256Hasher};
use crate::store::publish::StagedFile;
use crate::sync::{Receiver, Sender};

/// Files that may wait to be made durable. More would only let dirty pages pile up in front of the disk.
pub const SYNC_QUEUE: usize = 2;

/// What a piece of work was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Handing a block to the operating system.
    Write,
    /// SHA-256 of a block.
    Hash,
    /// Making a file durable.
    Sync,
}

/// Told how long each piece of work took.
pub type Watch<'a> = &'a dyn Fn(Step, Duration);

fn timed<T>(watch: Watch<'_>, step: Step, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let outcome = work();
    watch(step, began.elapsed());
    outcome
}

/// Identity of a finished file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digest {
    pub sha256: Sha256Digest,
    /// Only of the metadata table.
    pub crc32c: Option<Crc32c>,
    /// Its length, in bytes.
    pub byte_len: u64,
}

/// Writes blocks until there are no more; closed files go on to `to_sync`.
pub fn write(
    messages: &Receiver<ToWrite>,
    to_sync: &Sender<StagedFile>,
    failure: &Failure,
    watch: Watch<'_>,
) -> Result<()> {
    let mut files: HashMap<Tag, StagedFile> = HashMap::new();
    let unknown = || CacheError::internal("a block for a file that is not open");
    for message in messages {
        failure.check()?;
        match message {
            ToWrite::Open(tag, file) => {
                files.insert(tag, file);
            }
            ToWrite::Block(tag, block) => {
                let file = files.get_mut(&tag).ok_or_else(unknown)?;
                timed(watch, Step::Write, || {
                    file.write_all(block.bytes())?;
                    file.begin_writeback();
                    Ok::<_, CacheError>(())
                })?;
            }
            ToWrite::Close(tag) => {
                let file = files.remove(&tag).ok_or_else(unknown)?;
                to_sync.send(file).map_err(|_| CacheError::Interrupted)?;
            }
            ToWrite::Return(tag, reply) => {
                let file = files.remove(&tag).ok_or_else(unknown)?;
                reply.send(file).map_err(|_| CacheError::Interrupted)?;
            }
        }
    }
    Ok(())
}

/// Makes files durable until there are no more.
pub fn sync(files: &Receiver<StagedFile>, failure: &Failure, watch: Watch<'_>) -> Result<()> {
    for file in files {
        failure.check()?;
        timed(watch, Step::Sync, || file.finish())?;
    }
    Ok(())
}

/// Hashes blocks until there are no more; gives the digests of all closed files.
pub fn hash(
    messages: &Receiver<ToHash>,
    failure: &Failure,
    watch: Watch<'_>,
) -> Result<HashMap<Tag, Digest>> {
    let mut open: HashMap<Tag, Hasher> = HashMap::new();
    let mut done = HashMap::new();
    for message in messages {
        failure.check()?;
        match message {
            ToHash::Block(tag, block) => timed(watch, Step::Hash, || {
                let hasher = open.entry(tag).or_insert_with(|| Hasher::new(tag));
                hasher.update(block.bytes());
            }),
            ToHash::Close(tag) => {
                let hasher = open.remove(&tag).unwrap_or_else(|| Hasher::new(tag));
                done.insert(tag, hasher.finish());
            }
            ToHash::Forget(tag) => {
                open.remove(&tag);
            }
            ToHash::Compare(tag, expected, path) => {
                let hasher = open.entry(tag).or_insert_with(|| Hasher::new(tag));
                let found = hasher.sha256.clone().finish();
                if found != expected {
                    return Err(CacheError::damaged(
                        &path,
                        "checksum of the file",
                        format!("sha256 {expected}"),
                        format!("sha256 {found}"),
                    ));
                }
            }
        }
    }
    Ok(done)
}

struct Hasher {
    sha256: Sha256Hasher,
    crc32c: Option<Crc32cHasher>,
    byte_len: u64,
}

impl Hasher {
    fn new(tag: Tag) -> Self {
        Self {
            sha256: Sha256Hasher::default(),
            crc32c: (tag == Tag::Metadata).then(Crc32cHasher::default),
            byte_len: 0,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.byte_len = self.byte_len.saturating_add(bytes.len() as u64);
        self.sha256.update(bytes);
        if let Some(crc32c) = &mut self.crc32c {
            crc32c.update(bytes);
        }
    }

    fn finish(self) -> Digest {
        Digest {
            sha256: self.sha256.finish(),
            crc32c: self.crc32c.map(Crc32cHasher::finish),
            byte_len: self.byte_len,
        }
    }
}
