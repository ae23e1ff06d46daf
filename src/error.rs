//! Every way the core can fail, each naming the place, what was expected and what was found.
//!
//! Messages are lower case, put the thing first and the fault second, carry units, and end with advice only where
//! there is something to do. No caller ever looks inside the text: the fields carry the same facts.

use std::io;
use std::path::{Path, PathBuf};

/// Result of every fallible operation of the core.
pub type Result<T> = std::result::Result<T, CacheError>;

/// A failure of the core.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// There is no published cache at this path.
    #[error("{}: no cache here: {reason}", path.display())]
    NotFound { path: PathBuf, reason: String },

    /// The manifest cannot be read as one: broken JSON, wrong shape, a forbidden name or number.
    #[error("{}: invalid manifest: {fault}", path.display())]
    Manifest { path: PathBuf, fault: String },

    /// The cache was written by a release newer than this one.
    #[error("{}: format version {found} is newer than this build reads ({oldest} to {newest}); upgrade dataset_rt", path.display())]
    UnsupportedVersion {
        path: PathBuf,
        found: u64,
        oldest: u32,
        newest: u32,
    },

    /// A cache does not have this generation, or no more.
    #[error("{}: no generation {generation}; there are {}; a vacuum may have removed it, and what it gave is gone if the later ones do not have it", path.display(), list(kept))]
    NoGeneration {
        path: PathBuf,
        generation: u64,
        kept: Vec<u64>,
    },

    /// A generation of a cache that has several is damaged.
    #[error("{}: generation {generation} is damaged: {fault}; {}", path.display(), advice(path, *last_good))]
    DamagedGeneration {
        path: PathBuf,
        generation: u64,
        fault: Box<CacheError>,
        last_good: Option<u64>,
    },

    /// A whole file is missing, short, altered or shaped wrongly.
    #[error("{}: {subject}: expected {expected}, found {found}", path.display())]
    DamagedFile {
        path: PathBuf,
        subject: String,
        expected: String,
        found: String,
    },

    /// One record is damaged, or the index row that points at it is.
    #[error("{}: sample {sample_id} at byte {offset}: {subject}: expected {expected}, found {found}", path.display())]
    DamagedRecord {
        path: PathBuf,
        sample_id: u64,
        offset: u64,
        subject: String,
        expected: String,
        found: String,
    },

    /// A sample is damaged, and so are all that were drawn in its place.
    #[error(
        "{fault}; the {attempts} samples drawn in its place are damaged too; see `verify_cache`, and `dataset-rt repair`"
    )]
    NoSubstitute {
        path: PathBuf,
        sample_id: u64,
        attempts: u32,
        fault: Box<CacheError>,
    },

    /// Caches opened together do not share one metadata schema or one payload schema.
    #[error("{}: {subject} `{column}` is {found}, but {} has {expected}; caches opened together need equal schemas", path.display(), first_path.display())]
    SchemaMismatch {
        path: PathBuf,
        first_path: PathBuf,
        subject: &'static str,
        column: String,
        expected: String,
        found: String,
    },

    /// The same cache was given twice.
    #[error("{}: cache {second} is the same directory as cache {first}", path.display())]
    DuplicateCache {
        path: PathBuf,
        first: usize,
        second: usize,
    },

    /// A source name cannot be a directory name on every platform.
    #[error("invalid source name {name:?}: {fault}")]
    SourceName { name: String, fault: String },

    /// A sample offered to the writer cannot be stored.
    #[error("sample {row}: {fault}")]
    Sample { row: u64, fault: String },

    /// A value does not fit its metadata column.
    #[error("sample {row}: metadata column `{column}`: expected {expected}, found {found}")]
    MetadataValue {
        row: u64,
        column: String,
        expected: String,
        found: String,
    },

    /// A value does not fit its payload field.
    #[error("sample {row}: payload field `{field}`: expected {expected}, found {found}{advice}")]
    PayloadField {
        row: u64,
        field: String,
        expected: String,
        found: String,
        /// Empty, or `; ` and what to do.
        advice: String,
    },

    /// A source declares other columns or fields than the cache has that it is to be appended to.
    #[error("{}: {subject} `{column}` is {expected} in the cache, the source declares {found}; what is appended must have the columns and fields of the cache", path.display())]
    Misfit {
        path: PathBuf,
        subject: &'static str,
        column: String,
        expected: String,
        found: String,
    },

    /// A source yielded nothing.
    #[error("source {name:?} yielded no samples; an empty cache cannot be written")]
    EmptySource { name: String },

    /// A cache of this name exists and was not to be replaced.
    #[error("{}: a cache exists here already; remove it or choose another name", path.display())]
    Exists { path: PathBuf },

    /// A cache was built from another version of its source.
    #[error("{}: the cache holds source version {found:?}, the source has version {expected:?}; remove the cache to rebuild it", path.display())]
    SourceVersion {
        path: PathBuf,
        expected: String,
        found: String,
    },

    /// Another live process or thread is writing this cache.
    #[error("{}: being written by {holder}", path.display())]
    Locked { path: PathBuf, holder: String },

    /// An option is outside its range, or options contradict each other.
    #[error("invalid option `{option}`: expected {expected}, found {found}")]
    Option {
        option: String,
        expected: String,
        found: String,
    },

    /// A samples metadata table does not cover the dataset, or holds weights that cannot be drawn from.
    #[error("invalid samples metadata: {fault}")]
    Weights { fault: String, rows: Vec<u64> },

    /// An index is outside `0..len`.
    #[error("row {index} is out of range for {len} rows")]
    OutOfRange { index: i128, len: u64 },

    /// A sample id that was never given.
    #[error("{}: there is no sample {sample_id}; {sample_ids} ids were given, from 0 on", path.display())]
    NoSample {
        path: PathBuf,
        sample_id: u64,
        sample_ids: u64,
    },

    /// A number exceeds what this build handles; see [`crate::limits`].
    #[error("{what} is {found}, more than the limit of {limit}")]
    Limit {
        what: String,
        found: u64,
        limit: u64,
    },

    /// The system has not as much memory left as something takes.
    #[error("{what} takes {bytes} bytes of memory, which the system does not have left")]
    Memory { what: &'static str, bytes: u64 },

    /// The operating system refused a file operation.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// The caller asked to stop, for example by Ctrl-C.
    #[error("interrupted")]
    Interrupted,

    /// A saved state cannot be loaded here: it is none, or belongs to other data or another recipe.
    #[error("cannot load the state: {fault}")]
    State {
        fault: String,
        /// Field, saved value, present value.
        fields: Vec<(String, String, String)>,
    },

    /// An iterator is used in a child process that was forked after it was created.
    #[error(
        "this iterator belongs to the parent process, its reader threads did not survive the fork; create a new iterator in the child"
    )]
    ForkedIterator,

    /// A child process was forked while another thread was changing the dataset, whose state it cannot know.
    #[error(
        "another thread was using this dataset at the moment of the fork, so its state is unknown in the child; open the dataset again here"
    )]
    ForkedDataset,

    /// The system refused to start a thread.
    #[error(
        "cannot start thread {name}: {source}; ask for fewer threads or raise the limit of the process"
    )]
    Thread { name: String, source: io::Error },

    /// A promise of our own code was broken. Always a defect.
    #[error("internal error: {what}; please report it")]
    Internal { what: String },
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match numbers.is_empty() {
        true => "none".to_owned(),
        false => numbers.join(", "),
    }
}

