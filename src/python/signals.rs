//! Long work in Rust that Ctrl-C can end: the work is detached and asks now and then whether a signal came.

use pyo3::prelude::*;

use super::errors::to_pyerr;
use crate::error::{CacheError, Result};

/// Why detached work ended early.
pub enum Stopped {
    /// A signal handler raised this exception.
    Signal(PyErr),
    /// The work failed.
    Failed(CacheError),
}

/// Runs `work` detached from the interpreter. `work` calls its argument whenever it waits; an exception that a signal
/// handler raised, such as `KeyboardInterrupt`, ends the work.
pub fn stoppable<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T> + Send,
) -> std::result::Result<T, Stopped> {
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
        Some(exception) => Err(Stopped::Signal(exception)),
        None => outcome.map_err(Stopped::Failed),
    }
}

/// As [`stoppable`], with either reason as an exception; a signal's is raised as it is.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    stoppable(py, work).map_err(|stopped| match stopped {
        Stopped::Signal(exception) => exception,
        Stopped::Failed(error) => to_pyerr(error),
    })
}
