//! Uncompressed payloads of fixed length on the way to their destinations, located, verified and copied in one pass.
//!
//! It goes as far as everything is as it mostly is: files open and mapped, records whole. From the first record on that is
//! not so, the ordinary way goes on, which opens files and says what is the matter.

use super::blocks::{BLOCK_BYTES, helping};
use super::copy::{AHEAD_BYTES, AHEAD_ROWS, copy_dense};
use super::files::{Even, Files, Opened};
use super::selection::Dense;
use super::target::{Target, split_fronts};
use crate::error::Result;
use crate::store::prefetch::prefetch;
use crate::sync::{Crew, Mutex, lock};
use crate::types::SampleRef;

/// Index rows that are asked for ahead of the record that is.
const INDEX_AHEAD: usize = 32;
/// Records that are found before they are copied: two short loops are faster than a long one, which the processor cannot
/// look far enough ahead in.
const PART_ROWS: usize = 256;

/// Copies the fields of `samples` to the fronts of `targets`, which stay where they are. Returns how many samples are done
/// without a gap, and the number of threads.
pub(super) fn copy(
    files: &Files,
    dense: &Dense,
    samples: &[SampleRef],
    targets: &mut [Target<'_>],
    crew: Option<&Crew>,
) -> Result<(usize, usize)> {
    let bytes = dense.payload_len.saturating_mul(samples.len());
    let fronts = targets.iter_mut().map(|target| target.front(samples.len()));
    let mut fronts = fronts.collect::<Result<Vec<_>>>()?;
    let Some(crew) = helping(crew, bytes) else {
        return Ok((copy_here(files, dense, samples, &mut fronts), 1));
    };
    let rows = (BLOCK_BYTES / dense.payload_len.max(1)).max(1);
    let blocks = samples.chunks(rows).map(|block| {
        let own = split_fronts(&mut fronts, block.len())?;
        Ok((block, Mutex::new(own)))
    });
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    let done = crew.try_map(&blocks, |(block, targets)| {
        Ok(copy_here(files, dense, block, &mut lock(targets)))
    })?;
    let gap = done
        .iter()
        .zip(&blocks)
        .position(|(done, (block, _))| *done < block.len());
    let whole = gap.unwrap_or(done.len());
    let begun = done.get(whole).copied().unwrap_or(0);
    Ok(((whole * rows + begun).min(samples.len()), crew.threads()))
}

/// As [`copy`], in this thread; the targets move on.
fn copy_here(
    files: &Files,
    dense: &Dense,
    samples: &[SampleRef],
    targets: &mut [Target<'_>],
) -> usize {
    let even = files.even(samples.len());
    let mut done = 0;
    let mut found = Vec::with_capacity(samples.len().min(PART_ROWS));
    for part in samples.chunks(PART_ROWS) {
        found.clear();
        let are_checked = match &even {
            Some(even) => find_even(even, part, &mut found),
            None => find(files, part, &mut found),
        };
        let check = |row: usize| match are_checked {
            true => Some(()),
            false => {
                let sample = *part.get(row)?;
                files.record(&files.locate_open(sample)?).ok().map(drop)
            }
        };
        let copied = copy_found(dense, &found, targets, check).unwrap_or(0);
        done += copied;
        if copied < part.len() {
            break;
        }
    }
    done
}

/// Appends records, which are not compared with anything, until there is one that needs the ordinary way. Returns whether
/// none of them need be compared.
fn find<'a>(files: &'a Files, samples: &[SampleRef], found: &mut Vec<&'a [u8]>) -> bool {
    let mut cache = CacheInUse::default();
    let mut are_checked = true;
    for (row, sample) in samples.iter().enumerate() {
        if let Some(later) = samples.get(row + INDEX_AHEAD)
            && let Some(opened) = cache.open(files, later.cache)
        {
            opened.prefetch(later.sample);
        }
        let opened = cache.open(files, sample.cache);
        let plain = opened.and_then(|opened| Some((opened, opened.plain(sample.sample)?)));
        let Some((opened, record)) = plain else {
            break;
        };
        are_checked &= opened.is_checked(sample.sample);
        found.push(record);
    }
    are_checked
}

/// As [`find`], by a multiplication.
fn find_even<'a>(even: &Even<'a>, samples: &[SampleRef], found: &mut Vec<&'a [u8]>) -> bool {
    let mut are_checked = true;
    let records = samples.iter().map_while(|sample| {
        let record = even.plain(sample.sample)?;
        are_checked &= even.is_checked(sample.sample);
        Some(record)
    });
    found.extend(records);
    are_checked
}

/// Copies the fields of records until there is one that is not whole, or that `check` refuses. Returns their number.
fn copy_found(
    dense: &Dense,
    found: &[&[u8]],
    targets: &mut [Target<'_>],
    check: impl Fn(usize) -> Option<()>,
) -> Option<usize> {
    let mut fronts = split_fronts(targets, found.len()).ok()?;
    // A processor that is asked for too much ahead forgets the first.
    let ahead = (AHEAD_BYTES / dense.payload_len.max(1)).clamp(1, AHEAD_ROWS);
    found.iter().take(ahead).for_each(|record| prefetch(record));
    let ask_ahead = |row: usize| {
        if let Some(later) = found.get(row + ahead) {
            prefetch(later);
        }
    };
    if let ([front], [place]) = (&mut *fronts, dense.places.as_slice())
        && let Some(values) = front.values()
    {
        let mut rows = found.iter().zip(values).enumerate();
        let gap = rows.position(|(row, (record, value))| {
            ask_ahead(row);
            let field = check(row).and_then(|()| dense.payload(record)?.get(place.clone()));
            match field.filter(|field| field.len() == value.len()) {
                Some(field) => value.copy_from_slice(field),
                None => return true,
            }
            false
        });
        return Some(gap.unwrap_or(found.len()));
    }
    let gap = found.iter().enumerate().position(|(row, record)| {
        ask_ahead(row);
        check(row)
            .and_then(|()| copy_dense(dense, record, &mut fronts))
            .is_none()
    });
    Some(gap.unwrap_or(found.len()))
}

/// The cache that was last asked for: mostly the one that is next.
#[derive(Default)]
struct CacheInUse<'a> {
    number: u32,
    opened: Option<Opened<'a>>,
}

impl<'a> CacheInUse<'a> {
    #[inline]
    fn open(&mut self, files: &'a Files, number: u32) -> Option<&Opened<'a>> {
        if self.number != number || self.opened.is_none() {
            self.number = number;
            self.opened = files.opened(number);
        }
        self.opened.as_ref()
    }
}
