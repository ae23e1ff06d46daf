//! A cache directory held open while it is checked: names are looked up from there, which costs a third of whole paths,
//! and no link inside it is followed.

use std::fs::{File, Metadata};
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{CacheError, Result};

/// What makes two paths the same directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(#[cfg(unix)] (u64, u64), #[cfg(not(unix))] PathBuf);

impl Identity {
    /// Number of the file system that the directory lies on, where the platform has one.
    pub fn device(&self) -> Option<u64> {
        #[cfg(unix)]
        {
            Some(self.0.0)
        }
        #[cfg(not(unix))]
        None
    }
}

/// What lies under a name.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    kind: Kind,
    /// Length in bytes, of a regular file.
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
    Other,
}

impl From<&Metadata> for Found {
    fn from(metadata: &Metadata) -> Self {
        let kind = if metadata.is_symlink() {
            Kind::Link
        } else if metadata.is_file() {
            Kind::File
        } else if metadata.is_dir() {
            Kind::Directory
        } else {
            Kind::Other
        };
        Self {
            kind,
            len: metadata.len(),
        }
    }
}

impl Found {
    /// # Errors
    /// [`CacheError::DamagedFile`] for anything but a regular file; `path` is for the message.
    pub fn check_file(self, path: &Path) -> Result<()> {
        self.check_kind(path, Kind::File, "kind of the file")
    }

    /// # Errors
    /// As [`Found::check_file`], and for a file of another length.
    pub fn check_len(self, path: &Path, expected: u64) -> Result<()> {
        self.check_file(path)?;
        if self.len == expected {
            return Ok(());
        }
        let (expected, found) = (format!("{expected} bytes"), format!("{} bytes", self.len));
        Err(CacheError::damaged(
            path,
            "length of the file",
            expected,
            found,
        ))
    }

    /// # Errors
    /// [`CacheError::DamagedFile`] for anything but a directory, a link to one included.
    pub fn check_directory(self, path: &Path) -> Result<()> {
        self.check_kind(path, Kind::Directory, "kind of the folder")
    }

    fn check_kind(self, path: &Path, expected: Kind, subject: &str) -> Result<()> {
        if self.kind == expected {
            return Ok(());
        }
        Err(CacheError::damaged(
            path,
            subject,
            expected.name(),
            self.kind.name(),
        ))
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Other => "a pipe, socket or device",
        }
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    #[cfg(unix)]
    directory: rustix::fd::OwnedFd,
}

impl Folder {
    /// Opens the directory at `path`, which may be a link to one.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        let directory = {
            use rustix::fs::{Mode, OFlags};
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            // A handle for looking names up needs no right to list them, and costs less.
            #[cfg(target_os = "linux")]
            let flags = flags | OFlags::PATH;
            rustix::fs::open(path, flags, Mode::empty())?
        };
        Ok(Self {
            path: path.to_path_buf(),
            #[cfg(unix)]
            directory,
        })
    }

    /// What tells this directory from any other.
    pub fn identity(&self) -> Result<Identity> {
        #[cfg(unix)]
        {
            let found = rustix::fs::fstat(&self.directory);
            let found = found.map_err(|error| CacheError::io("stat", &self.path, error.into()))?;
            Ok(Identity((found.st_dev as u64, found.st_ino as u64)))
        }
        #[cfg(not(unix))]
        std::fs::canonicalize(&self.path)
            .map_err(|error| CacheError::io("resolve", &self.path, error))
    }

    /// What lies under `name`, itself and not what a link there leads to.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if there is nothing.
    pub fn stat(&self, name: &str) -> Result<Found> {
        self.look(name)
            .map_err(|error| open_fault(&self.path.join(name), error))
    }

    #[cfg(unix)]
    fn look(&self, name: &str) -> io::Result<Found> {
        use rustix::fs::{AtFlags, FileType};
        let found = rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        };
        Ok(Found {
            kind,
            len: u64::try_from(found.st_size).unwrap_or(0),
        })
    }

    #[cfg(not(unix))]
    fn look(&self, name: &str) -> io::Result<Found> {
        Ok(Found::from(&std::fs::symlink_metadata(
            self.path.join(name),
        )?))
    }

    /// The whole file `name`, of at most `limit` bytes. The outer error tells that it could not be opened.
    ///
    /// # Errors
    /// [`CacheError::Limit`] if it is longer, [`CacheError::DamagedFile`] if it is no regular file.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Result<Vec<u8>>> {
        let path = self.path.join(name);
        let mut file = match self.open_file(name) {
            Ok(file) => file,
            // A link is refused in a way that differs between systems, so its kind is what is reported.
            Err(error) => match self.look(name).map(|found| found.check_file(&path)) {
                Ok(Err(fault)) => return Ok(Err(fault)),
                _ => return Err(error),
            },
        };
        let found = Found::from(&file.metadata()?);
        if let Err(fault) = found.check_file(&path) {
            return Ok(Err(fault));
        }
        if found.len > limit {
            let what = format!("length of {}", path.display());
            return Ok(Err(CacheError::limit(what, found.len, limit)));
        }
        let mut bytes = vec![0; usize::try_from(found.len).unwrap_or(0)];
        file.read_exact(&mut bytes)?;
        Ok(Ok(bytes))
    }

    #[cfg(unix)]
    fn open_file(&self, name: &str) -> io::Result<File> {
        use rustix::fs::Mode;
        Ok(File::from(rustix::fs::openat(
            &self.directory,
            name,
            reading(),
            Mode::empty(),
        )?))
    }

    #[cfg(not(unix))]
    fn open_file(&self, name: &str) -> io::Result<File> {
        File::open(self.path.join(name))
    }
}

