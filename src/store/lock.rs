//! One writer per cache, across processes and threads, by an advisory lock on a hidden file beside the cache.
//!
//! The lock is not part of durability, so it uses the operating system directly and not [`super::vfs`]: a simulated
//! disk has no other processes. It keeps writers from doing the same work twice and tells whose staging directories are
//! dead. It is not what keeps two writers from replacing each other's cache; the no-replace rename is.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::vfs::{OsVfs, create_dirs};
use crate::error::{CacheError, Result};

/// Longest pause between two looks at a lock that somebody else holds. Signals are noticed this fast.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Most bytes of a lock file that are read to name its holder.
const HOLDER_BYTES: u64 = 4096;

/// The right to write one cache, until dropped.
///
/// A holder that is killed loses the lock at once, for the operating system releases it; its lock file stays behind and
/// tells the next holder to look for [remains](CacheLock::has_remains). An orderly release leaves no file. A copy in a
/// forked child neither releases the lock nor removes anything.
#[derive(Debug)]
pub struct CacheLock {
    path: PathBuf,
    /// None where the file system has no advisory locks.
    file: Option<File>,
    remains: AtomicBool,
    owner: u32,
}

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    since_unix: u64,
}

enum Attempt {
    Held(CacheLock),
    Busy(String),
}

impl CacheLock {
    /// Takes the lock of `base/name`, or fails at once with [`CacheError::Locked`], which names the holder. Creates
    /// `base` if it is missing.
    ///
    /// On a file system without advisory locks this succeeds without locking: [`CacheLock::is_exclusive`] is false.
    pub fn try_acquire(base: &Path, name: &str) -> Result<CacheLock> {
        match attempt(base, name)? {
            Attempt::Held(lock) => Ok(lock),
            Attempt::Busy(holder) => Err(CacheError::Locked {
                path: base.join(name),
                holder,
            }),
        }
    }

    /// Takes the lock of `base/name`, waiting for as long as another has it. Calls `tick` with the holder's name before
    /// every pause, at least every 50 ms; an error from `tick` ends the waiting and is returned.
    pub fn acquire(
        base: &Path,
        name: &str,
        tick: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<CacheLock> {
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt(base, name)? {
                Attempt::Held(lock) => return Ok(lock),
                Attempt::Busy(holder) => tick(&holder)?,
            }
            crate::sync::pause(pause);
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// A stand-in that locks nothing, as on a file system without advisory locks.
    pub fn without_locking(base: &Path, name: &str) -> CacheLock {
        CacheLock {
            path: lock_path(base, name),
            file: None,
            remains: AtomicBool::new(false),
            owner: std::process::id(),
        }
    }

    /// Whether nobody else can be writing this cache. False where the file system has no advisory locks.
    pub fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }

    /// Whether staging directories of an earlier holder, one that was killed or could not remove them, may exist.
    ///
    /// As long as this is so, release leaves the lock file behind for the next holder to know it too.
    pub fn has_remains(&self) -> bool {
        self.remains.load(Ordering::Relaxed)
    }

    /// Whether this is the lock of `base/name`.
    pub fn guards(&self, base: &Path, name: &str) -> bool {
        self.path == lock_path(base, name)
    }

    /// Says that there may be remains, or that they were removed.
    pub(super) fn set_remains(&self, remains: bool) {
        self.remains.store(remains, Ordering::Relaxed);
    }
}

impl Drop for CacheLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else {
            return;
        };
        if self.owner != std::process::id() {
            return;
        }
        // The name goes first, while the lock is held, or it could be the next holder's file. Where an open file
        // cannot be compared with a name (see `is_current`), it stays, but empty: no remains.
        if !self.has_remains() && is_current(&file, &self.path).unwrap_or(false) {
            let _ = if cfg!(unix) {
                fs::remove_file(&self.path)
            } else {
                file.set_len(0)
            };
        }
        // Explicitly: closing does not release a lock while a forked child has a copy of the descriptor.
        let _ = file.unlock();
    }
}

fn lock_path(base: &Path, name: &str) -> PathBuf {
    base.join(format!(".{name}.lock"))
}

fn attempt(base: &Path, name: &str) -> Result<Attempt> {
    create_dirs(&OsVfs, base)?;
    let path = lock_path(base, name);
    loop {
        if let Some(attempt) = lock_opened(open(&path)?, &path)? {
            return Ok(attempt);
        }
    }
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| CacheError::io("open lock file", path, error))
}

