//! Records that are not in memory: the disk is asked for all of a batch at once, so that it never idles.
//!
//! Asking costs nearly as much as copying a record that is in memory, so some records are looked at first. Where they lie in
//! memory, the next batches are believed to do so too, unless one takes longer than memory ever does.

use std::time::Duration;

use super::files::{Files, Located};
use crate::store::file::FileReader;
use crate::store::readahead;

/// Records of a batch that are looked at.
const PROBES: usize = 8;
/// Bytes of batches that are not looked at after one that was in memory: looking takes as long as copying 100 KiB.
const TRUST_BYTES: usize = 24 << 20;
/// Time above which a batch was not in memory, at least, for each record and for each KiB: a disk takes ten times as long.
const LEAST_TIME: Duration = Duration::from_micros(20);
const RECORD_TIME: Duration = Duration::from_micros(1);
const KIB_TIME: Duration = Duration::from_micros(1);
/// Bytes between two records that are read along with them rather than asked for apart.
const GAP_MAX: usize = 32 << 10;
/// Most bytes of a range that are asked for: of a longer one the system reads ahead while the first are copied.
const RANGE_MAX: usize = 64 << 20;
/// Most ranges of a batch whose records lie together.
const RANGES_TOGETHER_MAX: usize = 2;
/// Window from which on the system reads ahead as well as it can, in bytes.
const WINDOW_MIN: usize = 1 << 20;

/// What a gatherer knows of where its records are.
#[derive(Debug, Default)]
pub(super) struct Cold {
    /// Bytes of batches that are still believed to be in memory.
    trust: usize,
    /// What the system reads ahead by itself, in bytes, once it was asked.
    window: Option<usize>,
}

impl Cold {
    /// Whether a batch of `rows` records is believed to be in memory, which may be a first look at some of them:
    /// `find` tells where number `i` is, if that is known.
    pub fn is_warm(
        &mut self,
        files: &Files,
        rows: usize,
        bytes: usize,
        find: impl Fn(usize) -> Option<Located>,
    ) -> bool {
        if self.trust == 0 {
            let step = (rows / PROBES).max(1);
            let mut probes = (0..rows).step_by(step).take(PROBES);
            if !probes.all(|row| find(row).is_some_and(|at| is_resident(files, &at))) {
                return false;
            }
            self.trust = TRUST_BYTES;
        }
        self.trust = self.trust.saturating_sub(bytes.max(1));
        true
    }

    /// Asks for the records of a batch if they seem not to be in memory; says whether it did.
    pub fn prepare(&mut self, files: &Files, rows: &[Located]) -> bool {
        let bytes = rows.iter().map(|at| at.len).sum();
        if self.is_warm(files, rows.len(), bytes, |row| rows.get(row).copied()) {
            return false;
        }
        let are_together = ranges(rows).nth(RANGES_TOGETHER_MAX).is_none();
        for (first, len) in ranges(rows) {
            let Some((file, map)) = files.file(first).and_then(|file| Some((file, file.map()?)))
            else {
                continue;
            };
            // What the system reads ahead is in large pages, which takes it less time and fewer requests than a range that
            // is asked for; but a small window keeps the disk idle between requests.
            let len = len.min(RANGE_MAX);
            if are_together && self.window(file) >= WINDOW_MIN {
                map.populate(first.start, len);
            } else {
                map.will_need(first.start, len);
            }
        }
        true
    }

    /// What the system reads ahead by itself, by what it says of the first file that was not in memory.
    fn window(&mut self, file: &FileReader) -> usize {
        *self
            .window
            .get_or_insert_with(|| readahead::window(file.path()))
    }

    /// Learns how long a batch took.
    pub fn took(&mut self, time: Duration, rows: usize, bytes: usize) {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let memory = LEAST_TIME
            + RECORD_TIME.saturating_mul(count(rows))
            + KIB_TIME.saturating_mul(count(bytes >> 10));
        if time > memory {
            self.trust = 0;
        }
    }
}

/// Whether the first page of a record is in memory, as far as the system tells.
fn is_resident(files: &Files, at: &Located) -> bool {
    let map = files.file(at).and_then(FileReader::map);
    map.is_none_or(|map| map.is_resident(at.start))
}

/// The records in order, those that follow each other closely in one shard as one range: its first record, and its length
/// in bytes.
fn ranges(rows: &[Located]) -> impl Iterator<Item = (&Located, usize)> {
    let mut rows = rows.iter().peekable();
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let mut end = first.start + first.len;
        while let Some(next) = rows
            .next_if(|next| next.is_beside(first) && (end..=end + GAP_MAX).contains(&next.start))
        {
            end = next.start + next.len;
        }
        Some((first, end - first.start))
    })
}
