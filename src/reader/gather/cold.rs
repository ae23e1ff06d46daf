//! Records that are not in memory: the disk is asked for all of a batch at once, so that it never idles.
//!
//! Asking costs nearly as much as copying a record that is in memory, so some records are looked at first. Where they lie in
//! memory, the next batches are believed to do so too.

use super::locate::{Files, Located};

/// Records of a batch that are looked at.
const PROBES: usize = 8;
/// Batches that are not looked at after one that was in memory.
const TRUST: u32 = 7;
/// Bytes between two records that are read along with them rather than asked for apart.
const GAP_MAX: usize = 32 << 10;

/// What a gatherer knows of where its records are.
#[derive(Debug, Default)]
pub(super) struct Cold {
    /// Batches that are still believed to be in memory.
    trust: u32,
}

impl Cold {
    /// Asks for the records of a batch if they seem not to be in memory; says whether it did.
    pub fn prepare(&mut self, files: &Files, rows: &[Located]) -> bool {
        if let Some(left) = self.trust.checked_sub(1) {
            self.trust = left;
            return false;
        }
        let step = (rows.len() / PROBES).max(1);
        let mut probes = rows.iter().step_by(step).take(PROBES);
        if probes.all(|at| files.is_resident(at)) {
            self.trust = TRUST;
            return false;
        }
        for (first, len) in ranges(rows) {
            files.will_need(first, len);
        }
        true
    }
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
