//! Reads a file past the page cache, where the system can.
//!
//! Whoever reads a file once gains nothing from pages of it: the system would look for memory, copy the bytes once more,
//! and forget other files for them. Reading past them also finds what the disk holds now, not what it held once.

use std::path::Path;

/// What the place in the file, the memory and the length of a read must be a multiple of, in bytes: enough for every
/// common disk.
pub const ALIGNMENT: usize = 4 << 10;

/// A file that is open for such reads.
#[derive(Debug)]
pub struct UncachedFile {
    #[cfg(target_os = "linux")]
    file: std::fs::File,
}

#[cfg(target_os = "linux")]
impl UncachedFile {
    /// Opens the file at `path`, unless the system cannot read it that way or has it in memory already.
    pub fn open(path: &Path, len: u64) -> Option<Self> {
        let file = super::folder::open_for_reading(path).ok()?;
        match is_in_memory(&file, len) {
            true => None,
            false => Self::new(file),
        }
    }

    fn new(file: std::fs::File) -> Option<Self> {
        use rustix::fs::OFlags;
        let flags = rustix::fs::fcntl_getfl(&file).ok()?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).ok()?;
        Some(Self { file })
    }

    /// Reads up to `room` bytes from `offset`, all of which must be aligned, and returns how many there were: fewer at the
    /// end of the file, and none where the system cannot do it.
    pub fn read(&self, offset: u64, room: &mut [u8]) -> usize {
        use std::os::unix::fs::FileExt;
        loop {
            match self.file.read_at(room, offset) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.unwrap_or(0),
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl UncachedFile {
    /// Not on this system.
    pub fn open(_: &Path, _: u64) -> Option<Self> {
        None
    }

    /// Reads nothing.
    pub fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

/// Whether the file is in memory, going by its first, middle and last page.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &std::fs::File, len: u64) -> bool {
    use rustix::fs::{Advice, fadvise};
    use rustix::io::ReadWriteFlags;
    // Or the system would begin to read ahead.
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut byte = [0];
    [0, len / 2, len.saturating_sub(1)].iter().all(|offset| {
        let into = &mut [std::io::IoSliceMut::new(&mut byte)];
        let read = rustix::io::preadv2(file, into, *offset, ReadWriteFlags::NOWAIT);
        read != Err(rustix::io::Errno::AGAIN)
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_is_not_read_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for len in [0, 1, 100_000] {
            std::fs::write(&path, vec![7; len]).unwrap();
            assert!(UncachedFile::open(&path, len as u64).is_none());
        }
    }

    #[test]
    fn a_read_that_is_not_aligned_or_behind_the_end_reads_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let file = super::super::folder::open_for_reading(&path).unwrap();
        let Some(file) = UncachedFile::new(file) else {
            return; // A file system without such reads.
        };
        let mut memory = vec![0; 4 * ALIGNMENT];
        let before = memory.as_ptr().align_offset(ALIGNMENT);
        let room = &mut memory[before..before + 2 * ALIGNMENT];
        assert_eq!(file.read(0, room), 2 * ALIGNMENT);
        assert_eq!(
            file.read(2 * ALIGNMENT as u64, room),
            10_000 - 2 * ALIGNMENT
        );
        assert_eq!(file.read(4 * ALIGNMENT as u64, room), 0);
        // Some file systems take any memory; none may take it and read something else.
        let unaligned = &mut memory[before + 1..before + 1 + ALIGNMENT];
        unaligned.fill(0);
        let read = file.read(0, unaligned);
        assert!(unaligned[..read].iter().all(|byte| *byte == 7));
    }
}
