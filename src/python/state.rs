//! Saved states as plain Python dictionaries.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::errors::to_pyerr;
use crate::dataset::SavedState;
use crate::error::CacheError;

/// A state as a dictionary of strings and numbers, fit for JSON.
pub fn to_dict<'py>(py: Python<'py>, state: &SavedState) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (to_json(state)?,))
}

/// A state from such a dictionary.
pub fn from_dict(state: &Bound<'_, PyAny>) -> PyResult<SavedState> {
    let json = state
        .py()
        .import("json")?
        .call_method1("dumps", (state,))
        .map_err(|_| {
            let kind = state
                .get_type()
                .name()
                .map_or_else(|_| "object".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "expected the dictionary that state_dict() returned, found {kind}"
            ))
        })?;
    SavedState::parse(json.cast::<PyString>()?.to_str()?).map_err(to_pyerr)
}

/// A state as JSON.
pub fn to_json(state: &SavedState) -> PyResult<String> {
    serde_json::to_string(state).map_err(|error| {
        to_pyerr(CacheError::internal(format!(
            "a state cannot be written as JSON: {error}"
        )))
    })
}
