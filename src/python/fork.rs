//! Tells a forked child from its parent, at the price of one load where it is asked for every sample.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use super::errors::to_pyerr;
use crate::error::CacheError;

/// Forks of the interpreter that led to this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Counts a fork; Python calls it in the child of each `os.fork`.
#[pyfunction]
pub fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process in which something with threads was made.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    forks: u32,
    process: u32,
}

impl Home {
    /// This process.
    pub fn here() -> Self {
        Self {
            forks: FORKS.load(Ordering::Relaxed),
            process: std::process::id(),
        }
    }

    /// # Errors
    /// `ForkedIteratorError` in a child forked by Python.
    pub fn check_quickly(self) -> PyResult<()> {
        if self.forks == FORKS.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(to_pyerr(CacheError::ForkedIterator))
        }
    }

    /// # Errors
    /// `ForkedIteratorError` in any child, forked by C code too; costs a system call.
    pub fn check(self) -> PyResult<()> {
        if self.is_here() {
            Ok(())
        } else {
            Err(to_pyerr(CacheError::ForkedIterator))
        }
    }

    /// Whether this is still that process.
    pub fn is_here(self) -> bool {
        self.process == std::process::id()
    }
}
