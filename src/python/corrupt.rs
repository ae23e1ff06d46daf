//! The warning that a sample is damaged, for `dataset_rt.corrupt`.

use pyo3::prelude::*;

use crate::reader::CorruptSamples;

/// Warns once that damaged samples were met, and where the first of them is.
///
/// # Errors
/// The warning, where the user made it an error.
pub fn warn_once(py: Python<'_>, corrupt: &CorruptSamples) -> PyResult<()> {
    let Some(first) = corrupt.take_news() else {
        return Ok(());
    };
    let facts = (
        first.sample.cache,
        first.sample.sample,
        first.path,
        first.reason,
    );
    py.import("dataset_rt.corrupt")?
        .call_method1("warn_corrupt", facts)?;
    Ok(())
}
