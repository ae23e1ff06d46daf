//! Memory of ours as a Python buffer, for NumPy to look at without a copy.

#![expect(unsafe_code, reason = "the buffer protocol hands out raw pointers")]

use std::cell::UnsafeCell;
use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A writable array that owns its memory. NumPy arrays made from it keep it alive.
#[pyclass(frozen, module = "dataset_rt._dataset_rt")]
pub struct NativeArray {
    memory: UnsafeCell<Memory>,
    byte_len: usize,
}

/// What an array holds.
enum Memory {
    U64(Vec<u64>),
    I64(Vec<i64>),
    U8(Vec<u8>),
}

// SAFETY: after construction Rust touches `memory` only to hand out its address, in `__getbuffer__`; whoever writes through
// that address does so under the rules of the buffer protocol, which leaves synchronisation to the consumers. The vectors
// themselves are never moved, grown or read again until the last export is released and the object is dropped.
unsafe impl Sync for NativeArray {}

impl NativeArray {
    /// Takes over unsigned 64-bit numbers.
    pub fn from_u64(values: Vec<u64>) -> Self {
        let byte_len = std::mem::size_of_val(values.as_slice());
        Self {
            memory: UnsafeCell::new(Memory::U64(values)),
            byte_len,
        }
    }

    /// Takes over signed 64-bit numbers.
    pub fn from_i64(values: Vec<i64>) -> Self {
        let byte_len = std::mem::size_of_val(values.as_slice());
        Self {
            memory: UnsafeCell::new(Memory::I64(values)),
            byte_len,
        }
    }

    /// Takes over bytes.
    pub fn from_bytes(values: Vec<u8>) -> Self {
        let byte_len = values.len();
        Self {
            memory: UnsafeCell::new(Memory::U8(values)),
            byte_len,
        }
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
        // SAFETY: the interpreter calls this attached, and no other reference into `memory` exists: see `Sync` above.
        let address = match unsafe { &mut *array.memory.get() } {
            Memory::U64(values) => values.as_mut_ptr().cast(),
            Memory::I64(values) => values.as_mut_ptr().cast(),
            Memory::U8(values) => values.as_mut_ptr().cast(),
        };
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
