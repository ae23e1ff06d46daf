//! Rows in blocks that the threads of a crew take in turns, where there is enough to share.

use super::copy::{Scratch, Source, copy};
use super::files::Located;
use super::selection::Selection;
use super::target::{Target, split_fronts};
use crate::error::Result;
use crate::sync::{Crew, Mutex, lock};

/// Bytes of a gather from which on a second thread is worth its start.
const SHARED_BYTES_MIN: usize = 1 << 20;
/// Bytes that a thread takes at a time of a shared gather.
pub(super) const BLOCK_BYTES: usize = 256 << 10;

/// The crew, if it has more than one thread and `bytes` are worth it.
pub(super) fn helping(crew: Option<&Crew>, bytes: usize) -> Option<&Crew> {
    crew.filter(|crew| crew.threads() > 1 && bytes >= SHARED_BYTES_MIN)
}

/// Copies all rows of a gather, with the help of a crew if there is enough to share. Returns the number of threads.
///
/// # Errors
/// As [`copy`].
pub(super) fn copy_shared(
    source: Source<'_>,
    selection: &Selection,
    rows: &[Located],
    mut targets: Vec<Target<'_>>,
    crew: Option<&Crew>,
    scratch: &mut Vec<Scratch>,
) -> Result<usize> {
    let bytes: usize = rows.iter().map(|at| at.len).sum();
    let Some(crew) = helping(crew, bytes) else {
        let mut own = scratch.pop().unwrap_or_default();
        copy(source, selection, (0, rows), &mut targets, &mut own)?;
        scratch.push(own);
        return Ok(1);
    };
    let mut blocks = Vec::new();
    let mut start = 0;
    while start < rows.len() {
        let mut end = start;
        let mut len = 0;
        while let Some(at) = rows.get(end).filter(|_| len < BLOCK_BYTES) {
            len += at.len;
            end += 1;
        }
        let fronts = split_fronts(&mut targets, end - start)?;
        blocks.push(Mutex::new((start..end, fronts)));
        start = end;
    }
    // A decoder takes as long to make as a few records take to decode.
    let spare = Mutex::new(std::mem::take(scratch));
    crew.try_map(&blocks, |block| {
        let (range, targets) = &mut *lock(block);
        let own = rows.get(range.clone()).unwrap_or_default();
        let mut scratch = lock(&spare).pop().unwrap_or_default();
        copy(source, selection, (range.start, own), targets, &mut scratch)?;
        lock(&spare).push(scratch);
        Ok(())
    })?;
    *scratch = std::mem::take(&mut *lock(&spare));
    Ok(crew.threads())
}
