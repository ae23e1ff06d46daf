//! The file operations a publication is made of, behind a trait, so that a simulated disk can fail or lose power at
//! every one of them. Nothing else in this crate creates, renames, syncs or removes a file of a cache.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{CacheError, Result};

/// A file system as a publication sees it. Errors are those of the operating system; callers add the path and the verb.
///
/// A change is *visible* when the call returns and *durable* only after the matching sync: bytes after
/// [`VfsFile::sync`], the name of a new, renamed or removed entry after [`Vfs::sync_dir`] of the directory that holds
/// the name.
pub trait Vfs: Send + Sync + Debug {
    /// Creates one directory; `AlreadyExists` if anything has that name.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates an empty file for writing; `AlreadyExists` if anything has that name.
    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>>;
    /// Opens a file for reading from its start; it sees what was written before, synced or not.
    fn open_file(&self, _path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Err(ErrorKind::Unsupported.into())
    }
    /// Renames within one file system in one step; `AlreadyExists`, and nothing changed, if anything, even an empty
    /// directory, is called `to`.
    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames a file within one file system in one step, in place of the file called `to`.
    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in this directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes one file or symbolic link.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all it holds, following no symbolic link; may stop half way on an error.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Whether anything has this name; a symbolic link at the end is not followed.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// A new file being written from its start to its end.
pub trait VfsFile: Send {
    /// Appends all bytes, or fails having appended some part of them.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Hints that what was written so far should start its way to the disk now, so that a later [`VfsFile::sync`]
    /// waits less. Promises nothing and never fails.
    fn begin_writeback(&mut self) {}
    /// Returns once all bytes written so far, and the file's length, are durable. After an error the bytes must be
    /// taken for lost: a second call may succeed without having written them.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of the operating system.
///
/// | | Linux, macOS | Windows, others |
/// |---|---|---|
/// | `sync` | `fsync` (`F_FULLFSYNC` on macOS) | `FlushFileBuffers` or what std does |
/// | `sync_dir` | `fsync` of the directory; done if the file system has no such thing (`EINVAL`, `ENOTSUP`) | nothing: there is no portable way |
/// | `rename_noreplace` | `renameat2(RENAME_NOREPLACE)`, `renameatx_np(RENAME_EXCL)`; where refused, see below | a look, then `rename` |
///
/// File systems without a no-replace rename (NFS among them) get a look followed by a plain rename. A publication stays
/// safe there, because a plain rename of a directory refuses a target that is not empty, and a published cache never
/// is: only an empty directory made by somebody else between the two steps would be replaced.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsVfs;

impl Vfs for OsVfs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn VfsFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        Ok(Box::new(OsFile {
            file,
            written: 0,
            pushed: 0,
        }))
    }

    fn open_file(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn rename_noreplace(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rename_exclusive(from, to) {
            Err(error) if lacks_exclusive_rename(&error) => rename_after_look(from, to),
            done => done,
        }
    }

    fn replace_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        sync_directory(path)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A file of [`OsVfs`]. Closing is left to drop: errors that a network file system keeps for `close` belong to bytes
/// not yet written back, and after a successful `fsync` there are none.
struct OsFile {
    file: File,
    written: u64,
    pushed: u64,
}

impl VfsFile for OsFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // One call with megabytes asks the kernel for its largest pages, which a virtual machine may have to fetch from its
        // host first: measured, that made a write two to three times slower whenever memory had lain idle.
        const PIECE: usize = 256 << 10;
        for piece in bytes.chunks(PIECE) {
            self.file.write_all(piece)?;
        }
        self.written = self.written.saturating_add(bytes.len() as u64);
        Ok(())
    }

