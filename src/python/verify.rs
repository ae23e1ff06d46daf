//! `verify_cache`: everything that is wrong with a cache, as plain values.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::signals::detached;
use crate::maintain::{Finding, verify};
use crate::store::generations::Wanted;

/// Kind, path, sample id, offset, subject, expected, found, message.
type Row = (
    &'static str,
    OsString,
    Option<u64>,
    Option<u64>,
    String,
    String,
    String,
    String,
);

/// What is wrong with the cache at `path`: its generation, samples, bytes read, the first findings, and how many there are.
///
/// Work is detached from the interpreter; Ctrl-C ends it.
#[pyfunction]
pub fn verify_cache(
    py: Python<'_>,
    path: PathBuf,
    generation: Option<u64>,
    full: bool,
) -> PyResult<(u64, u64, u64, Vec<Row>, u64)> {
    let wanted = generation.map_or(Wanted::Newest, Wanted::Number);
    let report = detached(py, |interrupt| {
        verify(&path, wanted, full, &mut |_| interrupt())
    })?;
    let findings = report.findings.iter().map(row).collect();
    Ok((
        report.generation,
        report.samples,
        report.bytes_read,
        findings,
        report.finding_count,
    ))
}

fn row(finding: &Finding) -> Row {
    let facts = finding.facts();
    (
        finding.kind.name(),
        facts.path.into_os_string(),
        facts.sample_id,
        facts.offset,
        facts.subject,
        facts.expected,
        facts.found,
        finding.error.to_string(),
    )
}
