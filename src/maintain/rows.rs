//! Index rows in id order, a window at a time, each with the checksum of its record.

use std::ops::Range;

use crate::error::Result;
use crate::format::checksum::Crc32c;
use crate::format::index::{IndexRow, ROW_BYTES};
use crate::format::manifest::CHECKSUM_BYTES;
use crate::store::file::FileReader;

/// Rows read at once.
pub const WINDOW_ROWS: u64 = 4096;

/// The index and the record checksums, as far as there are any.
#[derive(Debug, Default)]
pub struct RowFiles {
    pub index: Option<FileReader>,
    pub checksums: Option<FileReader>,
}

/// An index row, and what its record is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub sample: u64,
    pub row: IndexRow,
    pub checksum: Option<Crc32c>,
}

/// The rows of some ids, one after the other.
#[derive(Debug)]
pub struct Rows<'a> {
    files: &'a RowFiles,
    ids: Range<u64>,
    /// First id of what is loaded.
    loaded: u64,
    rows: Vec<u8>,
    checksums: Vec<u8>,
}

impl RowFiles {
    /// Number of whole rows in the index.
    pub fn len(&self) -> u64 {
        let index = self.index.as_ref();
        index.map_or(0, |index| index.len() / ROW_BYTES)
    }

    /// The rows of `ids`, as far as there are any.
    pub fn rows(&self, ids: Range<u64>) -> Rows<'_> {
        let end = ids.end.min(self.len());
        Rows {
            files: self,
            ids: ids.start.min(end)..end,
            loaded: 0,
            rows: Vec::new(),
            checksums: Vec::new(),
        }
    }
}

impl Rows<'_> {
    /// The next row.
    ///
    /// # Errors
    /// Those of reading; there are no more rows then.
    pub fn next(&mut self) -> Result<Option<Entry>> {
        let Some(sample) = self.ids.next() else {
            return Ok(None);
        };
        if let Some(entry) = self.entry(sample) {
            return Ok(Some(entry));
        }
        if let Err(error) = self.load(sample) {
            self.ids.start = self.ids.end;
            return Err(error);
        }
        Ok(self.entry(sample))
    }

    fn entry(&self, sample: u64) -> Option<Entry> {
        let position = usize::try_from(sample.checked_sub(self.loaded)?).ok()?;
        let rows = self.rows.as_chunks::<{ ROW_BYTES as usize }>().0;
        let checksums = self.checksums.as_chunks::<{ CHECKSUM_BYTES as usize }>().0;
        let checksum = checksums.get(position);
        Some(Entry {
            sample,
            row: IndexRow::from_bytes(rows.get(position)?)?,
            checksum: checksum.map(|bytes| Crc32c(u32::from_le_bytes(*bytes))),
        })
    }

    /// Reads the window that begins with `sample`.
    fn load(&mut self, sample: u64) -> Result<()> {
        let count = (self.ids.end - sample).min(WINDOW_ROWS);
        self.loaded = sample;
        self.rows.clear();
        self.checksums.clear();
        if let Some(index) = &self.files.index {
            view(index, sample, count, ROW_BYTES, &mut self.rows)?;
        }
        if let Some(checksums) = &self.files.checksums {
            let there = (checksums.len() / CHECKSUM_BYTES).saturating_sub(sample);
            let read = view(
                checksums,
                sample,
                count.min(there),
                CHECKSUM_BYTES,
                &mut self.checksums,
            );
            // Whoever hashes the file tells that it cannot be read; the records are checked without it.
            if read.is_err() {
                self.checksums.clear();
            }
        }
        Ok(())
    }
}

/// Reads `count` rows of `width` bytes from row `first` on.
fn view(file: &FileReader, first: u64, count: u64, width: u64, out: &mut Vec<u8>) -> Result<()> {
    out.resize((count * width) as usize, 0);
    file.read_into(first.saturating_mul(width), out)
}
