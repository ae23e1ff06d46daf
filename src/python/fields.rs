//! Typed payloads out of Python objects: a mapping of arrays, laid out as one payload.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView, PyString, PyType};

use super::fault::{Fault, sample};
use super::names::{keys, names};
use super::payload::buffer_bytes;
use super::source::type_name;
use crate::error::CacheError;
use crate::format::payload::{Dtype, EXTENT_BYTES, FieldSpec, PayloadSchema};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::writer::PayloadOrigin;

/// Takes the payload fields of the samples of one source.
pub struct Fields<'py> {
    schema: PayloadSchema,
    /// Field names as dictionary keys, in field order.
    keys: Vec<Bound<'py, PyString>>,
    /// Who says what they are.
    origin: PayloadOrigin,
    arrays: Arrays<'py>,
}

/// What is needed of Python to look at arrays.
struct Arrays<'py> {
    ndarray: Bound<'py, PyType>,
    laid_out: Bound<'py, PyAny>,
    refused: Bound<'py, PyType>,
}

/// One value of a field as it was found.
struct Found {
    dtype: Dtype,
    shape: Vec<u64>,
    elements: PyUntypedBuffer,
}

impl<'py> Fields<'py> {
    /// Fields that are known before the first sample, or that it gave.
    pub fn new(py: Python<'py>, schema: PayloadSchema, origin: PayloadOrigin) -> PyResult<Self> {
        let names = schema.fields().iter().map(|field| field.name.as_str());
        Ok(Self {
            keys: keys(py, names),
            schema,
            origin,
            arrays: Arrays::new(py)?,
        })
    }

    /// The fields that a first sample shows: each of the dtype and shape found.
    pub fn infer(data: &Bound<'py, PyDict>) -> Result<PayloadSchema, Fault> {
        let arrays = Arrays::new(data.py())?;
        let mut fields = Vec::with_capacity(data.len());
        for (name, value) in names(data, "payload", 0)?.into_iter().zip(data.values()) {
            let (dtype, shape) = if is_bytes(&value) {
                (Dtype::Bytes, vec![None])
            } else {
                let found = arrays.look(&value, None);
                let found = found.map_err(|misfit| misfit.of(0, &name, "an array of numbers"))?;
                (found.dtype, found.shape.into_iter().map(Some).collect())
            };
            fields.push(FieldSpec { name, dtype, shape });
        }
        if fields.is_empty() {
            let fault = "data is an empty mapping, expected at least one field";
            return Err(sample(0, fault.to_owned()));
        }
        PayloadSchema::new(fields).map_err(|fault| sample(0, fault))
    }

    /// Where the fields were learned, for messages.
    pub fn origin(&self) -> &'static str {
        match self.origin {
            PayloadOrigin::Source => "the source declares",
            PayloadOrigin::FirstSample => "the first sample gave",
            PayloadOrigin::Cache => "the cache has that is appended to",
        }
    }

    /// Appends the payload of one sample to `out`.
    ///
    /// # Errors
    /// [`Fault::Core`] for other keys than the fields, a value that does not fit its field, or too many bytes.
    pub fn append(
        &self,
        data: &Bound<'py, PyDict>,
        row: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        if data.len() != self.keys.len() {
            return Err(self.key_fault(data, row));
        }
        let start = out.len();
        out.resize(start + self.schema.open_axes() * EXTENT_BYTES, 0);
        let mut extents = Vec::new();
        for (spec, key) in self.schema.fields().iter().zip(&self.keys) {
            let Some(value) = data.get_item(key)? else {
                return Err(self.key_fault(data, row));
            };
            let put = |bytes: &[u8]| {
                let found = (out.len() - start).saturating_add(bytes.len());
                if found as u64 > PAYLOAD_BYTES_MAX {
                    return Err(Misfit::TooLong(found));
                }
                out.extend_from_slice(bytes);
                Ok(())
            };
            let taken = match spec.dtype {
                Dtype::Bytes => take_bytes(&value, put).map(|len| extents.push(len)),
                _ => self.arrays.take(spec, &value, &mut extents, put),
            };
            taken.map_err(|misfit| misfit.of(row, &spec.name, &spec.describe()))?;
        }
        let head = out.get_mut(start..).unwrap_or_default();
        let words = head.as_chunks_mut::<EXTENT_BYTES>().0;
        for (word, extent) in words.iter_mut().zip(&extents) {
            *word = extent.to_le_bytes();
        }
        Ok(())
    }

    /// The error for a sample with other keys than the fields: names one missing and one unexpected key.
    fn key_fault(&self, data: &Bound<'py, PyDict>, row: u64) -> Fault {
        let found = match names(data, "payload", row) {
            Ok(found) => found,
            Err(fault) => return fault,
        };
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let faults = self.schema.difference(&found).unwrap_or_default();
        let origin = self.origin();
        sample(
            row,
            format!("payload field {faults}; every sample needs the fields that {origin}"),
        )
    }
}

