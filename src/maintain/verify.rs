//! Says everything that is wrong with a cache, by looking at its files (fast) or by reading all of them (in full).
//!
//! Nothing is written and nothing locked. Files are read from front to back with reads that fail with an error where a
//! disk is damaged; what is wrong with one file does not keep the others from being checked.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::contents::{Contents, Present, Role};
use super::findings::{Findings, Kind, Place, Report};
use super::manifests;
use super::record::Records;
use super::shard::{SCATTERED_IDS, Scratch, check_scattered, check_shard};
use super::tables::{self, Span, Tables};
use crate::error::{CacheError, Result};
use crate::format::manifest::Manifest;
use crate::store::cache::Cache;
use crate::store::file::FileReader;
use crate::store::generations::{self, Wanted};
use crate::store::locality::resolve;
use crate::store::uncached::UncachedFile;
use crate::sync::{Mutex, available_threads, lock, try_map_watched};
use crate::types::Io;

/// How often the caller is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(50);

/// Threads for each that can run at once: while one hashes what it read, others wait for the disk.
const THREADS_PER_CORE: usize = 3;

/// How far a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read so far.
    pub bytes_read: u64,
    /// Bytes of all files that are there.
    pub bytes: u64,
}

/// Who is asked whether to go on, at the beginning and then about every 50 ms; an error ends the check and is returned.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> Result<()>;

/// Checks the wanted generation of the cache at `path`. Fast: the manifest, that its files are there with their kinds and
/// lengths, and that index rows point into their shards. In full: every byte, too.
///
/// Takes three threads for each core, and for each of them the memory of two blocks or of the largest record; the metadata
/// table is mapped, or held where files are not mapped. Shards on a local disk that are not in memory are read past the page
/// cache.
///
/// # Errors
/// [`CacheError::NotFound`] if there is no cache, [`CacheError::NoGeneration`] if there is no such generation; that of
/// `watch`. Whatever is wrong with the cache is in the report.
pub fn verify(path: &Path, wanted: Wanted, full: bool, watch: Watch<'_>) -> Result<Report> {
    let folder = generations::open_folder(path)?;
    let findings = Findings::default();
    let (number, manifest) = manifests::find(&folder, path, wanted, &findings)?;
    match manifest {
        Some(manifest) => {
            let is_uncached = resolve(Io::Auto, path) == Io::Mmap;
            check(path, &manifest, full, is_uncached, findings, watch)
        }
        None => {
            let (findings, finding_count) = findings.finish();
            Ok(Report {
                path: path.to_path_buf(),
                generation: number,
                full,
                samples: 0,
                bytes_read: 0,
                findings,
                finding_count,
            })
        }
    }
}

/// Checks an open cache in full.
///
/// # Errors
/// The first thing that is wrong with it; that of `interrupt`, which is called at the beginning, then about every 50 ms.
pub fn validate(cache: &Cache, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let findings = Findings::default();
    let (path, manifest) = (cache.path(), cache.manifest());
    let report = check(path, manifest, true, false, findings, &mut |_| interrupt())?;
    let first = report.findings.into_iter().next();
    first.map_or(Ok(()), |finding| Err(finding.error))
}

/// What all threads of a check share.
#[derive(Debug)]
pub(super) struct Check<'a> {
    pub contents: Contents<'a>,
    pub full: bool,
    /// Whether shards that are not in memory are read past the page cache.
    is_uncached: bool,
    findings: Findings,
    /// Whether some row or record is not what it should be, so that records cannot be added up.
    is_partial: AtomicBool,
    stopped: AtomicBool,
    bytes_read: AtomicU64,
    bytes: AtomicU64,
}

