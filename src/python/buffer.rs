//! Memory of ours as a Python buffer, for NumPy to look at without a copy, and memory of Python's to write to.

#![expect(unsafe_code, reason = "the buffer protocol hands out raw pointers")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;

use arrow_array::{ArrayRef, LargeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer};
use numpy::npyffi::{NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API, get_type_object, npy_intp};
use numpy::{PyArray1, PyArrayDescr, PyArrayDescrMethods};
use pyo3::buffer::{PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::errors::to_pyerr;
use crate::error::{CacheError, Result};
use crate::store::slot::Slot;

/// A writable array that owns its memory. NumPy arrays made from it keep it alive.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct NativeArray {
    memory: UnsafeCell<Slot>,
    byte_len: usize,
}

// SAFETY: after construction Rust touches `memory` only in `address`; whoever writes through the address does so under the
// rules of the buffer protocol, or of NumPy, which leave synchronisation to the consumers. The bytes are never moved or read
// again until the last export is released and the object is dropped.
unsafe impl Sync for NativeArray {}

impl NativeArray {
    /// Takes over memory of a batch; it goes back to its pool when nobody looks at it any more.
    pub fn new(slot: Slot) -> Self {
        let byte_len = slot.len();
        Self {
            memory: UnsafeCell::new(slot),
            byte_len,
        }
    }

    /// Where its bytes begin; they stay there as long as the object lives.
    fn address(&self, _: Python<'_>) -> *mut u8 {
        // SAFETY: attached to the interpreter, no other reference into `memory` exists: see `Sync` above.
        unsafe { &mut *self.memory.get() }.as_mut_ptr()
    }
}

#[pymethods]
impl NativeArray {
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view was given to fill"));
        }
        let array = slf.get();
        let address = array.address(slf.py()).cast();
        let len = array.byte_len as ffi::Py_ssize_t;
        // SAFETY: `view` is a structure to be filled in by the buffer protocol; `address` is valid for `len` bytes as long
        // as the object lives, and `PyBuffer_FillInfo` stores a new reference to the object in the view.
        let status = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) };
        if status == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }

    fn __len__(&self) -> usize {
        self.byte_len
    }
}

/// All of `memory` as a NumPy array of this type and shape, which keeps it alive.
///
/// NumPy makes one of any buffer too, but that takes a tenth of the time of a small gather.
///
/// # Errors
/// A defect of the caller: values of another size. `MemoryError`.
pub fn ndarray<'py>(
    memory: Bound<'py, NativeArray>,
    dtype: Bound<'py, PyArrayDescr>,
    shape: &mut [npy_intp],
) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let mut lens = shape.iter().map(|len| usize::try_from(*len).ok());
    let bytes = lens.try_fold(dtype.itemsize(), |bytes, len| bytes.checked_mul(len?));
    let dimensions = c_int::try_from(shape.len()).ok();
    let (true, Some(dimensions)) = (bytes == Some(memory.get().byte_len), dimensions) else {
        let fault = "a field whose values take another number of bytes than its column";
        return Err(to_pyerr(CacheError::internal(fault)));
    };
    let address = memory.get().address(py);
    // SAFETY: NumPy takes over the reference to `dtype` and reads as many extents as there are. An array of this shape has as
    // many bytes as `address` points to, which stay where they are as long as the object lives; the array holds a reference
    // to it, which NumPy takes over too. Both functions return null, or not zero, with an exception set.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            dtype.into_dtype_ptr(),
            dimensions,
            shape.as_mut_ptr(),
            std::ptr::null_mut(),
            address.cast(),
            NPY_ARRAY_WRITEABLE,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        match PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), memory.into_ptr()) {
            0 => Ok(array),
            _ => Err(PyErr::fetch(py)),
        }
    }
}

/// Unsigned 64-bit numbers as a NumPy array.
pub type Numbers = Py<PyArray1<u64>>;

