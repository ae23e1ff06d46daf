//! Payload bytes of Python objects, by the buffer protocol.

#![expect(
    unsafe_code,
    reason = "the buffer protocol hands over a pointer and a length"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_buffer::Buffer;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

use super::fault::{Fault, sample};
use super::mapping::is_mapping;
use super::source::type_name;

/// Gives the bytes of a payload to `take`.
///
/// # Errors
/// [`Fault::Core`] for data that is no contiguous buffer of plain bytes; what `take` returns.
pub fn with_payload<T>(
    data: &Bound<'_, PyAny>,
    row: u64,
    take: impl FnOnce(&[u8]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return take(bytes.as_bytes());
    }
    let Some(buffer) = unless_raised(data.py(), PyUntypedBuffer::get(data))? else {
        if let Some(copy) = copied(data)? {
            return take(copy.as_bytes());
        }
        let advice = if data.is_instance_of::<PyString>() {
            "; encode text to bytes first"
        } else if is_mapping(data)? {
            ", as the first sample gave; a source gives plain bytes or mappings of fields, not both"
        } else {
            ""
        };
        let found = type_name(data);
        return Err(sample(
            row,
            format!(
                "data is of type {found}, expected bytes, bytearray, memoryview or another contiguous buffer{advice}"
            ),
        ));
    };
    if !buffer.is_c_contiguous() {
        let advice = "expected one in C order; copy it first";
        return Err(sample(row, format!("data is a buffer with gaps, {advice}")));
    }
    if has_objects(buffer.format().to_bytes()) {
        return Err(sample(
            row,
            "data is a buffer of Python objects, expected plain bytes".to_owned(),
        ));
    }
    buffer_bytes(&buffer, take)
}

/// Gives the bytes of a buffer in C order to `take`.
///
/// `take` must copy them before it runs Python code.
pub fn buffer_bytes<T>(buffer: &PyUntypedBuffer, take: impl FnOnce(&[u8]) -> T) -> T {
    let len = buffer.len_bytes();
    let pointer = buffer.buf_ptr().cast::<u8>().cast_const();
    if len == 0 || pointer.is_null() || !buffer.is_c_contiguous() {
        return take(&[]);
    }
    // SAFETY: the exporter keeps `len` readable bytes behind the pointer until the buffer is released, which is after
    // the call; C order means that they are adjacent. `take` copies them while this thread is attached and runs no
    // Python code before it has copied, so no Python code of this thread changes them meanwhile; a source whose other
    // threads write into a payload they have just handed over breaks the rules of the buffer protocol.
    let bytes = unsafe { std::slice::from_raw_parts(pointer, len) };
    take(bytes)
}

/// The memory of a contiguous buffer, held until the last use of it ends.
///
/// Whoever passes it on tells its owner not to write to it meanwhile.
///
/// # Errors
/// `BufferError` for an object that exports no such buffer.
pub fn shared_bytes(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("expected a buffer in C order"));
    }
    let len = buffer.len_bytes();
    match NonNull::new(buffer.buf_ptr().cast::<u8>()) {
        Some(pointer) if len > 0 => {
            let owner = Arc::new(Export(buffer));
            // SAFETY: the exporter keeps `len` readable bytes behind the pointer until the buffer is released, which the
            // last clone of `owner` does; C order means that they are adjacent. They are only read. That nobody writes
            // meanwhile is a rule of `write_arrays` which its documentation states; who breaks it gets a mixture of old
            // and new bytes, as from any other reader of the buffer.
            Ok(unsafe { Buffer::from_custom_allocation(pointer, len, owner) })
        }
        _ => Ok(Buffer::default()),
    }
}

/// A buffer export that lives as long as the memory is used. Dropped in another thread, it attaches to the interpreter,
/// so nobody may wait for that thread while attached.
struct Export(#[expect(dead_code, reason = "held for its drop")] PyUntypedBuffer);

// A panic leaves no half-done change behind: the export is never touched before it is dropped.
impl std::panic::RefUnwindSafe for Export {}

/// The bytes of a contiguous buffer that leaves out its shape or strides, as arrays of `ctypes` and NumPy arrays without
/// axes do; `None` for what is no such buffer.
fn copied<'py>(data: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = data.py();
    let Some(view) = unless_raised(py, PyMemoryView::from(data))? else {
        return Ok(None);
    };
    let format: String = view.getattr(intern!(py, "format"))?.extract()?;
    let is_contiguous = view.getattr(intern!(py, "c_contiguous"))?.is_truthy()?;
    if has_objects(format.as_bytes()) || !is_contiguous {
        return Ok(None);
    }
    let copy = view.call_method0(intern!(py, "tobytes"))?;
    Ok(Some(copy.cast_into()?))
}

/// What was looked for, or nothing if looking raised an ordinary exception. One that is nobody's to catch, such as
/// `KeyboardInterrupt`, stays an error.
fn unless_raised<T>(py: Python<'_>, looked: PyResult<T>) -> PyResult<Option<T>> {
    match looked {
        Err(exception) if !exception.is_instance_of::<PyException>(py) => Err(exception),
        looked => Ok(looked.ok()),
    }
}

/// Whether a buffer format holds pointers to Python objects. Names of fields, which stand between colons, do not count.
fn has_objects(format: &[u8]) -> bool {
    let mut parts = format.split(|byte| *byte == b':').step_by(2);
    parts.any(|part| part.contains(&b'O'))
}
