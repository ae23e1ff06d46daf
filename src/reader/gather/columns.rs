//! The columns of a gather, and how long their values are, which is found out before anything is written.

use super::copy::{restored_len, stored};
use super::files::{Files, Located};
use super::selection::Selection;
use super::target::Lens;
use crate::error::{CacheError, Result};
use crate::store::slot::Slot;

/// What a column of a gather holds besides its values.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Bytes of all values together.
    pub byte_len: usize,
    /// Where each value starts, and where the last one ends, in bytes; `None` if all have one length.
    pub offsets: Option<Vec<u64>>,
    /// Per row the extents of the axes that the schema leaves open.
    pub open_extents: Vec<u64>,
}

impl Extent {
    /// Of `rows` values of one length.
    pub(super) fn fixed(len: usize, rows: usize) -> Result<Self> {
        let byte_len = len.checked_mul(rows).ok_or_else(|| {
            CacheError::limit("rows of a gather", rows as u64, (usize::MAX / len) as u64)
        })?;
        Ok(Self {
            byte_len,
            ..Self::default()
        })
    }

    /// Of whole payloads, one after the other.
    pub(super) fn of_payloads(files: &Files, located: &[Located]) -> Result<Self> {
        let mut offsets = Vec::with_capacity(located.len() + 1);
        let mut end: u64 = 0;
        offsets.push(0);
        for at in located {
            end = end.saturating_add(restored_len(files, at)?);
            offsets.push(end);
        }
        Ok(Self {
            byte_len: usize::try_from(end).unwrap_or(usize::MAX),
            offsets: Some(offsets),
            open_extents: Vec::new(),
        })
    }

    /// Of each chosen field; `restored` holds the payloads if they cannot be read where they lie.
    pub(super) fn of_fields(
        files: &Files,
        located: &[Located],
        selection: &Selection,
        restored: Option<&Column>,
    ) -> Result<Vec<Self>> {
        let Some(schema) = selection.schema() else {
            return Err(CacheError::internal("fields of plain payloads"));
        };
        let rows = located.len();
        let empty = |_| Self {
            offsets: Some(Vec::with_capacity(rows + 1)),
            ..Self::default()
        };
        let mut columns: Vec<Self> = selection.chosen().iter().map(empty).collect();
        let (mut extents, mut places) = (Vec::new(), Vec::new());
        for (row, at) in located.iter().enumerate() {
            let payload = match restored {
                Some(column) => column.row(row)?,
                None => stored(files, at, files.bytes(at).unwrap_or_default())?,
            };
            schema
                .split(payload, &mut extents, &mut places)
                .map_err(|found| files.fault(at, found))?;
            for (column, number) in columns.iter_mut().zip(selection.chosen()) {
                let Some(place) = places.get(*number) else {
                    return Err(CacheError::internal("a field beyond the schema"));
                };
                let open = extents.get(place.extents.clone()).unwrap_or_default();
                column.open_extents.extend_from_slice(open);
                if let Some(offsets) = &mut column.offsets {
                    offsets.push(column.byte_len as u64);
                }
                column.byte_len = column.byte_len.saturating_add(place.bytes.len());
            }
        }
        for (column, number) in columns.iter_mut().zip(selection.chosen()) {
            let field = schema.fields().get(*number);
            if field.is_some_and(|field| field.is_dense()) {
                column.offsets = None;
            } else if let Some(offsets) = &mut column.offsets {
                offsets.push(column.byte_len as u64);
            }
        }
        Ok(columns)
    }

    /// Lengths of the values, of which there are `rows`.
    pub(super) fn lens(&self, rows: usize) -> Lens<'_> {
        match &self.offsets {
            Some(offsets) => Lens::Between(offsets),
            None => Lens::Fixed(self.byte_len.checked_div(rows).unwrap_or(0)),
        }
    }
}

/// One field of many samples.
#[derive(Debug)]
pub struct Column {
    /// The values, one after the other.
    pub values: Slot,
    /// Where each of them is.
    pub extent: Extent,
}

impl Column {
    /// The value of a row, if the values differ in length.
    fn row(&self, row: usize) -> Result<&[u8]> {
        let offsets = self.extent.offsets.as_deref().unwrap_or_default();
        let value = match offsets.get(row..row + 2) {
            Some([start, end]) => self.values.get(*start as usize..*end as usize),
            _ => None,
        };
        value.ok_or_else(|| CacheError::internal("a row beyond its column"))
    }
}