fn advice(path: &Path, last_good: Option<u64>) -> String {
    let path = path.display();
    match last_good {
        Some(number) => format!(
            "the last good generation is {number}: open that one, or run `dataset-rt repair {path}`"
        ),
        None => format!(
            "no other generation is good; run `dataset-rt repair {path}` to keep what can be kept"
        ),
    }
}

impl CacheError {
    /// Wraps an operating-system error with what was being done to which path.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    /// A whole-file fault.
    pub fn damaged(
        path: &Path,
        subject: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self::DamagedFile {
            path: path.to_path_buf(),
            subject: subject.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// A manifest fault.
    pub fn manifest(path: &Path, fault: impl Into<String>) -> Self {
        Self::Manifest {
            path: path.to_path_buf(),
            fault: fault.into(),
        }
    }

    /// An option outside its range.
    pub fn option(option: &str, expected: impl ToString, found: impl ToString) -> Self {
        Self::Option {
            option: option.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// A number beyond a limit.
    pub fn limit(what: impl Into<String>, found: u64, limit: u64) -> Self {
        Self::Limit {
            what: what.into(),
            found,
            limit,
        }
    }

    /// Memory that is not there.
    pub fn memory(what: &'static str, bytes: usize) -> Self {
        let bytes = bytes as u64;
        Self::Memory { what, bytes }
    }

    /// A broken promise of our own code.
    pub fn internal(what: impl Into<String>) -> Self {
        Self::Internal { what: what.into() }
    }
}
