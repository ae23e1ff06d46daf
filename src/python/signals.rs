//! Long work in Rust that Ctrl-C can end: the work is detached and asks now and then whether a signal came.

use pyo3::prelude::*;

use super::errors::to_pyerr;
use crate::error::{CacheError, Result};

/// Runs `work` detached from the interpreter. `work` calls its argument whenever it waits; an exception that a signal
/// handler raised, such as `KeyboardInterrupt`, ends the work and is raised as it is.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let outcome = py.detach(|| {
        work(&mut || match Python::try_attach(|py| py.check_signals()) {
            Some(Ok(())) => Ok(()),
            Some(Err(exception)) => {
                raised = Some(exception);
                Err(CacheError::Interrupted)
            }
            // The interpreter is ending.
            None => Err(CacheError::Interrupted),
        })
    });
    match raised {
        Some(exception) => Err(exception),
        None => outcome.map_err(to_pyerr),
    }
}
