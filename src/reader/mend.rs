//! A batch of which some samples are damaged: each is looked at by itself, and something else takes their rows.

use super::corrupt::{Mended, Mending};
use super::gather::{Column, Extent, Gatherer, Selection};
use super::pipeline::Run;
use crate::error::{CacheError, Result};
use crate::store::slot::SlotPool;
use crate::types::SampleRef;

/// A batch that could be made after all.
pub(super) struct MendedBatch {
    /// The samples that its rows name.
    pub samples: Vec<SampleRef>,
    /// Their values; nothing in rows that were left out.
    pub columns: Vec<Column>,
    /// The rows that were left out, ascending.
    pub left_out: Vec<usize>,
}

/// Makes a batch of `samples`, those of `run`, of which some cannot be read: `error` said so of the first.
///
/// # Errors
/// As [`Mending::mend`].
pub(super) fn mend_batch(
    gatherer: &mut Gatherer,
    mending: &Mending,
    run: &Run,
    mut samples: Vec<SampleRef>,
    selection: &Selection,
    error: CacheError,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<MendedBatch> {
    if !mending.is_due(&error) {
        return Err(error);
    }
    let mut left_out = Vec::new();
    for (row, sample) in samples.iter_mut().enumerate() {
        interrupt()?;
        let mut read = |sample| {
            let alone = gatherer.gather(&[sample], selection, None, &mut || Ok(()));
            alone.map(drop)
        };
        let Err(error) = read(*sample) else { continue };
        match mending.mend(run, row, *sample, error, read)? {
            Mended::LeftOut => left_out.push(row),
            Mended::With(other, ()) => *sample = other,
        }
    }
    let rows = samples.len();
    if left_out.is_empty() {
        let columns = gatherer.gather(&samples, selection, None, interrupt)?;
        return Ok(MendedBatch {
            samples,
            columns,
            left_out,
        });
    }
    let mut holes = left_out.iter().copied().peekable();
    let sound = samples.iter().enumerate();
    let sound = sound.filter(|(row, _)| holes.next_if_eq(row).is_none());
    let sound: Vec<SampleRef> = sound.map(|(_, sample)| *sample).collect();
    let columns = gatherer.gather(&sound, selection, None, interrupt)?;
    let numbers = selection.chosen().iter();
    let spread = columns.into_iter().zip(numbers).map(|(column, number)| {
        let field = selection
            .schema()
            .and_then(|schema| schema.fields().get(*number));
        let width = field.and_then(|field| field.byte_len(&[])).unwrap_or(0);
        let axes = field.map_or(0, |field| field.open_axes());
        let shape = Shape {
            rows,
            width: usize::try_from(width).unwrap_or(usize::MAX),
            axes,
        };
        spread(gatherer.pool(), column, shape, &left_out)
    });
    Ok(MendedBatch {
        columns: spread.collect::<Result<_>>()?,
        samples,
        left_out,
    })
}

/// What a column is to become.
#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    /// Bytes of a value, if all have one length.
    width: usize,
    /// Axes of a value that are open.
    axes: usize,
}

/// The values of a column with nothing in rows `left_out`: zeros where values have one length, otherwise no byte.
fn spread(
    pool: &std::sync::Arc<SlotPool>,
    column: Column,
    shape: Shape,
    left_out: &[usize],
) -> Result<Column> {
    let Extent {
        byte_len,
        offsets,
        open_extents,
    } = column.extent;
    let mut extents = open_extents.chunks(shape.axes.max(1));
    let mut spread_extents = Vec::with_capacity(shape.rows * shape.axes);
    let is_open = shape.axes > 0;
    let mut holes = left_out.iter().copied().peekable();
    let nothing = vec![0; shape.axes];
    for row in 0..shape.rows {
        let is_hole = holes.next_if_eq(&row).is_some();
        if is_open {
            let own = if is_hole { None } else { extents.next() };
            spread_extents.extend_from_slice(own.unwrap_or(&nothing));
        }
    }
    let mut holes = left_out.iter().copied().peekable();
    if let Some(offsets) = offsets {
        let mut ends = offsets.iter().copied();
        let mut end = ends.next().unwrap_or(0);
        let mut spread = Vec::with_capacity(shape.rows + 1);
        spread.push(end);
        for row in 0..shape.rows {
            if holes.next_if_eq(&row).is_none() {
                end = ends.next().unwrap_or(end);
            }
            spread.push(end);
        }
        return Ok(Column {
            values: column.values,
            extent: Extent {
                byte_len,
                offsets: Some(spread),
                open_extents: spread_extents,
            },
        });
    }
    let byte_len = shape.width.checked_mul(shape.rows).ok_or_else(|| {
        CacheError::limit("bytes of a batch", shape.rows as u64, usize::MAX as u64)
    })?;
    let mut values = pool.take(byte_len)?;
    values.fill(0);
    if shape.width > 0 {
        let mut sound = column.values.chunks_exact(shape.width);
        for (row, place) in values.chunks_exact_mut(shape.width).enumerate() {
            if holes.next_if_eq(&row).is_none()
                && let Some(value) = sound.next()
            {
                place.copy_from_slice(value);
            }
        }
    }
    Ok(Column {
        values,
        extent: Extent {
            byte_len,
            offsets: None,
            open_extents: spread_extents,
        },
    })
}
