//! The payload schema of a cache: named, typed fields in name order, and where each lies in a payload.
//!
//! A payload of fields starts with the extent of every axis that the schema leaves open, as little-endian u64, in field
//! order and then axis order. The elements of each field follow in field order: little-endian, in C order, without
//! padding. Where every axis is fixed there is nothing but elements.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::limits::{PAYLOAD_AXES_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_FIELDS_MAX};

/// Bytes of one stored extent.
pub const EXTENT_BYTES: usize = 8;

/// Type of the elements of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of NumPy and ml_dtypes")]
pub enum Dtype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
    Complex64,
    Complex128,
    Bfloat16,
    #[serde(rename = "float8_e3m4")]
    Float8E3m4,
    #[serde(rename = "float8_e4m3")]
    Float8E4m3,
    #[serde(rename = "float8_e4m3b11fnuz")]
    Float8E4m3b11fnuz,
    #[serde(rename = "float8_e4m3fn")]
    Float8E4m3fn,
    #[serde(rename = "float8_e4m3fnuz")]
    Float8E4m3fnuz,
    #[serde(rename = "float8_e5m2")]
    Float8E5m2,
    #[serde(rename = "float8_e5m2fnuz")]
    Float8E5m2fnuz,
    #[serde(rename = "float8_e8m0fnu")]
    Float8E8m0fnu,
    /// Opaque bytes, given back as `bytes`; always of one open axis.
    Bytes,
}

impl Dtype {
    /// The name in manifests and in Python; `None` in the other direction for a name that is not known.
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::from(name)).ok()
    }

    /// The name in manifests and in Python.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => String::new(),
        }
    }

    /// Bytes of one element.
    pub fn item_bytes(self) -> u64 {
        match self {
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float32 => 4,
            Self::Int64 | Self::Uint64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
            _ => 1,
        }
    }
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    /// Name in the mapping that the source gives.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Extent of each axis; `None` where samples differ.
    pub shape: Vec<Option<u64>>,
}

impl FieldSpec {
    /// Whether every axis is fixed.
    pub fn is_dense(&self) -> bool {
        self.shape.iter().all(Option::is_some)
    }

    /// Axes that are not fixed.
    pub fn open_axes(&self) -> usize {
        self.shape.iter().filter(|extent| extent.is_none()).count()
    }

    /// Bytes of one value whose open axes have `extents`, unless there are too many or too few of them or the product
    /// exceeds the largest payload.
    pub fn byte_len(&self, extents: &[u64]) -> Option<u64> {
        let mut open = extents.iter();
        let mut len = self.dtype.item_bytes();
        // An axis of nothing makes the value empty, however long the others are.
        let mut is_empty = false;
        for extent in &self.shape {
            let extent = match extent {
                Some(extent) => *extent,
                None => *open.next()?,
            };
            is_empty |= extent == 0;
            len = len.checked_mul(extent.max(1))?;
        }
        let len = if is_empty { 0 } else { len };
        (open.next().is_none() && len <= PAYLOAD_BYTES_MAX).then_some(len)
    }

    /// The field as messages name it, for example `uint8 (3, 64, None)`.
    pub fn describe(&self) -> String {
        let axis = |extent: &Option<u64>| extent.map_or("None".to_owned(), |n| n.to_string());
        let axes: Vec<String> = self.shape.iter().map(axis).collect();
        let comma = if axes.len() == 1 { "," } else { "" };
        format!("{} ({}{comma})", self.dtype.name(), axes.join(", "))
    }
}

/// Fields in strictly ascending name order; never none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PayloadSchema {
    fields: Vec<FieldSpec>,
}

/// One field of one payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    /// Its bytes in the payload.
    pub bytes: Range<usize>,
    /// Where the extents of its open axes are among all extents of the payload.
    pub extents: Range<usize>,
}

