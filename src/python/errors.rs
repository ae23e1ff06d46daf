//! Core errors as the exceptions of `dataset_rt.errors`, in one exhaustive match.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error::CacheError;

/// The exception for a core error: its class, its message, and its fields as attributes.
pub fn to_pyerr(error: CacheError) -> PyErr {
    Python::attach(|py| build(py, &error).unwrap_or_else(|failure| failure))
}

fn build(py: Python<'_>, error: &CacheError) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let class = fill(error, &fields)?;
    let class = py.import("dataset_rt.errors")?.getattr(class)?;
    let exception = class.call((PyString::new(py, &error.to_string()),), Some(&fields))?;
    Ok(PyErr::from_value(exception))
}

/// Sets the attributes of an error and names its class.
fn fill(error: &CacheError, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        CacheError::NotFound { path, reason } => {
            fields.set_item("path", path)?;
            fields.set_item("reason", reason)?;
            "CacheNotFoundError"
        }
        CacheError::Manifest { path, fault } => {
            fields.set_item("path", path)?;
            fields.set_item("reason", fault)?;
            "ManifestError"
        }
        CacheError::UnsupportedVersion {
            path,
            found,
            oldest,
            newest,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("expected", (*oldest, *newest))?;
            fields.set_item("found", found)?;
            "UnsupportedVersionError"
        }
        CacheError::NoGeneration {
            path,
            generation,
            kept,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("generation", generation)?;
            fields.set_item("kept", kept.clone())?;
            fields.set_item("reason", format!("no generation {generation}"))?;
            "GenerationNotFoundError"
        }
        CacheError::DamagedGeneration {
            path,
            generation,
            fault,
            last_good,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("generation", generation)?;
            fields.set_item("reason", fault.to_string())?;
            fields.set_item("last_good", last_good)?;
            "DamagedGenerationError"
        }
        CacheError::DamagedFile {
            path,
            subject,
            expected,
            found,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("subject", subject)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "CorruptCacheError"
        }
        CacheError::DamagedRecord {
            path,
            sample_id,
            offset,
            subject,
            expected,
            found,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("sample_id", sample_id)?;
            fields.set_item("offset", offset)?;
            fields.set_item("subject", subject)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "CorruptRecordError"
        }
        CacheError::NoSubstitute {
            path,
            sample_id,
            attempts,
            ..
        } => {
            fields.set_item("path", path)?;
            fields.set_item("sample_id", sample_id)?;
            fields.set_item("attempts", attempts)?;
            "NoSubstituteError"
        }
        CacheError::SchemaMismatch {
            path,
            first_path,
            subject,
            column,
            expected,
            found,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("first_path", first_path)?;
            fields.set_item("subject", subject)?;
            fields.set_item("column", column)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "SchemaMismatchError"
        }
        CacheError::DuplicateCache {
            path,
            first,
            second,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("positions", (*first, *second))?;
            "DuplicateCacheError"
        }
        CacheError::SourceName { name, fault } => {
            fields.set_item("name", name)?;
            fields.set_item("reason", fault)?;
            "SourceNameError"
        }
        CacheError::Sample { row, fault } => {
            fields.set_item("row", row)?;
            fields.set_item("reason", fault)?;
            "SampleError"
        }
        CacheError::MetadataValue {
            row,
            column,
            expected,
            found,
        } => {
            fields.set_item("row", row)?;
            fields.set_item("column", column)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "SampleError"
        }
        CacheError::PayloadField {
            row,
            field,
            expected,
            found,
            ..
        } => {
            fields.set_item("row", row)?;
            fields.set_item("field", field)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "SampleError"
        }
        CacheError::Misfit {
            path,
            subject,
            column,
            expected,
            found,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("subject", subject)?;
            fields.set_item("column", column)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "AppendMismatchError"
        }
        CacheError::EmptySource { name } => {
            fields.set_item("name", name)?;
            "EmptySourceError"
        }
        CacheError::Exists { path } => {
            fields.set_item("path", path)?;
            "CacheExistsError"
        }
        CacheError::SourceVersion {
            path,
            expected,
            found,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "SourceVersionError"
        }
        CacheError::Locked { path, holder } => {
            fields.set_item("path", path)?;
            fields.set_item("holder", holder)?;
            "CacheLockedError"
        }
        CacheError::Option {
            option,
            expected,
            found,
        } => {
            fields.set_item("option", option)?;
            fields.set_item("expected", expected)?;
            fields.set_item("found", found)?;
            "ConfigError"
        }
        CacheError::Weights { rows, .. } => {
            fields.set_item("rows", rows)?;
            "WeightsError"
        }
        CacheError::OutOfRange { index, len } => {
            fields.set_item("index", index)?;
            fields.set_item("length", len)?;
            "RowIndexError"
        }
        CacheError::NoSample {
            path,
            sample_id,
            sample_ids,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("index", sample_id)?;
            fields.set_item("length", sample_ids)?;
            "RowIndexError"
        }
        CacheError::Limit { found, limit, .. } => {
            fields.set_item("found", found)?;
            fields.set_item("expected", limit)?;
            "LimitError"
        }
        CacheError::Memory { bytes, .. } => {
            fields.set_item("bytes", bytes)?;
            "OutOfMemoryError"
        }
        CacheError::Io {
            action,
            path,
            source,
        } => {
            fields.set_item("path", path)?;
            fields.set_item("action", action)?;
            fields.set_item("errno", source.raw_os_error())?;
            "CacheIOError"
        }
        CacheError::Thread { source, .. } => {
            fields.set_item("path", None::<&str>)?;
            fields.set_item("action", "start a thread")?;
            fields.set_item("errno", source.raw_os_error())?;
            "CacheIOError"
        }
        CacheError::State {
            fields: differing, ..
        } => {
            fields.set_item("fields", differing.clone())?;
            "StateMismatchError"
        }
        CacheError::ForkedIterator => "ForkedIteratorError",
        CacheError::ForkedDataset => "ForkedDatasetError",
        CacheError::Interrupted => "InterruptedReadError",
        CacheError::Internal { .. } => "InternalError",
    })
}