/// Opens what lies at `path` itself, following no link that may lead out of the cache, and without waiting for whoever
/// would feed a pipe.
pub fn open_for_reading(path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        Ok(File::from(rustix::fs::open(
            path,
            reading(),
            rustix::fs::Mode::empty(),
        )?))
    }
    #[cfg(not(unix))]
    File::open(path)
}

#[cfg(unix)]
fn reading() -> rustix::fs::OFlags {
    use rustix::fs::OFlags;
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Length of the regular file at `path`.
///
/// # Errors
/// [`CacheError::DamagedFile`] for anything else.
pub fn file_len(path: &Path) -> Result<u64> {
    let found = std::fs::symlink_metadata(path).map_err(|error| open_fault(path, error))?;
    let found = Found::from(&found);
    found.check_file(path)?;
    Ok(found.len)
}

/// The error for a file of a cache that cannot be opened or looked at.
pub fn open_fault(path: &Path, error: io::Error) -> CacheError {
    if error.kind() == io::ErrorKind::NotFound {
        CacheError::damaged(path, "file of the cache", "a file", "nothing")
    } else {
        CacheError::io("open", path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_judged_by_what_lies_under_the_name_itself() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), b"abc").unwrap();
        std::fs::create_dir(root.path().join("inner")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let path = Path::new("x");
        folder.stat("file").unwrap().check_len(path, 3).unwrap();
        let long = folder.stat("file").unwrap().check_len(path, 4).unwrap_err();
        assert!(
            long.to_string().contains("expected 4 bytes, found 3 bytes"),
            "{long}"
        );
        folder.stat("inner").unwrap().check_directory(path).unwrap();
        assert!(folder.stat("inner").unwrap().check_file(path).is_err());
        assert!(folder.stat("file").unwrap().check_directory(path).is_err());
        assert!(matches!(
            folder.stat("none"),
            Err(CacheError::DamagedFile { .. })
        ));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("file", root.path().join("link")).unwrap();
            let link = folder.stat("link").unwrap().check_file(path).unwrap_err();
            assert!(link.to_string().contains("a symbolic link"), "{link}");
            assert!(matches!(
                folder.read("link", 10),
                Ok(Err(CacheError::DamagedFile { .. }))
            ));
        }
        assert_eq!(folder.read("file", 3).unwrap().unwrap(), b"abc");
        assert!(matches!(
            folder.read("file", 2),
            Ok(Err(CacheError::Limit { .. }))
        ));
    }

    #[test]
    fn a_directory_has_one_identity_under_all_its_names() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let identity = |path: &Path| Folder::open(path).unwrap().identity().unwrap();
        assert_eq!(identity(&inner), identity(&inner.join("..").join("inner")));
        assert_ne!(identity(&inner), identity(root.path()));
    }
}