impl PayloadSchema {
    /// Sorts the fields by name and checks names, shapes and sizes.
    ///
    /// # Errors
    /// A sentence that names the field and the rule it breaks.
    pub fn new(mut fields: Vec<FieldSpec>) -> Result<Self, String> {
        if fields.is_empty() || fields.len() > PAYLOAD_FIELDS_MAX {
            return Err(format!(
                "{} payload fields where 1 to {PAYLOAD_FIELDS_MAX} belong",
                fields.len()
            ));
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        for (field, next) in fields.iter().zip(fields.iter().skip(1)) {
            if field.name == next.name {
                return Err(format!("payload field `{}` appears twice", field.name));
            }
        }
        let mut total: u64 = 0;
        for field in &fields {
            let name = &field.name;
            if field.shape.len() > PAYLOAD_AXES_MAX {
                let found = field.shape.len();
                return Err(format!(
                    "payload field `{name}` has {found} axes, more than the limit of {PAYLOAD_AXES_MAX}"
                ));
            }
            if field.dtype == Dtype::Bytes && field.shape != [None] {
                return Err(format!(
                    "payload field `{name}` of bytes must have one open axis"
                ));
            }
            let least = field.byte_len(&vec![1; field.open_axes()]);
            let sum = least.and_then(|least| total.checked_add(least));
            total = sum.filter(|total| *total <= PAYLOAD_BYTES_MAX).ok_or_else(|| {
                format!("payload field `{name}` makes a payload of more than {PAYLOAD_BYTES_MAX} bytes")
            })?;
        }
        Ok(Self { fields })
    }

    /// Fields in name order.
    pub fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    /// Number of the field called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.fields
            .binary_search_by(|field| field.name.as_str().cmp(name))
            .ok()
    }

    /// The first field that is missing among `names` and the first name that is no field, for a message.
    pub fn difference(&self, names: &[&str]) -> Option<String> {
        let missing = self.fields.iter().map(|field| field.name.as_str());
        let missing = missing.clone().find(|name| !names.contains(name));
        let extra = names.iter().find(|name| self.position(name).is_none());
        match (missing, extra) {
            (Some(missing), Some(extra)) => Some(format!(
                "`{missing}` is missing and `{extra}` is unexpected"
            )),
            (Some(missing), None) => Some(format!("`{missing}` is missing")),
            (None, Some(extra)) => Some(format!("`{extra}` is unexpected")),
            (None, None) if names.len() != self.fields.len() => {
                Some("of one name appears twice".to_owned())
            }
            (None, None) => None,
        }
    }

    /// Axes of all fields that are not fixed.
    pub fn open_axes(&self) -> usize {
        self.fields.iter().map(FieldSpec::open_axes).sum()
    }

    /// Bytes of every payload, if all fields are dense.
    pub fn dense_len(&self) -> Option<u64> {
        let lens = self.fields.iter().map(|field| field.byte_len(&[]));
        lens.sum()
    }

    /// Splits `payload` into fields: their places go to `places` and the extents of all open axes to `extents`, both
    /// emptied first.
    ///
    /// # Errors
    /// What is wrong with the payload.
    pub fn split(
        &self,
        payload: &[u8],
        extents: &mut Vec<u64>,
        places: &mut Vec<FieldPlace>,
    ) -> Result<(), String> {
        extents.clear();
        places.clear();
        let head = self.open_axes() * EXTENT_BYTES;
        let Some((stored, _)) = payload.split_at_checked(head) else {
            return Err(format!(
                "a payload of {} bytes, shorter than the {head} bytes of its extents",
                payload.len()
            ));
        };
        let words = stored.as_chunks::<EXTENT_BYTES>().0;
        extents.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        let (mut next, mut start) = (0, head);
        for field in &self.fields {
            let own = next..next + field.open_axes();
            let found = extents.get(own.clone()).unwrap_or_default();
            let len = field.byte_len(found).ok_or_else(|| {
                format!(
                    "field `{}` of extents {found:?}, more than a payload holds",
                    field.name
                )
            })?;
            let end = usize::try_from(len)
                .ok()
                .and_then(|len| start.checked_add(len));
            let end = end.filter(|end| *end <= payload.len()).ok_or_else(|| {
                format!(
                    "field `{}` of {len} bytes at byte {start} of a payload of {} bytes",
                    field.name,
                    payload.len()
                )
            })?;
            next = own.end;
            places.push(FieldPlace {
                bytes: start..end,
                extents: own,
            });
            start = end;
        }
        if start == payload.len() {
            return Ok(());
        }
        Err(format!(
            "a payload of {} bytes whose fields take {start}",
            payload.len()
        ))
    }
}

