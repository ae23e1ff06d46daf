//! Names of columns and fields: as keys to look up in dictionaries, and out of the keys found there.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::fault::{Fault, sample};
use super::source::type_name;

/// Names as dictionary keys.
pub fn keys<'py>(
    py: Python<'py>,
    names: impl IntoIterator<Item = impl AsRef<str>>,
) -> Vec<Bound<'py, PyString>> {
    let names = names.into_iter();
    names
        .map(|name| PyString::intern(py, name.as_ref()))
        .collect()
}

/// The keys of a dictionary of `what`, which must be text.
pub fn names(dict: &Bound<'_, PyDict>, what: &str, row: u64) -> Result<Vec<String>, Fault> {
    let name = |key: Bound<'_, PyAny>| match key.cast::<PyString>().map(|key| key.to_str()) {
        Ok(Ok(name)) => Ok(name.to_owned()),
        Ok(Err(_)) => Err(sample(
            row,
            format!("{what} key {key:?} is not valid Unicode"),
        )),
        Err(_) => Err(sample(
            row,
            format!("a {what} key is of type {}, expected str", type_name(&key)),
        )),
    };
    dict.keys().iter().map(name).collect()
}
