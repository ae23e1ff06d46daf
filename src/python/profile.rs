//! Where the time of reading went, for `dataset_rt.profile`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::reader::Snapshot;

/// The counters by name; times in seconds.
pub fn to_dict<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyDict>> {
    let counters = PyDict::new(py);
    let delivered = snapshot.delivered;
    for (name, count) in [
        ("samples", delivered.samples),
        ("batches", delivered.batches),
        ("gathers", delivered.gathers),
        ("payload_bytes", delivered.payload_bytes),
    ] {
        counters.set_item(name, count)?;
    }
    for (name, time) in [
        ("elapsed", snapshot.elapsed),
        ("waiting", snapshot.waited),
        ("working", snapshot.worked),
        ("gather", snapshot.gathering),
        ("disk", snapshot.disk),
    ]
    .into_iter()
    .chain(snapshot.stages.iter().copied())
    {
        counters.set_item(format!("{name}_seconds"), time.as_secs_f64())?;
    }
    Ok(counters)
}

/// Warns the consumer that it starves.
///
/// # Errors
/// The warning, where the user made it an error.
pub fn warn_starving(py: Python<'_>, snapshot: &Snapshot) -> PyResult<()> {
    let counters = to_dict(py, snapshot)?;
    py.import("dataset_rt.profile")?
        .call_method1("warn_starving", (counters,))?;
    Ok(())
}
