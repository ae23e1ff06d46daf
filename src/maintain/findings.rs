//! What a check of a cache found: all of it, in an order that does not depend on threads.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use crate::error::CacheError;
use crate::limits::FINDINGS_MAX;
use crate::sync::{Mutex, PoisonError, lock};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The manifest cannot be read or trusted, so nothing else was checked.
    Manifest,
    /// Later generations cannot be listed, or a vacuum has given the newest one up.
    Generation,
    /// A file that the manifest names is not there.
    MissingFile,
    /// Something else than a regular file, or than a folder, has its name.
    WrongKind,
    /// A file is shorter or longer than the manifest says.
    WrongLength,
    /// The system failed to read a file, or a part of it.
    Unreadable,
    /// A whole file has another checksum than the manifest says.
    Checksum,
    /// A file that is what it was cannot be decoded, or contradicts the manifest.
    FileFormat,
    /// A row of the index points outside its shard.
    IndexRow,
    /// A record has another checksum than `checksums.bin` says.
    RecordChecksum,
    /// A record cannot be taken apart or decompressed.
    RecordFormat,
    /// The metadata in a record is not that in `metadata.arrow`.
    MetadataMismatch,
    /// The payloads of a shard add up to another number of bytes than the manifest says.
    PayloadBytes,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Generation => "generation",
            Self::MissingFile => "missing_file",
            Self::WrongKind => "wrong_kind",
            Self::WrongLength => "wrong_length",
            Self::Unreadable => "unreadable",
            Self::Checksum => "checksum",
            Self::FileFormat => "file_format",
            Self::IndexRow => "index_row",
            Self::RecordChecksum => "record_checksum",
            Self::RecordFormat => "record_format",
            Self::MetadataMismatch => "metadata_mismatch",
            Self::PayloadBytes => "payload_bytes",
        }
    }
}

/// One thing that is wrong, and the error that whoever meets it first raises.
#[derive(Debug)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// Where, what was expected and what was found.
    pub error: CacheError,
}

/// The parts of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The file.
    pub path: PathBuf,
    /// The sample, if it is about one.
    pub sample_id: Option<u64>,
    /// Where in the file, in bytes, if it is about a place in it.
    pub offset: Option<u64>,
    /// What was looked at.
    pub subject: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl Finding {
    /// Its parts.
    pub fn facts(&self) -> Facts {
        let whole = |path: &Path, subject: &str, expected: &str, found: &dyn ToString| Facts {
            path: path.to_path_buf(),
            sample_id: None,
            offset: None,
            subject: subject.to_owned(),
            expected: expected.to_owned(),
            found: found.to_string(),
        };
        match &self.error {
            CacheError::DamagedRecord {
                path,
                sample_id,
                offset,
                subject,
                expected,
                found,
            } => Facts {
                sample_id: Some(*sample_id),
                offset: Some(*offset),
                ..whole(path, subject, expected, found)
            },
            CacheError::DamagedFile {
                path,
                subject,
                expected,
                found,
            } => whole(path, subject, expected, found),
            CacheError::Manifest { path, fault } => {
                whole(path, "manifest", "one that can be trusted", fault)
            }
            CacheError::UnsupportedVersion {
                path,
                found,
                oldest,
                newest,
            } => {
                let expected = format!("{oldest} to {newest}");
                whole(path, "format version", &expected, found)
            }
            CacheError::Io {
                action,
                path,
                source,
            } => whole(path, action, "to succeed", source),
            other => whole(Path::new(""), "check", "to succeed", other),
        }
    }
}

/// What a check found.
#[derive(Debug)]
pub struct Report {
    /// The cache.
    pub path: PathBuf,
    /// Which of its generations; the newest one seen, where the manifest cannot be read.
    pub generation: u64,
    /// Whether every byte was looked at.
    pub full: bool,
    /// Samples that the manifest promises.
    pub samples: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// What is wrong: files in the order of the manifest, then samples in theirs. The first
    /// [`FINDINGS_MAX`] of it.
    pub findings: Vec<Finding>,
    /// How much is wrong, beyond that limit too.
    pub finding_count: u64,
}

/// Where a finding stands among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A manifest; the root's comes first.
    Manifest(u64),
    /// Presence, kind and length of file number so-and-so.
    Shape(usize),
    /// Content of that file; the second number tells apart what is wrong with it.
    File(usize, u64),
    /// The index row of a sample.
    Row(u64),
    /// The record of a sample; the second number is a column.
    Record(u64, usize),
    /// The payloads of a shard.
    Shard(usize),
}

/// Findings of several threads.
#[derive(Debug, Default)]
pub(super) struct Findings(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    first: BinaryHeap<Placed>,
    count: u64,
}

#[derive(Debug)]
struct Placed(Place, Finding);

impl Findings {
    /// Adds one.
    pub fn add(&self, place: Place, kind: Kind, error: CacheError) {
        let mut kept = lock(&self.0);
        kept.count = kept.count.saturating_add(1);
        kept.first.push(Placed(place, Finding { kind, error }));
        if kept.first.len() > FINDINGS_MAX {
            kept.first.pop();
        }
    }

    /// The first ones in order, and how many there were.
    pub fn finish(self) -> (Vec<Finding>, u64) {
        let kept = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let findings = kept.first.into_sorted_vec();
        let findings = findings.into_iter().map(|placed| placed.1);
        (findings.collect(), kept.count)
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_findings_are_kept_whatever_order_they_come_in() {
        let findings = Findings::default();
        let count = FINDINGS_MAX as u64 + 500;
        for sample in (0..count).map(|at| at * 7919 % count) {
            let error = CacheError::internal(sample.to_string());
            findings.add(Place::Record(sample, 0), Kind::RecordChecksum, error);
        }
        let manifest = CacheError::manifest(Path::new("m"), "bad");
        findings.add(Place::Shape(3), Kind::MissingFile, manifest);
        let (findings, total) = findings.finish();
        assert_eq!(total, count + 1);
        assert_eq!(findings.len(), FINDINGS_MAX);
        assert_eq!(findings[0].kind, Kind::MissingFile);
        for (sample, finding) in findings.iter().skip(1).enumerate() {
            assert_eq!(
                finding.facts().found,
                CacheError::internal(sample.to_string()).to_string()
            );
        }
    }
}