/// Hands numbers over without a copy.
pub fn numbers(py: Python<'_>, numbers: Vec<u64>) -> Numbers {
    PyArray1::from_vec(py, numbers).unbind()
}

/// Writable memory of a Python object, which may not be freed or resized as long as this exists.
pub struct Destination(PyUntypedBuffer);

impl Destination {
    /// The memory of `object`.
    ///
    /// # Errors
    /// `ConfigError` for an object without writable, contiguous memory.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let refuse = |found: &str| {
            to_pyerr(CacheError::option(
                "out",
                "a writable buffer in C order",
                found,
            ))
        };
        let buffer = PyUntypedBuffer::get(object).map_err(|_| refuse("no buffer"))?;
        if buffer.readonly() {
            return Err(refuse("a read-only one"));
        }
        if !buffer.is_c_contiguous() {
            return Err(refuse("one with gaps or in another order"));
        }
        Ok(Self(buffer))
    }

    /// Refuses destinations that share memory.
    ///
    /// # Errors
    /// [`CacheError::Option`] if any two do.
    pub fn check_disjoint(all: &[Self]) -> Result<()> {
        let range = |one: &Self| {
            let start = one.0.buf_ptr() as usize;
            start..start + one.0.len_bytes()
        };
        let mut ranges: Vec<_> = all.iter().map(range).filter(|r| !r.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let overlap =
            |(one, next): (&std::ops::Range<usize>, &std::ops::Range<usize>)| one.end > next.start;
        match ranges.iter().zip(ranges.iter().skip(1)).any(overlap) {
            false => Ok(()),
            true => Err(CacheError::option(
                "out",
                "destinations that share no memory",
                "two that do",
            )),
        }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let (pointer, len) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if pointer.is_null() || len == 0 {
            return &mut [];
        }
        // SAFETY: the exporter keeps `len` writable bytes in C order behind the pointer until the buffer is released, which
        // is after `self`. Within Rust nobody else has a reference to them: destinations of one gather are checked to be
        // disjoint, and each is borrowed mutably here. Python code that touches the memory meanwhile breaks the rules that
        // `CachedDataset.gather` states for `out`.
        unsafe { std::slice::from_raw_parts_mut(pointer, len) }
    }
}

/// Memory of a Python object that Rust reads from.
struct Held(PyBuffer<u8>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        let (pointer, len) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if pointer.is_null() || len == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` readable bytes behind the pointer until the buffer is released, which is after
        // `self`; that they are adjacent was checked before. Whoever writes to a batch while Arrow reads it breaks the rules
        // of the buffer protocol.
        unsafe { std::slice::from_raw_parts(pointer, len) }
    }
}

/// Payloads of a batch as one Arrow column of large binary values called `data`, without a copy.
#[pyfunction]
pub fn large_binary(
    values: PyBuffer<u8>,
    offsets: &Bound<'_, PyAny>,
) -> PyResult<super::arrow::ArrowTable> {
    let offsets = PyBuffer::<i64>::get(offsets)?.to_vec(offsets.py())?;
    let refuse = |fault: &str| PyBufferError::new_err(format!("payloads with {fault}"));
    if !values.is_c_contiguous() {
        return Err(refuse("gaps"));
    }
    let is_ascending = offsets.is_sorted() && offsets.first().is_some_and(|first| *first >= 0);
    if !is_ascending {
        return Err(refuse("offsets that do not ascend"));
    }
    let values = Buffer::from(bytes::Bytes::from_owner(Held(values)));
    let offsets = OffsetBuffer::new(offsets.into());
    let array = LargeBinaryArray::try_new(offsets, values, None);
    let batch =
        array.and_then(|array| RecordBatch::try_from_iter([("data", Arc::new(array) as ArrayRef)]));
    let batch = batch.map_err(|error| refuse(&error.to_string()))?;
    Ok(super::arrow::ArrowTable::new(batch.schema(), vec![batch]))
}