/// Tries to lock an open lock file; None if it lost its name to a holder's release since it was opened.
fn lock_opened(mut file: File, path: &Path) -> Result<Option<Attempt>> {
    let lock = |file, remains| CacheLock {
        path: path.to_path_buf(),
        file,
        remains: AtomicBool::new(remains),
        owner: std::process::id(),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Ok(Some(Attempt::Busy(name_holder(&mut file))));
        }
        Err(TryLockError::Error(error)) if lacks_locks(&error) => {
            let _ = fs::remove_file(path);
            return Ok(Some(Attempt::Held(lock(None, false))));
        }
        Err(TryLockError::Error(error)) => {
            return Err(CacheError::io("lock", path, error));
        }
    }
    let current = is_current(&file, path)
        .map_err(|error| CacheError::io("look at lock file", path, error))?;
    if !current {
        return Ok(None);
    }
    let remains = file.metadata().map_or(true, |metadata| metadata.len() > 0);
    let signed = sign(&mut file);
    let lock = lock(Some(file), remains);
    match signed {
        Ok(()) => Ok(Some(Attempt::Held(lock))),
        Err(error) => Err(CacheError::io("write lock file", path, error)),
    }
}

/// Writes our name into a lock file we hold.
fn sign(file: &mut File) -> io::Result<()> {
    let holder = Holder {
        pid: std::process::id(),
        host: host(),
        since_unix: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
    };
    let text = serde_json::to_vec(&holder)?;
    // Never empty in between: a holder killed here must still be noticed by the next.
    file.rewind()?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)
}

/// The holder in words, from a file that may be half written.
fn name_holder(file: &mut File) -> String {
    let mut text = Vec::new();
    let _ = file.take(HOLDER_BYTES).read_to_end(&mut text);
    let Ok(holder) = serde_json::from_slice::<Holder>(&text) else {
        return "another writer, which has just begun".to_owned();
    };
    let since = utc(holder.since_unix);
    if holder.pid == std::process::id() && holder.host == host() {
        format!(
            "this process (pid {} on {}) since {since}",
            holder.pid, holder.host
        )
    } else {
        format!("process {} on {} since {since}", holder.pid, holder.host)
    }
}

/// This process in words, for whoever finds what it left.
pub fn this_process() -> String {
    format!("process {} on {}", std::process::id(), host())
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this host".to_owned())
}

/// Whether the open file is the one that has this name now.
#[cfg(unix)]
fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere lock files are never removed, so they never change under a name.
#[cfg(not(unix))]
fn is_current(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Whether an error of a lock call says that this file system has none.
fn lacks_locks(error: &io::Error) -> bool {
    #[cfg(unix)]
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NOLCK) {
        return true;
    }
    error.kind() == ErrorKind::Unsupported
}

