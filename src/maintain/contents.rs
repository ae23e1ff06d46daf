//! The files that a manifest names, and what there is of them.

use std::path::{Path, PathBuf};

use super::findings::{Findings, Kind, Place};
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Sha256Digest};
use crate::format::generation::{deleted_byte_len, placed};
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::store::file::{FileReader, Purpose};
use crate::store::folder::{Folder, file_len};
use crate::types::Io;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Where the records lie.
    Index,
    /// Their checksums.
    Checksums,
    /// Metadata of so many ids from the first one on.
    Metadata { first: u64, rows: u64 },
    /// Ids that are gone.
    Deleted,
    /// The zstd dictionary.
    Dictionary,
    /// Shard number so-and-so.
    Shard(usize),
}

/// One file that the manifest names.
#[derive(Debug)]
pub struct File {
    pub role: Role,
    /// Its name from the folder of the cache.
    pub name: String,
    pub path: PathBuf,
    /// Its length in bytes, where the manifest says so.
    pub byte_len: Option<u64>,
    pub sha256: Sha256Digest,
    pub crc32c: Option<Crc32c>,
}

/// All files of a cache: tables first, then shards in their order.
#[derive(Debug)]
pub struct Contents<'a> {
    pub manifest: &'a Manifest,
    pub files: Vec<File>,
    root: PathBuf,
}

/// Number of the index.
pub const INDEX: usize = 0;

/// A file that is there, by its number in [`Contents::files`].
#[derive(Clone, Copy, Debug)]
pub struct Present {
    pub number: usize,
    /// Its length in bytes, whatever it should be.
    pub byte_len: u64,
}

impl<'a> Contents<'a> {
    /// The files of the cache at `root`.
    pub fn new(root: &Path, manifest: &'a Manifest) -> Self {
        let mut files = Vec::new();
        let mut add = |role, name: String, byte_len, sha256, crc32c| {
            files.push(File {
                role,
                path: root.join(&name),
                name,
                byte_len,
                sha256,
                crc32c,
            });
        };
        let own = manifest.generation.as_ref();
        let name = placed(own.map_or(0, |own| own.index), names::INDEX);
        let len = Some(manifest.index_byte_len());
        add(Role::Index, name, len, manifest.index_sha256, None);
        if let Some(entry) = &manifest.record_checksums {
            let name = placed(own.map_or(0, |own| own.checksums), names::CHECKSUMS);
            let len = Some(manifest.checksums_byte_len());
            add(Role::Checksums, name, len, entry.sha256, None);
        }
        let mut first = 0u64;
        for part in manifest.metadata_parts().iter() {
            let (name, rows) = (placed(part.generation, names::METADATA), part.rows);
            let role = Role::Metadata { first, rows };
            add(role, name, None, part.sha256, part.crc32c);
            first = first.saturating_add(rows);
        }
        for part in manifest.deleted_parts() {
            let name = placed(part.generation, names::DELETED);
            let len = deleted_byte_len(part.count);
            add(Role::Deleted, name, len, part.sha256, None);
        }
        if let Some(entry) = &manifest.dictionary {
            let name = placed(own.map_or(0, |own| own.dictionary), names::DICTIONARY);
            let len = Some(entry.byte_len);
            add(Role::Dictionary, name, len, entry.sha256, None);
        }
        for (number, shard) in manifest.shards.iter().enumerate() {
            let len = Some(shard.byte_len);
            add(Role::Shard(number), shard.file(), len, shard.sha256, None);
        }
        Self {
            manifest,
            files,
            root: root.to_path_buf(),
        }
    }

    /// The folder of the cache, open.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn folder(&self) -> Result<Folder> {
        Folder::open(&self.root).map_err(|error| CacheError::io("open", &self.root, error))
    }

    /// Looks at the folders that files lie in, none of which may be a link out of the cache.
    pub fn look_at_folders(&self, folder: &Folder, findings: &Findings) {
        let mut seen = Vec::new();
        for (number, file) in self.files.iter().enumerate() {
            let mut upper = file.name.as_str();
            while let Some((parent, _)) = upper.rsplit_once('/') {
                upper = parent;
                if seen.last() == Some(&parent) || seen.contains(&parent) {
                    continue;
                }
                seen.push(parent);
                let path = self.root.join(parent);
                // That nothing is there shows again, file by file.
                if let Ok(found) = folder.stat(parent)
                    && let Err(error) = found.check_directory(&path)
                {
                    findings.add(Place::Shape(number), Kind::WrongKind, error);
                }
            }
        }
    }

    /// Looks at file `number`: whether it is there, a regular file, and as long as it should be. What can be read of it is
    /// returned, whatever is wrong with it.
    pub fn look(&self, folder: &Folder, number: usize, findings: &Findings) -> Option<Present> {
        let file = self.files.get(number)?;
        let place = Place::Shape(number);
        let found = match folder.stat(&file.name) {
            Ok(found) => found,
            Err(error @ CacheError::DamagedFile { .. }) => {
                findings.add(place, Kind::MissingFile, error);
                return None;
            }
            Err(error) => {
                findings.add(place, Kind::Unreadable, error);
                return None;
            }
        };
        if let Err(error) = found.check_file(&file.path) {
            findings.add(place, Kind::WrongKind, error);
            return None;
        }
        if let Some(expected) = file.byte_len
            && let Err(error) = found.check_len(&file.path, expected)
        {
            findings.add(place, Kind::WrongLength, error);
        }
        Some(Present {
            number,
            byte_len: found.len,
        })
    }

    /// Opens a file that is there for reads that fail with an error, not with a signal, where the disk is damaged.
    pub fn open(&self, present: Present) -> Result<FileReader> {
        let file = self.file(present.number)?;
        FileReader::open(&file.path, present.byte_len, Io::Pread, Purpose::Records)
    }

    /// Opens shard number `shard`, as long as it is.
    pub fn open_shard(&self, shard: u64) -> Result<FileReader> {
        let file = self.shard(usize::try_from(shard).unwrap_or(usize::MAX))?;
        let len = file_len(&file.path)?;
        FileReader::open(&file.path, len, Io::Pread, Purpose::Records)
    }

    /// The file of shard number `shard`.
    pub fn shard(&self, shard: usize) -> Result<&File> {
        let tables = self.files.len().saturating_sub(self.manifest.shards.len());
        self.file(tables.saturating_add(shard))
    }

    /// The first file for `role`, and its number.
    pub fn first(&self, role: Role) -> Option<(usize, &File)> {
        let mut files = self.files.iter().enumerate();
        files.find(|(_, file)| file.role == role)
    }

    /// File `number`.
    pub fn file(&self, number: usize) -> Result<&File> {
        let file = self.files.get(number);
        file.ok_or_else(|| CacheError::internal(format!("file {number} of a cache without it")))
    }
}