/// Why a value does not fit its field.
enum Misfit {
    /// It is something else: what, and what to do or nothing.
    Found(String, String),
    /// With it the payload takes this many bytes.
    TooLong(usize),
    /// Code of the value raised an exception.
    Raised(PyErr),
}

impl From<PyErr> for Misfit {
    fn from(exception: PyErr) -> Self {
        Self::Raised(exception)
    }
}

impl Misfit {
    fn of(self, row: u64, field: &str, expected: &str) -> Fault {
        match self {
            Self::Found(found, advice) => Fault::Core(CacheError::PayloadField {
                row,
                field: field.to_owned(),
                expected: expected.to_owned(),
                found,
                advice,
            }),
            Self::TooLong(len) => {
                let limit = format!("more than the limit of {PAYLOAD_BYTES_MAX}");
                sample(row, format!("a payload of at least {len} bytes, {limit}"))
            }
            Self::Raised(exception) => Fault::Raised(exception),
        }
    }
}

impl<'py> Arrays<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let class = |found: Bound<'py, PyAny>| Ok::<_, PyErr>(found.cast_into::<PyType>()?);
        let fields = py.import("dataset_rt.fields")?;
        Ok(Self {
            ndarray: class(py.import("numpy")?.getattr("ndarray")?)?,
            laid_out: fields.getattr("laid_out")?,
            refused: class(fields.getattr("RefusedError")?)?,
        })
    }

    /// Gives the elements of a value to `put` if it fits the field, and its open extents to `extents`.
    fn take(
        &self,
        spec: &FieldSpec,
        value: &Bound<'py, PyAny>,
        extents: &mut Vec<u64>,
        put: impl FnOnce(&[u8]) -> Result<(), Misfit>,
    ) -> Result<(), Misfit> {
        let found = self.look(value, Some(spec.dtype))?;
        let is_rank = found.shape.len() == spec.shape.len();
        let pairs = || spec.shape.iter().zip(&found.shape);
        let fits = pairs().all(|(axis, extent)| axis.is_none_or(|axis| axis == *extent));
        if found.dtype != spec.dtype || !is_rank || !fits {
            return Err(mismatch(spec, &found));
        }
        let open = pairs().filter(|(axis, _)| axis.is_none());
        extents.extend(open.map(|(_, extent)| *extent));
        buffer_bytes(&found.elements, put)
    }

    /// A value as an array of a dtype we know: itself, if it is laid out as in a cache, or a copy that is.
    fn look(&self, value: &Bound<'py, PyAny>, expected: Option<Dtype>) -> Result<Found, Misfit> {
        if value.get_type().is(&self.ndarray)
            && let Ok(elements) = PyUntypedBuffer::get(value)
            && elements.is_c_contiguous()
            && let Some(dtype) = dtype_of(elements.format().to_bytes(), elements.item_size())
        {
            return Ok(Found {
                dtype,
                shape: elements
                    .shape()
                    .iter()
                    .map(|extent| *extent as u64)
                    .collect(),
                elements,
            });
        }
        let expected = expected.map(Dtype::name);
        let laid_out =
            self.laid_out
                .call1((value, expected))
                .map_err(
                    |exception| match exception.is_instance(value.py(), &self.refused) {
                        true => {
                            Misfit::Found(exception.value(value.py()).to_string(), String::new())
                        }
                        false => Misfit::Raised(exception),
                    },
                )?;
        let (name, shape, elements): (String, Vec<u64>, Bound<'py, PyAny>) = laid_out.extract()?;
        let Some(dtype) = Dtype::from_name(&name) else {
            let advice = "; view it as uint8".to_owned();
            return Err(Misfit::Found(
                format!("dtype {name}, which is not stored"),
                advice,
            ));
        };
        Ok(Found {
            dtype,
            shape,
            elements: PyUntypedBuffer::get(&elements)?,
        })
    }
}

