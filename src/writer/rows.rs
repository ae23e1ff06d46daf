//! Payloads that lie in memory by field, and are encoded and committed from there without being gathered first.

use std::ops::Range;

use arrow_array::{Array, BinaryViewArray};
use arrow_buffer::{Buffer, ScalarBuffer};

use crate::error::CacheError;

/// One payload field of consecutive samples.
#[derive(Clone, Debug)]
pub enum FieldRows {
    /// Values of equal length, one after another.
    Dense {
        /// The values.
        bytes: Buffer,
        /// Length of each, in bytes.
        row_bytes: usize,
    },
    /// Values of one open axis, one after another.
    Ragged {
        /// The values.
        bytes: Buffer,
        /// For each sample the element it starts at, and the end of the last.
        offsets: Offsets,
        /// Bytes of one element of the open axis.
        unit: usize,
    },
    /// Byte strings that may lie anywhere.
    Views(BinaryViewArray),
}

/// Where ragged values start.
#[derive(Clone, Debug)]
pub enum Offsets {
    /// Of 31 bits.
    Small(ScalarBuffer<i32>),
    /// Of 63 bits.
    Large(ScalarBuffer<i64>),
}

impl Offsets {
    fn len(&self) -> usize {
        match self {
            Self::Small(offsets) => offsets.len(),
            Self::Large(offsets) => offsets.len(),
        }
    }

    fn get(&self, row: usize) -> Option<i64> {
        match self {
            Self::Small(offsets) => offsets.get(row).map(|offset| i64::from(*offset)),
            Self::Large(offsets) => offsets.get(row).copied(),
        }
    }

    /// Elements of a sample.
    fn range(&self, row: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.get(row)?).ok()?;
        let end = usize::try_from(self.get(row.checked_add(1)?)?).ok()?;
        (start <= end).then_some(start..end)
    }
}

impl FieldRows {
    /// The values of `len` samples from number `start` on, if there are as many.
    pub(super) fn slice(&self, start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        match self {
            Self::Dense { bytes, row_bytes } => {
                let (start, end) = (start.checked_mul(*row_bytes)?, end.checked_mul(*row_bytes)?);
                (end <= bytes.len()).then(|| Self::Dense {
                    bytes: bytes.slice_with_length(start, end - start),
                    row_bytes: *row_bytes,
                })
            }
            Self::Ragged {
                bytes,
                offsets,
                unit,
            } => (end < offsets.len()).then(|| Self::Ragged {
                bytes: bytes.clone(),
                offsets: match offsets {
                    Offsets::Small(offsets) => Offsets::Small(offsets.slice(start, len + 1)),
                    Offsets::Large(offsets) => Offsets::Large(offsets.slice(start, len + 1)),
                },
                unit: *unit,
            }),
            Self::Views(views) => {
                (end <= views.len()).then(|| Self::Views(views.slice(start, len)))
            }
        }
    }

    /// What is wrong with the field of `rows` samples, and in which of them.
    fn fault(&self, rows: usize) -> Option<(usize, String)> {
        match self {
            Self::Dense { bytes, row_bytes } => {
                let needed = rows.checked_mul(*row_bytes);
                (needed != Some(bytes.len())).then(|| {
                    let found = bytes.len();
                    (
                        0,
                        format!("{rows} values of {row_bytes} bytes in {found} bytes"),
                    )
                })
            }
            Self::Ragged {
                bytes,
                offsets,
                unit,
            } => {
                if offsets.len() != rows.saturating_add(1) {
                    let found = offsets.len();
                    return Some((0, format!("{found} offsets for {rows} samples")));
                }
                let elements = bytes.len().checked_div(*unit);
                (0..rows).find_map(|row| {
                    let range = offsets.range(row);
                    let is_inside =
                        range.is_some_and(|range| elements.is_none_or(|n| range.end <= n));
                    (!is_inside).then(|| {
                        let ends = [offsets.get(row), offsets.get(row.saturating_add(1))];
                        let [start, end] = ends.map(|end| end.unwrap_or_default());
                        let limit = elements.unwrap_or_default();
                        (row, format!("offsets {start} to {end} into {limit} values"))
                    })
                })
            }
            Self::Views(views) => (views.len() != rows).then(|| {
                let found = views.len();
                (0, format!("{found} values for {rows} samples"))
            }),
        }
    }

    /// The value of a sample.
    fn value(&self, row: usize) -> &[u8] {
        match self {
            Self::Dense { bytes, row_bytes } => {
                let start = row.saturating_mul(*row_bytes);
                bytes.get(start..start.saturating_add(*row_bytes))
            }
            Self::Ragged {
                bytes,
                offsets,
                unit,
            } => offsets.range(row).and_then(|range| {
                let (start, end) = (
                    range.start.checked_mul(*unit)?,
                    range.end.checked_mul(*unit)?,
                );
                bytes.get(start..end)
            }),
            Self::Views(views) => (row < views.len()).then(|| views.value(row)),
        }
        .unwrap_or_default()
    }

