//! Mappings of any class, recognised without losing an exception on the way.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

/// Whether an object is a mapping.
///
/// `PyO3`'s own cast runs the same check, which is Python code, and drops what that raises: a `KeyboardInterrupt` that
/// arrives there would be lost.
///
/// # Errors
/// What the check raises.
pub fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static MAPPING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if object.is_instance_of::<PyDict>() {
        return Ok(true);
    }
    if object.is_exact_instance_of::<PyBytes>() {
        return Ok(false);
    }
    let class = MAPPING.import(object.py(), "collections.abc", "Mapping")?;
    object.is_instance(class)
}

/// A mapping as a dictionary, copied unless it is one; nothing for another object.
///
/// # Errors
/// What the mapping raises.
pub fn as_dict<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    if !is_mapping(object)? {
        return Ok(None);
    }
    let dict = PyDict::new(object.py());
    dict.call_method1("update", (object,))?;
    Ok(Some(dict))
}