impl<'de> Deserialize<'de> for PayloadSchema {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            fields: Vec<FieldSpec>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Self::new(raw.fields).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, dtype: Dtype, shape: &[Option<u64>]) -> FieldSpec {
        FieldSpec {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
        }
    }

    fn mixed() -> PayloadSchema {
        PayloadSchema::new(vec![
            field("tokens", Dtype::Int32, &[None, Some(2)]),
            field("image", Dtype::Uint8, &[Some(3)]),
            field("jpeg", Dtype::Bytes, &[None]),
        ])
        .unwrap()
    }

    #[test]
    fn a_payload_splits_into_its_fields_in_name_order() {
        let mut payload = Vec::new();
        for extent in [2u64, 1] {
            payload.extend_from_slice(&extent.to_le_bytes());
        }
        payload.extend_from_slice(b"abc");
        payload.extend_from_slice(b"jp");
        payload.extend_from_slice(&[9; 8]);
        let (mut extents, mut places) = (vec![7], Vec::new());
        mixed().split(&payload, &mut extents, &mut places).unwrap();
        assert_eq!(extents, [2, 1]);
        let bytes: Vec<_> = places.iter().map(|p| p.bytes.clone()).collect();
        assert_eq!(bytes, [16..19, 19..21, 21..29]);
        let own: Vec<_> = places.iter().map(|p| p.extents.clone()).collect();
        assert_eq!(own, [0..0, 0..1, 1..2]);
        for len in 0..payload.len() {
            let cut = mixed().split(&payload[..len], &mut extents, &mut places);
            assert!(cut.is_err(), "{len}");
        }
        payload.push(0);
        assert!(mixed().split(&payload, &mut extents, &mut places).is_err());
    }

    #[test]
    fn extents_beyond_a_payload_are_refused_before_they_are_multiplied() {
        let mut payload = vec![255; 16];
        payload.extend_from_slice(&[0; 100]);
        let (mut extents, mut places) = (Vec::new(), Vec::new());
        let error = mixed().split(&payload, &mut extents, &mut places);
        assert!(error.unwrap_err().contains("jpeg"));
    }

    #[test]
    fn dense_schemas_know_the_length_of_every_payload() {
        assert_eq!(mixed().dense_len(), None);
        let dense = PayloadSchema::new(vec![
            field("b", Dtype::Complex128, &[]),
            field("a", Dtype::Float32, &[Some(2), Some(3)]),
            field("c", Dtype::Int64, &[Some(0), Some(1 << 60)]),
        ])
        .unwrap();
        assert_eq!(dense.dense_len(), Some(40));
        assert_eq!(dense.position("b"), Some(1));
    }

    #[test]
    fn schemas_that_cannot_be_are_refused_with_the_field() {
        let long = vec![Some(1); PAYLOAD_AXES_MAX + 1];
        let bad: [&[FieldSpec]; 5] = [
            &[],
            &[field("a", Dtype::Int8, &[]), field("a", Dtype::Int8, &[])],
            &[field("a", Dtype::Bytes, &[Some(3)])],
            &[field("a", Dtype::Int64, &[Some(1 << 40), None])],
            &[field("a", Dtype::Int8, &long)],
        ];
        for fields in bad {
            assert!(PayloadSchema::new(fields.to_vec()).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn every_dtype_has_one_name_and_comes_back_from_json() {
        for name in [
            "bool",
            "int8",
            "uint64",
            "float16",
            "bfloat16",
            "float8_e4m3fn",
            "complex128",
            "bytes",
        ] {
            assert_eq!(Dtype::from_name(name).unwrap().name(), name);
        }
        assert_eq!(Dtype::from_name("object"), None);
        let text = serde_json::to_string(&mixed()).unwrap();
        let found: PayloadSchema = serde_json::from_str(&text).unwrap();
        assert_eq!(found, mixed());
        assert!(serde_json::from_str::<PayloadSchema>(r#"{"fields":[]}"#).is_err());
    }
}
