//! Why samples of a source are not taken: what the core says, and what Python code raises.

use pyo3::prelude::*;

use crate::error::CacheError;

/// Why a source's cache is not written.
pub enum Fault {
    /// The core refused.
    Core(CacheError),
    /// Its cache exists and cannot be reused.
    Unusable(CacheError),
    /// Code of the source raised an exception.
    Raised(PyErr),
    /// An exception for the caller, above all sources.
    Caller(PyErr),
}

impl From<CacheError> for Fault {
    fn from(error: CacheError) -> Self {
        Self::Core(error)
    }
}

impl From<PyErr> for Fault {
    fn from(exception: PyErr) -> Self {
        Self::Raised(exception)
    }
}

/// The error for a sample that is no sample.
pub fn sample(row: u64, fault: String) -> Fault {
    Fault::Core(CacheError::Sample { row, fault })
}
