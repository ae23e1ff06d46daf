//! Copies the values of located records into their destinations.

use super::files::{Files, Located};
use super::selection::{Dense, Selection};
use super::target::Target;
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Decoder, payload_len, plain};
use crate::format::envelope;
use crate::format::payload::FieldPlace;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::store::prefetch::prefetch;

/// Bytes of records that are asked for ahead of the one being copied.
pub(super) const AHEAD_BYTES: usize = 8 << 10;
/// Records that are asked for ahead at most, however small they are.
pub(super) const AHEAD_ROWS: usize = 8;

/// Where the payloads of a gather come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// Records in their files.
    Records(&'a Files),
    /// Payloads restored before, one after the other, and where each starts and ends.
    Restored(&'a Files, &'a [u8], &'a [u64]),
}

/// What one thread needs while it copies.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    decoder: Decoder,
    payload: Vec<u8>,
    extents: Vec<u64>,
    places: Vec<FieldPlace>,
}

/// The stored payload of a record.
///
/// # Errors
/// [`CacheError::DamagedRecord`] for a record that cannot be split.
pub(super) fn stored<'a>(files: &Files, at: &Located, record: &'a [u8]) -> Result<&'a [u8]> {
    let (_, stored) = envelope::split(record).map_err(|found| files.fault(at, found))?;
    Ok(stored)
}

/// Length of the payload of a record, before its checksum is looked at.
///
/// # Errors
/// [`CacheError::DamagedRecord`] for one that no payload has.
pub(super) fn restored_len(files: &Files, at: &Located) -> Result<u64> {
    let record = files.bytes(at).unwrap_or_default();
    let stored = stored(files, at, record)?;
    let len = payload_len(at.algorithm, stored).map_err(|found| files.fault(at, found))? as u64;
    check_len(len).map_err(|found| files.fault(at, found))?;
    Ok(len)
}

