//! Files as streams of large blocks: cut here, then written and hashed side by side by the threads of [`super::files`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure::{Failure, TICK};
use crate::error::{CacheError, Result};
use crate::format::checksum::Sha256Digest;
use crate::limits::WRITE_BLOCK_BYTES;
use crate::store::publish::{StagedFile, Staging, Withdrawn};
use crate::sync::{Receiver, RecvTimeoutError, Sender, bounded};

/// Blocks that exist: one being filled for each of shard, index, checksums and metadata, and four on their way.
const BLOCKS: usize = 8;

/// Which file of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    Shard(u64),
    Index,
    Checksums,
    Metadata,
    Dictionary,
}

/// Bytes on their way to a file and to its hash; they return to their pool when both are done.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    pool: Sender<Vec<u8>>,
}

impl Block {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // The pool has room for every block there is; it may be gone when a write is given up.
        let _ = self.pool.try_send(bytes);
    }
}

/// What the write thread is told, in order.
pub enum ToWrite {
    Open(Tag, StagedFile),
    Block(Tag, Arc<Block>),
    /// No more blocks; make the file durable.
    Close(Tag),
    /// Hand the file back as it is.
    Return(Tag, Sender<StagedFile>),
}

/// What the hash thread is told, in order.
pub enum ToHash {
    Block(Tag, Arc<Block>),
    /// No more blocks; note the digest.
    Close(Tag),
    /// Forget the file.
    Forget(Tag),
    /// The blocks so far are a copy of the file at this path and must have its hash.
    Compare(Tag, Sha256Digest, PathBuf),
}

/// The way to the files of one cache.
pub struct Outputs {
    pub staging: Arc<Staging>,
    pub failure: Arc<Failure>,
    to_write: Sender<ToWrite>,
    to_hash: Sender<ToHash>,
    pool: Receiver<Vec<u8>>,
    to_pool: Sender<Vec<u8>>,
}

impl Outputs {
    /// Outputs of a cache, and the receivers for the two threads.
    pub fn new(
        staging: Arc<Staging>,
        failure: Arc<Failure>,
    ) -> (Self, Receiver<ToWrite>, Receiver<ToHash>) {
        let (to_write, write) = bounded(BLOCKS);
        let (to_hash, hash) = bounded(BLOCKS);
        let (to_pool, pool) = bounded(BLOCKS);
        for _ in 0..BLOCKS {
            let _ = to_pool.try_send(Vec::new());
        }
        let outputs = Self {
            staging,
            failure,
            to_write,
            to_hash,
            pool,
            to_pool,
        };
        (outputs, write, hash)
    }

    /// Creates a file of the cache.
    pub fn open(self: &Arc<Self>, tag: Tag, name: &str) -> Result<OutFile> {
        let file = self.staging.create_file(name)?;
        self.tell_write(ToWrite::Open(tag, file))?;
        Ok(OutFile {
            outputs: Arc::clone(self),
            tag,
            block: Vec::new(),
            byte_len: 0,
        })
    }

    /// Whether this many blocks can be taken and as many sent on without waiting. Only the thread that commits does
    /// either, so a yes stays true until it does.
    pub fn have_room(&self, blocks: usize) -> bool {
        self.pool.len() >= blocks
            && self.to_write.len().saturating_add(blocks) <= BLOCKS
            && self.to_hash.len().saturating_add(blocks) <= BLOCKS
    }

    fn tell_write(&self, message: ToWrite) -> Result<()> {
        // A receiver that is gone has left its reason in `failure`.
        let sent = self.to_write.send(message);
        sent.map_err(|_| CacheError::Interrupted)
    }

    fn tell_hash(&self, message: ToHash) -> Result<()> {
        let sent = self.to_hash.send(message);
        sent.map_err(|_| CacheError::Interrupted)
    }

    /// Waits for something that a thread will send, unless the write is given up.
    fn wait<T>(&self, receiver: &Receiver<T>) -> Result<T> {
        loop {
            self.failure.check()?;
            match receiver.recv_timeout(TICK) {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(CacheError::Interrupted),
            }
        }
    }
}

/// One file of the cache, written from start to end in blocks of [`WRITE_BLOCK_BYTES`].
pub struct OutFile {
    outputs: Arc<Outputs>,
    tag: Tag,
    block: Vec<u8>,
    byte_len: u64,
}

impl OutFile {
    /// Bytes appended so far.
    pub fn byte_len(&self) -> u64 {
        self.byte_len
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CacheError::Interrupted`] if the write has failed elsewhere.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.block.capacity() == 0 {
                self.block = self.outputs.wait(&self.outputs.pool)?;
                self.block.reserve_exact(WRITE_BLOCK_BYTES);
            }
            let room = WRITE_BLOCK_BYTES.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            self.byte_len = self.byte_len.saturating_add(now.len() as u64);
            bytes = later;
            if self.block.len() >= WRITE_BLOCK_BYTES {
                self.ship()?;
            }
        }
        Ok(())
    }

    fn ship(&mut self) -> Result<()> {
        if self.block.capacity() == 0 {
            return Ok(());
        }
        let block = Arc::new(Block {
            bytes: std::mem::take(&mut self.block),
            pool: self.outputs.to_pool.clone(),
        });
        self.outputs
            .tell_write(ToWrite::Block(self.tag, Arc::clone(&block)))?;
        self.outputs.tell_hash(ToHash::Block(self.tag, block))
    }

    /// Has what was appended so far, a copy of the file at `path`, compared with its hash in the background.
    pub fn compare(&mut self, expected: Sha256Digest, path: &Path) -> Result<()> {
        self.ship()?;
        let path = path.to_path_buf();
        self.outputs
            .tell_hash(ToHash::Compare(self.tag, expected, path))
    }

    /// Ends the file; it becomes durable in the background.
    pub fn close(mut self) -> Result<()> {
        self.ship()?;
        self.outputs.tell_write(ToWrite::Close(self.tag))?;
        self.outputs.tell_hash(ToHash::Close(self.tag))
    }

    /// Takes the file out of the cache again.
    pub fn withdraw(mut self) -> Result<Withdrawn> {
        self.ship()?;
        let (reply, file) = bounded(1);
        self.outputs.tell_write(ToWrite::Return(self.tag, reply))?;
        self.outputs.tell_hash(ToHash::Forget(self.tag))?;
        self.outputs.staging.withdraw(self.outputs.wait(&file)?)
    }
}

impl io::Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
