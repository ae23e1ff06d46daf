//! Reads a file once, from front to back, block by block, while some of the bytes are kept for records across blocks.

use crate::error::Result;
use crate::store::file::FileReader;
use crate::store::slot::{Slot, SlotPool};
use crate::store::uncached::{ALIGNMENT, UncachedFile};

/// Bytes read at once: few enough to be in the processor's cache for whoever looks at them next, and enough for a disk.
const BLOCK: usize = 1 << 20;

/// Longest memory that is kept for the next file, in bytes.
const KEPT_MAX: usize = 2 * BLOCK;

/// Consecutive bytes of a file. Those that are kept begin at a multiple of [`ALIGNMENT`], in the file and in memory.
#[derive(Debug, Default)]
pub struct Window {
    /// None before the first block.
    memory: Option<Slot>,
    /// How many of them are of the file.
    filled: usize,
    /// Where in the file they begin.
    start: u64,
}

impl Window {
    /// Starts again at the beginning of a file.
    pub fn clear(&mut self) {
        (self.filled, self.start) = (0, 0);
        if self.bytes().len() > KEPT_MAX {
            self.memory = None;
        }
    }

    /// Where in the file the bytes begin.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where in the file the bytes end.
    pub fn end(&self) -> u64 {
        self.start + self.filled as u64
    }

    /// Forgets what lies before `offset`, but for less than [`ALIGNMENT`] bytes.
    pub fn forget_before(&mut self, offset: u64) {
        let gone = offset.clamp(self.start, self.end()) - self.start;
        let at = usize::try_from(gone).unwrap_or(self.filled) / ALIGNMENT * ALIGNMENT;
        let filled = self.filled;
        self.bytes_mut().copy_within(at..filled, 0);
        self.filled -= at;
        self.start += at as u64;
    }

    /// Reads the next bytes of `file`, a block at most, and returns them; past the page cache if there is an `uncached`.
    ///
    /// # Errors
    /// Those of [`FileReader::read_into`]; [`CacheError::Memory`] where the system has none for a long record.
    ///
    /// [`CacheError::Memory`]: crate::error::CacheError::Memory
    pub fn fill(&mut self, file: &FileReader, uncached: Option<&UncachedFile>) -> Result<&[u8]> {
        let offset = self.end();
        let left = usize::try_from(file.len() - offset).unwrap_or(usize::MAX);
        let len = left.min(BLOCK);
        let (from, to) = (self.filled, self.filled + len);
        if self.bytes().len() < from + BLOCK {
            // A long record has grown the window; it grows on as a vector does.
            self.grow((from + BLOCK).max(2 * from))?;
        }
        let room = self.bytes_mut().get_mut(from..from + BLOCK);
        let room = room.unwrap_or_default();
        let done = uncached.map_or(0, |uncached| uncached.read(offset, room).min(len));
        // The rest of it, or the error why there is none.
        if let Some(rest) = room.get_mut(done..len).filter(|rest| !rest.is_empty()) {
            file.read_into(offset + done as u64, rest)?;
        }
        self.filled = to;
        Ok(self.bytes().get(from..to).unwrap_or_default())
    }

    /// Bytes `offset..end` of the file, if all of them are here.
    pub fn get(&self, offset: u64, end: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let end = usize::try_from(end.checked_sub(self.start)?).ok()?;
        self.bytes().get(..self.filled)?.get(start..end)
    }

    /// Makes room for `len` bytes.
    fn grow(&mut self, len: usize) -> Result<()> {
        let mut grown = SlotPool::new().take(len)?;
        let filled = self.bytes().get(..self.filled).unwrap_or_default();
        if let Some(front) = grown.get_mut(..filled.len()) {
            front.copy_from_slice(filled);
        }
        self.memory = Some(grown);
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::file::Purpose;
    use crate::types::Io;

    /// Reads a file of `len` bytes as one of records of `record` bytes; `evict` it from memory first, or not.
    fn records_of(len: usize, record: usize, evict: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        if evict {
            let file = std::fs::File::open(&path).unwrap();
            file.sync_all().unwrap();
            #[cfg(target_os = "linux")]
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let uncached = UncachedFile::open(&path, len as u64);
        let file = FileReader::open(&path, len as u64, Io::Pread, Purpose::Records).unwrap();
        let mut window = Window::default();
        for _ in 0..2 {
            window.clear();
            let (mut read, mut at) = (Vec::new(), 0);
            while window.end() < len as u64 {
                read.extend_from_slice(window.fill(&file, uncached.as_ref()).unwrap());
                while let Some(found) = window.get(at as u64, (at + record) as u64) {
                    assert_eq!(found, &bytes[at..at + record], "{len} bytes, at {at}");
                    at += record;
                }
                window.forget_before(at as u64);
            }
            assert_eq!(read, bytes, "{len} bytes");
            assert_eq!(at, len / record * record, "{len} bytes");
        }
    }

    #[test]
    fn blocks_are_the_file_and_records_are_whole_across_them_in_memory_or_not() {
        for len in [
            0,
            1,
            4095,
            4096,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK + 77,
        ] {
            for record in [1000, 4096, 12_345] {
                records_of(len, record, true);
                records_of(len, record, false);
            }
        }
        records_of(5 * BLOCK + 1, 2 * BLOCK + 3, true);
        records_of(7 * BLOCK, 3 * BLOCK + 1, false);
    }

    #[test]
    fn a_file_that_was_cut_meanwhile_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        let file = FileReader::open(&path, 10_000, Io::Pread, Purpose::Records).unwrap();
        std::fs::write(&path, vec![1; 9_999]).unwrap();
        let failed = Window::default().fill(&file, None).unwrap_err();
        assert!(
            failed.to_string().contains("10000 bytes from byte 0"),
            "{failed}"
        );
    }
}