/// The dtype of a buffer format whose elements are little-endian, as they are in a cache.
fn dtype_of(format: &[u8], item_size: usize) -> Option<Dtype> {
    let is_little = cfg!(target_endian = "little");
    let (is_stored, code) = match format {
        [b'<', code @ ..] => (true, code),
        [b'>' | b'!', code @ ..] => (item_size == 1, code),
        [b'@' | b'=', code @ ..] | code => (is_little || item_size == 1, code),
    };
    if !is_stored {
        return None;
    }
    Some(match (code, item_size) {
        (b"?", 1) => Dtype::Bool,
        (b"b", 1) => Dtype::Int8,
        (b"B", 1) => Dtype::Uint8,
        (b"h", 2) => Dtype::Int16,
        (b"H", 2) => Dtype::Uint16,
        (b"i" | b"l" | b"q", 4) => Dtype::Int32,
        (b"I" | b"L" | b"Q", 4) => Dtype::Uint32,
        (b"i" | b"l" | b"q", 8) => Dtype::Int64,
        (b"I" | b"L" | b"Q", 8) => Dtype::Uint64,
        (b"e", 2) => Dtype::Float16,
        (b"f", 4) => Dtype::Float32,
        (b"d", 8) => Dtype::Float64,
        (b"Zf", 8) => Dtype::Complex64,
        (b"Zd", 16) => Dtype::Complex128,
        _ => return None,
    })
}

fn mismatch(spec: &FieldSpec, found: &Found) -> Misfit {
    let shape = found.shape.iter().copied().map(Some);
    let actual = FieldSpec {
        name: String::new(),
        dtype: found.dtype,
        shape: shape.collect(),
    };
    let advice = if found.dtype != spec.dtype {
        format!("; convert it to {}", spec.dtype.name())
    } else if found.shape.len() != spec.shape.len() {
        "; every value of a field needs as many axes".to_owned()
    } else {
        let axes = spec.shape.iter().zip(&found.shape);
        let shape = axes.map(|(axis, extent)| axis.filter(|axis| axis == extent));
        let (name, dtype) = (&spec.name, spec.dtype.name());
        let open = FieldSpec {
            shape: shape.collect(),
            ..spec.clone()
        };
        let shape = open.describe();
        let shape = shape.split_once(' ').map_or("", |(_, shape)| shape);
        format!(
            "; where samples differ, declare the axis as None: payload_schema = {{{name:?}: ({dtype:?}, {shape})}}"
        )
    };
    Misfit::Found(actual.describe(), advice)
}

/// Whether a value is of a type that stands for opaque bytes.
fn is_bytes(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
        || value.is_instance_of::<PyMemoryView>() && byte_buffer(value).is_some()
}

/// A contiguous buffer of one axis whose elements are single bytes.
fn byte_buffer(value: &Bound<'_, PyAny>) -> Option<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(value).ok()?;
    let format = buffer.format().to_bytes();
    let is_byte = matches!(format.last(), Some(b'B' | b'b' | b'c'));
    let is_plain = is_byte && buffer.item_size() == 1 && buffer.dimensions() == 1;
    (is_plain && buffer.is_c_contiguous()).then_some(buffer)
}

/// Gives the bytes of a value to `put`, and returns how many there are.
fn take_bytes(
    value: &Bound<'_, PyAny>,
    put: impl FnOnce(&[u8]) -> Result<(), Misfit>,
) -> Result<u64, Misfit> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return put(bytes).map(|()| bytes.len() as u64);
    }
    let Some(buffer) = byte_buffer(value) else {
        let advice = match value.is_instance_of::<PyString>() {
            true => "; encode text to bytes",
            false => "; give bytes, or another contiguous buffer of single bytes",
        };
        return Err(Misfit::Found(what(value), advice.to_owned()));
    };
    let len = buffer.len_bytes() as u64;
    buffer_bytes(&buffer, put).map(|()| len)
}

/// A value for messages: arrays by dtype and shape, all else by type.
fn what(value: &Bound<'_, PyAny>) -> String {
    let part = |name| value.getattr_opt(name).ok().flatten();
    let shown = |part: Bound<'_, PyAny>| part.str().ok().map(|text| text.to_string());
    match (
        part(intern!(value.py(), "dtype")),
        part(intern!(value.py(), "shape")),
    ) {
        (Some(dtype), Some(shape)) => shown(dtype).zip(shown(shape)).map_or_else(
            || type_name(value),
            |(dtype, shape)| format!("{dtype} {shape}"),
        ),
        _ => type_name(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_other_byte_orders_and_of_other_things_are_not_taken_as_they_are() {
        assert_eq!(dtype_of(b"<f", 4), Some(Dtype::Float32));
        assert_eq!(dtype_of(b">f", 4), None);
        assert_eq!(dtype_of(b">B", 1), Some(Dtype::Uint8));
        assert_eq!(dtype_of(b"l", 8), dtype_of(b"q", 8));
        for (format, size) in [
            (&b"g"[..], 16),
            (b"O", 8),
            (b"2h", 4),
            (b"T{h:a:}", 2),
            (b"3s", 3),
            (b"", 1),
        ] {
            assert_eq!(dtype_of(format, size), None);
        }
    }
}