/// Copies `rows`, the first of which is row `first` of the gather, into one target per chosen field.
///
/// # Errors
/// [`CacheError::DamagedRecord`] or [`CacheError::DamagedFile`] for the first record that cannot be trusted.
pub(super) fn copy(
    source: Source<'_>,
    selection: &Selection,
    (first, rows): (usize, &[Located]),
    targets: &mut [Target<'_>],
    scratch: &mut Scratch,
) -> Result<()> {
    let mut ahead = Ahead::default();
    for (position, at) in rows.iter().enumerate() {
        match source {
            Source::Records(files) => {
                ahead.advance(files, rows, position);
                let record = files.record(at)?;
                if let (Some(dense), Algorithm::None) = (selection.dense(), at.algorithm)
                    && copy_dense(dense, record, targets).is_some()
                {
                    continue;
                }
                let stored = stored(files, at, record)?;
                from_stored(files, selection, at, stored, targets, scratch)?;
            }
            Source::Restored(files, payloads, offsets) => {
                let row = first + position;
                let payload = match offsets.get(row..row + 2) {
                    Some([start, end]) => payloads.get(*start as usize..*end as usize),
                    _ => None,
                };
                let payload = payload
                    .ok_or_else(|| CacheError::internal("a payload that was not restored"))?;
                from_payload(selection, payload, targets, scratch)
                    .map_err(|found| files.fault(at, found))?;
            }
        }
    }
    Ok(())
}

/// Copies the chosen fields of an uncompressed payload of fixed length; `None`, and nothing is done, for a record whose
/// head says something else.
#[inline]
pub(super) fn copy_dense(dense: &Dense, record: &[u8], targets: &mut [Target<'_>]) -> Option<()> {
    let payload = dense.payload(record)?;
    for (target, place) in targets.iter_mut().zip(&dense.places) {
        let value = payload.get(place.clone())?;
        target.next(value.len())?.copy_from_slice(value);
    }
    Some(())
}

/// The place of the next value of `len` bytes, or what differs.
fn place<'t>(target: &'t mut Target<'_>, len: usize) -> std::result::Result<&'t mut [u8], String> {
    let wanted = target.next_len();
    target.next(len).ok_or_else(|| match wanted {
        Some(wanted) => format!("a value of {len} bytes where {wanted} belong"),
        None => "a value beyond the last row".to_owned(),
    })
}

fn from_stored(
    files: &Files,
    selection: &Selection,
    at: &Located,
    stored: &[u8],
    targets: &mut [Target<'_>],
    scratch: &mut Scratch,
) -> Result<()> {
    let fault = |found| files.fault(at, found);
    if let Some(payload) = plain(at.algorithm, stored) {
        return from_payload(selection, payload, targets, scratch).map_err(fault);
    }
    let len = payload_len(at.algorithm, stored).map_err(fault)?;
    let dictionary = files.dictionary(at)?;
    if let (true, [target]) = (selection.is_whole(), &mut *targets) {
        let place = place(target, len).map_err(fault)?;
        let decoder = &mut scratch.decoder;
        return decoder
            .restore_into(at.algorithm, dictionary, stored, place)
            .map_err(fault);
    }
    check_len(len as u64).map_err(fault)?;
    if let Some(dense) = selection.dense().filter(|dense| dense.payload_len != len) {
        let wanted = dense.payload_len;
        return Err(fault(format!(
            "a payload of {len} bytes where {wanted} belong"
        )));
    }
    let mut payload = std::mem::take(&mut scratch.payload);
    payload.clear();
    // Decoding would take want of memory for damage.
    let outcome = payload.try_reserve(len);
    outcome.map_err(|_| CacheError::memory("a payload", len))?;
    scratch
        .decoder
        .append(at.algorithm, dictionary, stored, &mut payload)
        .map_err(fault)?;
    from_payload(selection, &payload, targets, scratch).map_err(fault)?;
    scratch.payload = payload;
    Ok(())
}

fn check_len(len: u64) -> std::result::Result<(), String> {
    if len <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "a payload of {len} bytes, more than {PAYLOAD_BYTES_MAX}"
    ))
}

fn from_payload(
    selection: &Selection,
    payload: &[u8],
    targets: &mut [Target<'_>],
    scratch: &mut Scratch,
) -> std::result::Result<(), String> {
    if let Some(dense) = selection.dense() {
        if payload.len() != dense.payload_len {
            return Err(format!(
                "a payload of {} bytes where the fields take {}",
                payload.len(),
                dense.payload_len
            ));
        }
        for (target, place) in targets.iter_mut().zip(&dense.places) {
            let value = payload.get(place.clone()).unwrap_or_default();
            self::place(target, value.len())?.copy_from_slice(value);
        }
        return Ok(());
    }
    let Some(schema) = selection.schema() else {
        for target in targets {
            place(target, payload.len())?.copy_from_slice(payload);
        }
        return Ok(());
    };
    schema.split(payload, &mut scratch.extents, &mut scratch.places)?;
    for (target, number) in targets.iter_mut().zip(selection.chosen()) {
        let place = scratch.places.get(*number);
        let value = place.and_then(|place| payload.get(place.bytes.clone()));
        let value = value.ok_or("a field beyond the schema")?;
        self::place(target, value.len())?.copy_from_slice(value);
    }
    Ok(())
}

/// Asks the processor for the records after the one being copied: far enough ahead to hide the way to memory, not so far
/// that the first are gone again.
#[derive(Debug, Default)]
struct Ahead {
    /// Records asked for so far, and those of them that are not copied yet, in bytes.
    asked: usize,
    bytes: usize,
}

impl Ahead {
    #[inline]
    fn advance(&mut self, files: &Files, rows: &[Located], position: usize) {
        let current = rows.get(position).map_or(0, |at| at.len);
        if self.asked > position {
            self.bytes = self.bytes.saturating_sub(current);
        } else {
            self.asked = position + 1;
        }
        while self.bytes < AHEAD_BYTES && self.asked <= position + AHEAD_ROWS {
            let Some(at) = rows.get(self.asked) else {
                return;
            };
            prefetch(files.bytes(at).unwrap_or_default());
            self.bytes += at.len;
            self.asked += 1;
        }
    }
}