impl Check<'_> {
    /// Notes what is wrong.
    pub fn find(&self, place: Place, kind: Kind, error: CacheError) {
        if matches!(place, Place::Row(_) | Place::Record(..)) {
            self.is_partial.store(true, Ordering::Relaxed);
        }
        self.findings.add(place, kind, error);
    }

    /// Notes that something could not be read.
    ///
    /// # Errors
    /// Whatever is not the fault of the cache.
    pub fn cannot_read(&self, place: Place, error: CacheError) -> Result<()> {
        let kind = match error {
            CacheError::Io { .. } => Kind::Unreadable,
            CacheError::DamagedFile { .. } => Kind::WrongLength,
            other => return Err(other),
        };
        self.find(place, kind, error);
        Ok(())
    }

    /// Counts bytes read, and ends the check where the caller wants that.
    pub fn read(&self, bytes: u64) -> Result<()> {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        self.go_on()
    }

    /// Ends the check where the caller wants that.
    pub fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(CacheError::Interrupted);
        }
        Ok(())
    }

    /// A way past the page cache to the bytes of `file`, if they are to be read that way.
    pub fn uncached(&self, file: &FileReader) -> Option<UncachedFile> {
        match self.is_uncached {
            true => UncachedFile::open(file.path(), file.len()),
            false => None,
        }
    }

    /// Whether every row and record seen so far is what it should be.
    pub fn is_whole(&self) -> bool {
        !self.is_partial.load(Ordering::Relaxed)
    }

    fn progress(&self) -> Progress {
        Progress {
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Does `work` for each item on all threads while the caller is asked whether to go on.
    fn for_each<T: Sync, R: Send>(
        &self,
        items: &[T],
        watch: Watch<'_>,
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let threads = available_threads() * THREADS_PER_CORE;
        try_map_watched(threads, items, work, PATIENCE, &mut || {
            watch(self.progress()).inspect_err(|_| self.stopped.store(true, Ordering::Relaxed))
        })
    }
}

/// Records that are checked together.
enum Part {
    /// Those of a shard, while it is hashed.
    Shard(Present, usize),
    /// Those of some ids whose shards hold records of ids far apart.
    Ids(u64),
}

fn check(
    root: &Path,
    manifest: &Manifest,
    full: bool,
    is_uncached: bool,
    findings: Findings,
    watch: Watch<'_>,
) -> Result<Report> {
    watch(Progress::default())?;
    let check = Check {
        contents: Contents::new(root, manifest),
        full,
        is_uncached,
        findings,
        is_partial: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        bytes_read: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    };
    let present = look(&check, watch)?;
    let tables = read_tables(&check, &present, watch)?;
    if full {
        check_records(&check, &present, &tables, watch)?;
    }
    let (findings, finding_count) = check.findings.finish();
    Ok(Report {
        path: root.to_path_buf(),
        generation: manifest.number(),
        full,
        samples: manifest.sample_count,
        bytes_read: check.bytes_read.into_inner(),
        findings,
        finding_count,
    })
}

/// Looks at every file.
fn look(check: &Check<'_>, watch: Watch<'_>) -> Result<Vec<Present>> {
    let folder = check.contents.folder()?;
    check.contents.look_at_folders(&folder, &check.findings);
    let numbers: Vec<usize> = (0..check.contents.files.len()).collect();
    let present = check.for_each(&numbers, watch, |number| {
        check.go_on()?;
        Ok(check.contents.look(&folder, *number, &check.findings))
    })?;
    let present: Vec<Present> = present.into_iter().flatten().collect();
    let bytes = present.iter().map(|file| file.byte_len);
    let bytes = bytes.fold(0u64, u64::saturating_add);
    check.bytes.store(bytes, Ordering::Relaxed);
    Ok(present)
}

/// Reads everything but shards.
fn read_tables(check: &Check<'_>, present: &[Present], watch: Watch<'_>) -> Result<Tables> {
    let mut tables = Tables::open(check, present)?;
    let mut read = |tables: &mut Tables, is_wanted: &dyn Fn(Role) -> bool| {
        let role = |file: &&Present| check.contents.file(file.number).map(|file| file.role);
        let wanted = present
            .iter()
            .filter(|file| role(file).is_ok_and(is_wanted));
        let wanted: Vec<Present> = wanted.copied().collect();
        let found = check.for_each(&wanted, watch, |file| tables::read(check, tables, *file))?;
        found.into_iter().for_each(|part| tables.add(part));
        Ok::<_, CacheError>(())
    };
    // Which ids are gone decides which rows count.
    read(&mut tables, &|role| role == Role::Deleted)?;
    tables.finish_gone(check);
    read(&mut tables, &|role| match role {
        Role::Index => true,
        Role::Deleted | Role::Shard(_) => false,
        Role::Checksums | Role::Metadata { .. } | Role::Dictionary => check.full,
    })?;
    Ok(tables)
}

/// Reads all shards and checks all records.
fn check_records(
    check: &Check<'_>,
    present: &[Present],
    tables: &Tables,
    watch: Watch<'_>,
) -> Result<()> {
    let mut parts = Vec::new();
    for file in present {
        if let Role::Shard(number) = check.contents.file(file.number)?.role {
            parts.push(Part::Shard(*file, number));
        }
    }
    if tables.spans.iter().any(Span::is_scattered) {
        let starts = (0..tables.rows.len()).step_by(SCATTERED_IDS);
        parts.extend(starts.map(Part::Ids));
    }
    let records = Records::new(check, tables);
    let scratches: Mutex<Vec<Scratch>> = Mutex::default();
    check.for_each(&parts, watch, |part| {
        let recycled = lock(&scratches).pop();
        let mut scratch = recycled.unwrap_or_default();
        match part {
            Part::Shard(file, number) => check_shard(&records, *file, *number, &mut scratch)?,
            Part::Ids(first) => check_scattered(&records, *first, &mut scratch)?,
        }
        lock(&scratches).push(scratch);
        Ok(())
    })?;
    records.compare_sums();
    Ok(())
}