/// Seconds since 1970 as `2026-01-31 23:59:59 UTC`.
fn utc(seconds: u64) -> String {
    // Days are counted in 400-year eras that start on 1 March, which puts the leap day at the end of a year.
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let (month, day) = (
        if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        },
        day - (153 * from_march + 2) / 5 + 1,
    );
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    fn entries(base: &Path) -> Vec<String> {
        fs::read_dir(base)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_held_lock_is_refused_by_name_and_a_released_one_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let base = root.path().join("new/base");
        let lock = CacheLock::try_acquire(&base, "digits").unwrap();
        assert!(lock.is_exclusive() && !lock.has_remains());
        assert!(lock.guards(&base, "digits") && !lock.guards(&base, "letters"));
        let other = CacheLock::try_acquire(&base, "letters").unwrap();
        match CacheLock::try_acquire(&base, "digits") {
            Err(CacheError::Locked { path, holder }) => {
                assert_eq!(path, base.join("digits"));
                let pid = std::process::id();
                let start = format!("this process (pid {pid} on {}) since 20", host());
                assert!(holder.starts_with(&start), "{holder}");
            }
            other => panic!("{other:?}"),
        }
        drop((lock, other));
        assert_eq!(entries(&base), Vec::<String>::new());
    }

    #[test]
    fn many_threads_hold_it_one_at_a_time_though_each_release_removes_the_file() {
        let root = tempfile::tempdir().unwrap();
        let (inside, barrier) = (AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..50 {
                        let lock = CacheLock::acquire(root.path(), "c", &mut |_| Ok(())).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(entries(root.path()), Vec::<String>::new());
    }

    #[test]
    fn a_waiter_hears_the_holder_and_can_stop() {
        let root = tempfile::tempdir().unwrap();
        let _lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        let mut ticks = 0;
        let stopped = CacheLock::acquire(root.path(), "c", &mut |holder| {
            assert!(holder.contains("pid"), "{holder}");
            ticks += 1;
            if ticks == 3 {
                return Err(CacheError::Interrupted);
            }
            Ok(())
        });
        assert!(matches!(stopped, Err(CacheError::Interrupted)));
    }

    #[test]
    fn a_file_left_by_a_dead_holder_is_taken_over_and_noticed() {
        let root = tempfile::tempdir().unwrap();
        let path = lock_path(root.path(), "c");
        // Longer than ours will be: nothing of it may remain.
        let left = br#"{"pid":4294967295,"host":"a-host-of-a-long-name-that-is-gone-by-now-and-will-not-come-back","since_unix":99}"#;
        fs::write(&path, left).unwrap();
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        assert!(lock.has_remains());
        let holder: Holder = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(holder.pid, std::process::id());
        drop(lock);
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        assert!(lock.has_remains(), "unswept, so still to be noticed");
        lock.set_remains(false);
        drop(lock);
        assert_eq!(entries(root.path()), Vec::<String>::new());
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        assert!(!lock.has_remains());
    }

    #[test]
    fn a_file_that_lost_its_name_before_it_was_locked_is_no_lock() {
        let root = tempfile::tempdir().unwrap();
        let path = lock_path(root.path(), "c");
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        let slow = open(&path).unwrap();
        let slower = open(&path).unwrap();
        drop(lock);
        assert!(lock_opened(slow, &path).unwrap().is_none());
        let _next = CacheLock::try_acquire(root.path(), "c").unwrap();
        assert!(lock_opened(slower, &path).unwrap().is_none());
    }

    #[test]
    fn release_frees_the_lock_though_a_forked_child_has_a_copy() {
        let root = tempfile::tempdir().unwrap();
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        lock.set_remains(true);
        let _copy = lock.file.as_ref().unwrap().try_clone().unwrap();
        drop(lock);
        CacheLock::try_acquire(root.path(), "c").unwrap();
    }

    #[test]
    fn a_copy_in_another_process_releases_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        let copy = lock.file.as_ref().unwrap().try_clone().unwrap();
        lock.owner ^= 1;
        drop(lock);
        assert!(matches!(
            CacheLock::try_acquire(root.path(), "c"),
            Err(CacheError::Locked { .. })
        ));
        drop(copy);
        CacheLock::try_acquire(root.path(), "c").unwrap();
    }

    #[test]
    fn a_file_put_in_place_of_ours_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        fs::remove_file(&lock.path).unwrap();
        let other = CacheLock::try_acquire(root.path(), "c").unwrap();
        drop(lock);
        assert_eq!(entries(root.path()), [".c.lock"]);
        drop(other);
        assert_eq!(entries(root.path()), Vec::<String>::new());
    }

    #[test]
    fn an_empty_or_torn_file_still_gives_a_holder_in_words() {
        let root = tempfile::tempdir().unwrap();
        let path = lock_path(root.path(), "c");
        let _lock = CacheLock::try_acquire(root.path(), "c").unwrap();
        for text in ["", "{\"pid\":1,", "[]"] {
            fs::write(&path, text).unwrap();
            match CacheLock::try_acquire(root.path(), "c") {
                Err(CacheError::Locked { holder, .. }) => {
                    assert!(holder.starts_with("another writer"), "{holder}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_errors_that_say_no_locks_here_are_taken_so() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::NOLCK, true),
            (Errno::NOTSUP, true),
            (Errno::NOSYS, true),
            (Errno::IO, false),
            (Errno::ACCESS, false),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(lacks_locks(&error), expected, "{errno}");
        }
        let root = tempfile::tempdir().unwrap();
        let two = [(), ()].map(|()| CacheLock::without_locking(root.path(), "c"));
        assert!(two.iter().all(|lock| !lock.is_exclusive()));
    }

    #[test]
    fn times_are_read_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
