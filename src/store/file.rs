//! Random reads of one immutable file: mapped, positional, or held in memory, with equal bytes and equal errors.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::folder::{Found, open_fault, open_for_reading};
use super::map::Map;
use crate::error::{CacheError, Result};
use crate::types::Io;

/// Tables up to this length are read whole instead of being read row by row, in bytes.
const WHOLE_MAX: u64 = 8 << 20;

/// Tables up to this length are read whole even where files are mapped, in bytes: that is cheaper than a mapping, of
/// which a process may have 65,530.
const UNMAPPED_MAX: u64 = 64 << 10;

/// An open file whose length was checked.
#[derive(Debug)]
pub struct FileReader {
    path: PathBuf,
    len: u64,
    bytes: Source,
}

#[derive(Debug)]
enum Source {
    Mapped(Map),
    Whole(Vec<u8>),
    Positional(File),
}

/// What a file is read for, which decides how positional reading holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Many tiny reads: kept in memory when small.
    Table,
    /// Reads of whole records.
    Records,
}

impl FileReader {
    /// Opens a file that must be `expected_len` bytes long.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if it is missing, no regular file, or of another length; [`CacheError::Io`]
    /// otherwise.
    pub fn open(path: &Path, expected_len: u64, io: Io, purpose: Purpose) -> Result<Self> {
        let file = open_for_reading(path).map_err(|error| open_fault(path, error))?;
        let metadata = file
            .metadata()
            .map_err(|error| CacheError::io("stat", path, error))?;
        Found::from(&metadata).check_len(path, expected_len)?;
        let bytes = match io {
            Io::Auto | Io::Mmap if purpose == Purpose::Table && expected_len <= UNMAPPED_MAX => {
                Source::Whole(read_at(&file, path, 0, usize_len(expected_len)?)?)
            }
            Io::Auto | Io::Mmap => Source::Mapped(Map::new(&file, path)?),
            Io::Pread if purpose == Purpose::Table && expected_len <= WHOLE_MAX => {
                Source::Whole(read_at(&file, path, 0, usize_len(expected_len)?)?)
            }
            Io::Pread => Source::Positional(file),
        };
        Ok(Self {
            path: path.to_path_buf(),
            len: expected_len,
            bytes,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the file takes one of the process's descriptors as long as it is open.
    pub fn holds_descriptor(&self) -> bool {
        matches!(self.bytes, Source::Positional(_))
    }

    /// The whole file as memory, if that is how it is held.
    pub fn memory(&self) -> Option<&[u8]> {
        match &self.bytes {
            Source::Mapped(map) => Some(map.bytes()),
            Source::Whole(bytes) => Some(bytes),
            Source::Positional(_) => None,
        }
    }

    /// The map, if that is how the file is held.
    pub(crate) fn map(&self) -> Option<&Map> {
        match &self.bytes {
            Source::Mapped(map) => Some(map),
            Source::Whole(_) | Source::Positional(_) => None,
        }
    }

    /// `len` bytes from `offset`: borrowed from the file's memory, or read into `scratch`.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a range outside the file, [`CacheError::Io`] if reading fails.
    pub fn view<'a>(&'a self, offset: u64, len: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let end = self.end_of(offset, len)?;
        match &self.bytes {
            Source::Positional(file) => {
                scratch.resize(usize_len(len)?, 0);
                read_into(file, &self.path, offset, scratch)?;
                Ok(scratch)
            }
            Source::Mapped(map) => slice(map.bytes(), offset, end),
            Source::Whole(bytes) => slice(bytes, offset, end),
        }
    }

    /// Reads the bytes from `offset` into `out`, wherever the file lies.
    ///
    /// # Errors
    /// As [`FileReader::view`].
    pub fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = self.end_of(offset, out.len() as u64)?;
        match &self.bytes {
            Source::Positional(file) => return read_into(file, &self.path, offset, out),
            Source::Mapped(map) => out.copy_from_slice(slice(map.bytes(), offset, end)?),
            Source::Whole(bytes) => out.copy_from_slice(slice(bytes, offset, end)?),
        }
        Ok(())
    }

    /// Where `len` bytes from `offset` end.
    fn end_of(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.ok_or_else(|| {
            CacheError::damaged(
                &self.path,
                "length of the file",
                format!("at least {} bytes", u128::from(offset) + u128::from(len)),
                format!("{} bytes", self.len),
            )
        })
    }

    /// Calls `visit` with the whole file, piece by piece; its first error ends the reading and is returned.
    pub fn for_each_piece(&self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        const PIECE: u64 = 4 << 20;
        let mut scratch = Vec::new();
        let mut offset = 0;
        while offset < self.len {
            let len = PIECE.min(self.len - offset);
            visit(self.view(offset, len, &mut scratch)?)?;
            offset += len;
        }
        Ok(())
    }

    /// The whole file as an Arrow buffer, without a copy where it is mapped.
    pub fn into_buffer(self) -> Result<arrow_buffer::Buffer> {
        Ok(match self.bytes {
            Source::Mapped(map) => arrow_buffer::Buffer::from(bytes::Bytes::from_owner(map)),
            Source::Whole(bytes) => arrow_buffer::Buffer::from_vec(bytes),
            Source::Positional(file) => {
                arrow_buffer::Buffer::from_vec(read_at(&file, &self.path, 0, usize_len(self.len)?)?)
            }
        })
    }
}

fn usize_len(len: u64) -> Result<usize> {
    usize::try_from(len)
        .map_err(|_| CacheError::limit("bytes read at once", len, usize::MAX as u64))
}

fn slice(bytes: &[u8], start: u64, end: u64) -> Result<&[u8]> {
    let range = usize_len(start)?..usize_len(end)?;
    bytes
        .get(range)
        .ok_or_else(|| CacheError::internal("a checked range lies outside its file"))
}

fn read_at(file: &File, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    read_into(file, path, offset, &mut bytes)?;
    Ok(bytes)
}

#[cfg(unix)]
fn read_into(file: &File, path: &Path, offset: u64, out: &mut [u8]) -> Result<()> {
    use std::os::unix::fs::FileExt;
    file.read_exact_at(out, offset)
        .map_err(|error| short_or_io(path, offset, out.len(), error))
}

#[cfg(windows)]
fn read_into(file: &File, path: &Path, offset: u64, out: &mut [u8]) -> Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let len = rest.len();
        match file.seek_read(rest, offset + done as u64) {
            Ok(0) => {
                return Err(short_or_io(
                    path,
                    offset,
                    len,
                    std::io::ErrorKind::UnexpectedEof.into(),
                ));
            }
            Ok(read) => done += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CacheError::io("read", path, error)),
        }
    }
    Ok(())
}

