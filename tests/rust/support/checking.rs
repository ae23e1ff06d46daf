//! Full and fast checks of a cache, and what they found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dataset_rt::maintain::{Finding, Kind, Report, verify};
use dataset_rt::store::generations::Wanted;

/// Checks the newest generation of a cache that has a manifest.
pub fn check(cache: &Path, full: bool) -> Report {
    verify(cache, Wanted::Newest, full, &mut |_| Ok(())).unwrap()
}

/// What is wrong, and with which file and sample.
pub fn facts(report: &Report) -> BTreeSet<(Kind, PathBuf, Option<u64>)> {
    let fact = |finding: &Finding| {
        let facts = finding.facts();
        let inside = facts.path.strip_prefix(&report.path).unwrap().to_owned();
        (finding.kind, inside, facts.sample_id)
    };
    assert_eq!(report.findings.len() as u64, report.finding_count);
    report.findings.iter().map(fact).collect()
}