    fn begin_writeback(&mut self) {
        // Only whole pages, and each page once: a second hint would also drop pages that are clean by then, and a
        // validation that reads the file back would have to fetch them from the disk.
        const PAGE: u64 = 4096;
        let end = self.written - self.written % PAGE;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(len) = std::num::NonZeroU64::new(end.saturating_sub(self.pushed)) {
            // The safe wrappers have no sync_file_range; Linux answers this advice by starting the write-back of dirty
            // pages without waiting for it, and keeps pages that are on their way.
            let advice = rustix::fs::Advice::DontNeed;
            let _ = rustix::fs::fadvise(&self.file, self.pushed, Some(len), advice);
        }
        self.pushed = end;
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn rename_exclusive(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn rename_exclusive(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Whether an error says that the flag, not the rename, was refused.
fn lacks_exclusive_rename(error: &io::Error) -> bool {
    // EINVAL also means "into itself"; the plain rename then says so again.
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported
    )
}

/// The rename for file systems that cannot exclude a target by themselves.
fn rename_after_look(from: &Path, to: &Path) -> io::Result<()> {
    if OsVfs.exists(to)? {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let moving = identity(from)?;
    match fs::rename(from, to) {
        Ok(()) => Ok(()),
        // A network file system that repeats a request whose answer was lost reports the second try, which fails.
        // If the very thing we moved is at the target, the first try had succeeded.
        Err(_) if moving.is_some() && identity(to).ok().flatten() == moving => Ok(()),
        Err(error) => Err(match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
                ErrorKind::AlreadyExists.into()
            }
            _ => error,
        }),
    }
}

/// What tells a file or directory from every other on this machine, where the platform can say.
#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Option<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::symlink_metadata(path)?;
    Ok(Some((metadata.dev(), metadata.ino())))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> io::Result<Option<(u64, u64)>> {
    Ok(None)
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if lacks_exclusive_rename(&error) => Ok(()),
        done => done,
    }
}

#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a directory and its missing ancestors so that, whenever a directory made by this function exists, the
/// names of all directories above it are durable already. Only its own name may not be: see [`sync_name_of`].
///
/// The rule holds between processes too. Whoever finds a directory that another process made, and may have died over,
/// needs to sync one name, never a chain of unknown length.
pub fn create_dirs(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    let looked = |path: &Path| {
        vfs.exists(path)
            .map_err(|error| CacheError::io("look for directory", path, error))
    };
    let mut missing = Vec::new();
    let mut current = path;
    while !current.as_os_str().is_empty() && !looked(current)? {
        missing.push(current);
        match current.parent() {
            Some(parent) => current = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        sync_name_of(vfs, &parent_of(directory))?;
        match vfs.create_dir(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(CacheError::io("create directory", directory, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the name of an existing directory durable, by syncing the directory above it.
///
/// A directory above that we may not read cannot be synced; it was not made by us, so this is no error.
pub fn sync_name_of(vfs: &dyn Vfs, directory: &Path) -> Result<()> {
    if matches!(directory.as_os_str().to_str(), Some("." | "")) || directory.parent().is_none() {
        return Ok(());
    }
    let above = parent_of(directory);
    match vfs.sync_dir(&above) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        done => done.map_err(|error| CacheError::io("sync directory", &above, error)),
    }
}

/// The directory a path is in, `.` for a bare name; a root is its own.
fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_path_buf(),
        None => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rename = fn(&Path, &Path) -> io::Result<()>;
    const RENAMES: [Rename; 2] = [
        |from, to| OsVfs.rename_noreplace(from, to),
        rename_after_look,
    ];

    #[test]
    fn no_rename_replaces_anything() {
        for rename in RENAMES {
            let root = tempfile::tempdir().unwrap();
            let at = |name: &str| root.path().join(name);
            fs::create_dir(at("from")).unwrap();
            fs::write(at("from/inside"), b"x").unwrap();
            fs::create_dir(at("empty")).unwrap();
            fs::create_dir(at("full")).unwrap();
            fs::write(at("full/old"), b"y").unwrap();
            fs::write(at("file"), b"z").unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
            let mut taken = vec!["empty", "full", "file"];
            if cfg!(unix) {
                taken.push("link");
            }
            for name in taken {
                let error = rename(&at("from"), &at(name)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{name}");
                assert!(at("from/inside").exists(), "{name}");
            }
            rename(&at("from"), &at("free")).unwrap();
            assert!(at("free/inside").exists() && !at("from").exists());
            let gone = rename(&at("from"), &at("other")).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_plain_rename_refuses_a_full_directory_even_without_the_look() {
        // What makes the fallback safe between publishers: the last word is the kernel's.
        let root = tempfile::tempdir().unwrap();
        for name in ["from", "full"] {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("inside"), name).unwrap();
        }
        let moved = fs::rename(root.path().join("from"), root.path().join("full"));
        assert_eq!(moved.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    }

    #[test]
    fn create_refuses_what_exists_and_exists_does_not_follow_links() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        let mut file = OsVfs.create_file(&path).unwrap();
        for _ in 0..3 {
            file.write_all(&[7; 5000]).unwrap();
            file.begin_writeback();
        }
        file.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![7; 15000]);
        let again = OsVfs.create_file(&path).map(drop).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let dir = OsVfs.create_dir(&path).unwrap_err();
        assert_eq!(dir.kind(), ErrorKind::AlreadyExists);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("nowhere", root.path().join("link")).unwrap();
            assert!(OsVfs.exists(&root.path().join("link")).unwrap());
        }
        assert!(!OsVfs.exists(&root.path().join("nowhere")).unwrap());
    }

    #[test]
    fn missing_ancestors_are_created_once_and_for_relative_paths_too() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        create_dirs(&OsVfs, &deep).unwrap();
        create_dirs(&OsVfs, &deep).unwrap();
        assert!(deep.is_dir());
        create_dirs(&OsVfs, Path::new(".")).unwrap();
        create_dirs(&OsVfs, Path::new("src")).unwrap();
        create_dirs(&OsVfs, Path::new("")).unwrap();
        sync_name_of(&OsVfs, Path::new("src")).unwrap();
        fs::write(root.path().join("file"), b"").unwrap();
        assert!(create_dirs(&OsVfs, &root.path().join("file/below")).is_err());
    }
}