fn short_or_io(path: &Path, offset: u64, len: usize, error: std::io::Error) -> CacheError {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        let expected = format!("{len} bytes from byte {offset}");
        CacheError::damaged(
            path,
            "length of the file",
            expected,
            "fewer; it was cut after the cache was opened",
        )
    } else {
        CacheError::io("read", path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_and_positional_reads_give_equal_bytes_and_equal_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let engines = [
            FileReader::open(&path, 100_000, Io::Mmap, Purpose::Records).unwrap(),
            FileReader::open(&path, 100_000, Io::Pread, Purpose::Records).unwrap(),
            FileReader::open(&path, 100_000, Io::Pread, Purpose::Table).unwrap(),
        ];
        for engine in &engines {
            let mut scratch = Vec::new();
            for (offset, len) in [(0, 0), (0, 100_000), (99_999, 1), (100_000, 0), (77, 4096)] {
                let found = engine.view(offset, len, &mut scratch).unwrap();
                assert_eq!(found, &bytes[offset as usize..(offset + len) as usize]);
                let mut copied = vec![0; len as usize];
                engine.read_into(offset, &mut copied).unwrap();
                assert_eq!(copied, found);
            }
            for (offset, len) in [(0, 100_001), (100_001, 0), (u64::MAX, 2)] {
                let error = engine.view(offset, len, &mut scratch).unwrap_err();
                assert!(matches!(error, CacheError::DamagedFile { .. }));
                let mut room = vec![0; usize::try_from(len).unwrap()];
                let error = engine.read_into(offset, &mut room).unwrap_err();
                assert!(matches!(error, CacheError::DamagedFile { .. }));
            }
        }
    }

    #[test]
    fn another_length_or_a_missing_file_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for io in [Io::Mmap, Io::Pread] {
            let missing = FileReader::open(&path, 1, io, Purpose::Records).unwrap_err();
            assert!(
                matches!(missing, CacheError::DamagedFile { .. }),
                "{missing}"
            );
        }
        std::fs::write(&path, b"abc").unwrap();
        for io in [Io::Mmap, Io::Pread] {
            let error = FileReader::open(&path, 4, io, Purpose::Records).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("expected 4 bytes, found 3 bytes"),
                "{error}"
            );
        }
        let directory = FileReader::open(folder.path(), 3, Io::Mmap, Purpose::Records).unwrap_err();
        assert!(
            directory.to_string().contains("found a directory"),
            "{directory}"
        );
    }
}