    /// The extent of the open axis of a sample; none where all axes are fixed.
    fn extent(&self, row: usize) -> Option<u64> {
        match self {
            Self::Dense { .. } => None,
            Self::Ragged { offsets, .. } => {
                Some(offsets.range(row).map_or(0, |range| range.len() as u64))
            }
            Self::Views(_) => Some(self.value(row).len() as u64),
        }
    }
}

/// The payloads of consecutive samples.
#[derive(Clone, Debug)]
pub(super) struct PayloadRows {
    rows: usize,
    fields: Vec<FieldRows>,
    /// Whether they are payloads of fields, whose extents they start with, or opaque bytes.
    is_typed: bool,
}

impl PayloadRows {
    /// Payloads of fields, in the order of the schema, `rows` of each.
    ///
    /// # Errors
    /// The number of a field, the sample in which it is at fault, and what is wrong.
    pub fn typed(
        fields: Vec<FieldRows>,
        rows: usize,
    ) -> std::result::Result<Self, (usize, usize, String)> {
        for (number, field) in fields.iter().enumerate() {
            if let Some((row, fault)) = field.fault(rows) {
                return Err((number, row, fault));
            }
        }
        Ok(Self {
            rows,
            fields,
            is_typed: true,
        })
    }

    /// Payloads that are opaque bytes. Otherwise as [`PayloadRows::typed`].
    pub fn plain(
        bytes: FieldRows,
        rows: usize,
    ) -> std::result::Result<Self, (usize, usize, String)> {
        Ok(Self {
            is_typed: false,
            ..Self::typed(vec![bytes], rows)?
        })
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Length of the payload of a sample, in bytes.
    pub(super) fn byte_len(&self, row: usize) -> usize {
        let mut len = 0usize;
        self.parts(row, |part| {
            len = len.saturating_add(part.len());
            Ok::<_, CacheError>(())
        })
        .unwrap_or_default();
        len
    }

    /// Gives the payload of a sample to `take`, part by part.
    pub(super) fn parts<E>(
        &self,
        row: usize,
        mut take: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.is_typed {
            for extent in self.fields.iter().filter_map(|field| field.extent(row)) {
                take(&extent.to_le_bytes())?;
            }
        }
        self.fields
            .iter()
            .try_for_each(|field| take(field.value(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(rows: &PayloadRows, row: usize) -> Vec<u8> {
        let mut found = Vec::new();
        rows.parts(row, |part| {
            found.extend_from_slice(part);
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(rows.byte_len(row), found.len());
        found
    }

    fn fields() -> Vec<FieldRows> {
        vec![
            FieldRows::Dense {
                bytes: Buffer::from(b"aabbcc".to_vec()),
                row_bytes: 2,
            },
            FieldRows::Ragged {
                bytes: Buffer::from(b"0123456789".to_vec()),
                offsets: Offsets::Small(vec![1, 3, 3, 5].into()),
                unit: 2,
            },
            FieldRows::Views(BinaryViewArray::from_iter_values([&b"x"[..], b"", b"yz"])),
        ]
    }

    #[test]
    fn a_payload_is_its_extents_and_then_its_values() {
        let rows = PayloadRows::typed(fields(), 3).unwrap();
        let extents = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        assert_eq!(
            payload(&rows, 0),
            [extents(2, 1), b"aa2345x".to_vec()].concat()
        );
        assert_eq!(payload(&rows, 1), [extents(0, 0), b"bb".to_vec()].concat());
        assert_eq!(
            payload(&rows, 2),
            [extents(2, 2), b"cc6789yz".to_vec()].concat()
        );
        let plain = PayloadRows::plain(fields().remove(2), 3).unwrap();
        assert_eq!(payload(&plain, 2), b"yz");
    }

    #[test]
    fn fields_that_do_not_cover_the_samples_are_refused() {
        for field in 0..3 {
            for rows in [2, 4] {
                let fault = PayloadRows::plain(fields().remove(field), rows).unwrap_err();
                assert_eq!((fault.0, fault.1), (0, 0), "{fault:?}");
            }
        }
        for (offsets, row) in [(vec![0, 6], 0), (vec![0, 5, 4], 1), (vec![-1, 2], 0)] {
            let rows = offsets.len() - 1;
            let field = FieldRows::Ragged {
                bytes: Buffer::from(vec![0u8; 10]),
                offsets: Offsets::Large(offsets.into()),
                unit: 2,
            };
            assert_eq!(PayloadRows::typed(vec![field], rows).unwrap_err().1, row);
        }
    }
}
