//! Which parts of the payloads a gather brings.

use std::ops::Range;
use std::sync::Arc;

use crate::format::envelope;
use crate::format::payload::PayloadSchema;

/// Payloads as plain bytes, or some fields of them.
#[derive(Clone, Debug)]
pub struct Selection {
    schema: Option<Arc<PayloadSchema>>,
    /// Numbers of the fields, ascending; of plain payloads there is one, number 0.
    chosen: Vec<usize>,
    /// Where each chosen field lies in every payload, if they all are of fixed shape.
    dense: Option<Dense>,
}

/// Payloads of one length.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    /// Bytes of every payload.
    pub payload_len: usize,
    /// The bytes of each chosen field.
    pub places: Vec<Range<usize>>,
}

impl Dense {
    /// The payload at the end of an uncompressed record; `None` for a record whose head says something else.
    #[inline]
    pub fn payload<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let head = record.len().checked_sub(self.payload_len)?;
        let (head, payload) = record.split_at_checked(head)?;
        let (json_len, json) = head.split_first_chunk::<{ envelope::LENGTH_PREFIX }>()?;
        (u64::from_le_bytes(*json_len) == json.len() as u64).then_some(payload)
    }
}

impl Selection {
    /// The payloads that `schema` describes, without those fields for which `is_chosen` does not hold. Plain payloads
    /// are one field without a name.
    pub fn new(schema: Option<Arc<PayloadSchema>>, is_chosen: impl Fn(&str) -> bool) -> Self {
        let Some(schema) = schema else {
            return Self {
                schema: None,
                chosen: if is_chosen("") { vec![0] } else { Vec::new() },
                dense: None,
            };
        };
        let fields = schema.fields().iter().enumerate();
        let chosen = fields.filter(|(_, field)| is_chosen(&field.name));
        let chosen: Vec<usize> = chosen.map(|(number, _)| number).collect();
        Self {
            dense: dense(&schema, &chosen),
            schema: Some(schema),
            chosen,
        }
    }

    /// Whole payloads.
    pub fn all(schema: Option<Arc<PayloadSchema>>) -> Self {
        Self::new(schema, |_| true)
    }

    /// Fields of the payloads; `None` for plain bytes.
    pub fn schema(&self) -> Option<&Arc<PayloadSchema>> {
        self.schema.as_ref()
    }

    /// Numbers of the chosen fields, ascending: the columns of a gather.
    pub fn chosen(&self) -> &[usize] {
        &self.chosen
    }

    pub(super) fn dense(&self) -> Option<&Dense> {
        self.dense.as_ref()
    }

    /// Whether each column takes the whole payload, so that it can be restored in its destination.
    pub(super) fn is_whole(&self) -> bool {
        match (&self.schema, &self.dense) {
            (None, _) => self.chosen.len() == 1,
            (Some(_), Some(dense)) => {
                matches!(dense.places.as_slice(), [place] if *place == (0..dense.payload_len))
            }
            (Some(_), None) => false,
        }
    }
}

fn dense(schema: &PayloadSchema, chosen: &[usize]) -> Option<Dense> {
    let payload_len = usize::try_from(schema.dense_len()?).ok()?;
    let mut places = Vec::new();
    let mut start = 0;
    for (number, field) in schema.fields().iter().enumerate() {
        let end = start + usize::try_from(field.byte_len(&[])?).ok()?;
        if chosen.contains(&number) {
            places.push(start..end);
        }
        start = end;
    }
    Some(Dense {
        payload_len,
        places,
    })
}
