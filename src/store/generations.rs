//! Which generation of a cache is opened, and what is said when it cannot be.

use std::io;
use std::path::Path;

use super::folder::Folder;
use crate::error::{CacheError, Result};
use crate::format::generation::{number_of, placed};
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::limits::MANIFEST_BYTES_MAX;

/// The first format version that may have later generations.
pub const GENERATIONS_FORMAT: u32 = 4;

/// Which generation of a cache is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The newest.
    #[default]
    Newest,
    /// The newest, or the one before it that can be opened if it is damaged.
    LastGood,
    /// This one.
    Number(u64),
    /// The newest whose manifest can be trusted, whatever has become of the files that it names.
    Salvage,
}

/// A generation that was found good.
#[derive(Debug)]
pub struct Chosen {
    /// Its manifest.
    pub manifest: Manifest,
    /// Why a newer one was passed over.
    pub passed_over: Option<String>,
}

/// Opens the folder of the cache at `path`.
///
/// # Errors
/// [`CacheError::NotFound`] if there is none.
pub fn open_folder(path: &Path) -> Result<Folder> {
    let missing = |reason: &str| CacheError::NotFound {
        path: path.to_path_buf(),
        reason: reason.to_owned(),
    };
    Folder::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing("no such directory"),
        io::ErrorKind::NotADirectory => missing("not a directory"),
        _ => CacheError::io("open", path, error),
    })
}

/// Finds the wanted generation of the cache in `folder`, whose path is `path`, and checks that its files are there.
///
/// # Errors
/// [`CacheError::NotFound`] without a cache; [`CacheError::NoGeneration`] without that generation; without later
/// generations those of [`Manifest::parse`] and [`CacheError::DamagedFile`]; with some,
/// [`CacheError::DamagedGeneration`] naming the defect and the last good one.
pub fn choose(folder: &Folder, path: &Path, wanted: Wanted) -> Result<Chosen> {
    let good = |manifest| Chosen {
        manifest,
        passed_over: None,
    };
    if wanted == Wanted::Salvage {
        return salvage(folder, path);
    }
    let root = read_manifest(folder, path, 0);
    let numbers = match &root {
        Ok(root) if root.format_version < GENERATIONS_FORMAT => Vec::new(),
        Err(CacheError::NotFound { .. } | CacheError::UnsupportedVersion { .. }) => Vec::new(),
        _ => list(path)?,
    };
    let newest = numbers.last().copied().unwrap_or(0);
    let number = match wanted {
        Wanted::Number(number) => number,
        Wanted::Newest | Wanted::LastGood | Wanted::Salvage => newest,
    };
    if number != 0 && !numbers.contains(&number) {
        return Err(missing(folder, path, number, &numbers));
    }
    let found = match number {
        0 => root.and_then(|root| whole(folder, path, root)),
        _ if root.is_err() => root,
        _ => read_manifest(folder, path, number).and_then(|manifest| whole(folder, path, manifest)),
    };
    let fault = match found {
        Ok(manifest) => return Ok(good(manifest)),
        Err(fault) if newest == 0 || matches!(fault, CacheError::Io { .. }) => return Err(fault),
        Err(CacheError::NotFound { .. }) if number < newest => {
            return Err(missing(folder, path, number, &numbers));
        }
        Err(fault) => fault,
    };
    let last_good = last_good(folder, path, number, &numbers);
    match (wanted, last_good) {
        (Wanted::LastGood, Some(manifest)) => Ok(Chosen {
            manifest,
            passed_over: Some(fault.to_string()),
        }),
        (_, last_good) => Err(CacheError::DamagedGeneration {
            path: path.to_path_buf(),
            generation: number,
            fault: Box::new(fault),
            last_good: last_good.map(|manifest| manifest.number()),
        }),
    }
}

/// The newest generation whose manifest can be trusted.
fn salvage(folder: &Folder, path: &Path) -> Result<Chosen> {
    let numbers = list(path)?;
    let all = numbers.into_iter().rev().chain([0]);
    let mut first = None;
    for number in all {
        match read_manifest(folder, path, number) {
            Ok(manifest) if manifest.removed => {}
            Ok(manifest) => {
                return Ok(Chosen {
                    manifest,
                    passed_over: first.map(|fault: CacheError| fault.to_string()),
                });
            }
            Err(fault @ (CacheError::Io { .. } | CacheError::UnsupportedVersion { .. })) => {
                return Err(fault);
            }
            Err(fault) => drop(first.get_or_insert(fault)),
        }
    }
    Err(first.unwrap_or_else(|| CacheError::internal("a cache without any generation")))
}

/// The newest generation before `number` that can be opened.
fn last_good(folder: &Folder, path: &Path, number: u64, numbers: &[u64]) -> Option<Manifest> {
    let others = numbers.iter().rev().copied().chain([0]);
    let mut others = others.filter(|other| *other != number);
    others.find_map(|other| {
        let manifest = read_manifest(folder, path, other).ok()?;
        whole(folder, path, manifest).ok()
    })
}

/// The manifest of one generation, checked but for the files it names. One whose files were removed counts.
///
/// # Errors
/// [`CacheError::NotFound`] if there is none, otherwise as [`Manifest::parse`].
pub fn read_manifest(folder: &Folder, path: &Path, number: u64) -> Result<Manifest> {
    let name = placed(number, names::MANIFEST);
    let file = path.join(&name);
    let text = folder.read(&name, MANIFEST_BYTES_MAX);
    let text = text.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if number > 0 => CacheError::NotFound {
            path: path.to_path_buf(),
            reason: format!("generation {number} has no manifest.json"),
        },
        io::ErrorKind::NotFound => CacheError::NotFound {
            path: path.to_path_buf(),
            reason: "the directory has no manifest.json".to_owned(),
        },
        _ => CacheError::io("read", &file, error),
    })??;
    let manifest = Manifest::parse(&file, &text)?;
    if manifest.number() != number {
        let fault = format!("generation {} in the place of {number}", manifest.number());
        return Err(CacheError::manifest(&file, fault));
    }
    Ok(manifest)
}

/// Numbers of the later generations that have a folder, ascending. Those before the newest may have lost their manifest
/// to a vacuum.
///
/// # Errors
/// [`CacheError::Io`] if they cannot be listed, [`CacheError::DamagedFile`] if there is something else in their place.
pub fn list(path: &Path) -> Result<Vec<u64>> {
    let directory = path.join(names::GENERATIONS);
    let fault = |error| CacheError::io("list directory", &directory, error);
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let expected = "a directory";
            return Err(CacheError::damaged(
                &directory,
                "kind of the folder",
                expected,
                "a file",
            ));
        }
        Err(error) => return Err(fault(error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(fault)?.file_name();
        numbers.extend(name.to_str().and_then(number_of));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A manifest whose files are all there, with their lengths.
fn whole(folder: &Folder, path: &Path, manifest: Manifest) -> Result<Manifest> {
    if manifest.removed {
        return Err(CacheError::NotFound {
            path: path.to_path_buf(),
            reason: format!("generation {} was removed by a vacuum", manifest.number()),
        });
    }
    let mut checked = None;
    for (name, byte_len) in manifest.files() {
        // Folders first: a link in place of one might lead out of the cache.
        let inner = name.rsplit_once('/').map(|(inner, _)| inner.to_owned());
        if inner != checked {
            if let Some(inner) = &inner {
                for (end, _) in inner.match_indices('/').chain([(inner.len(), "")]) {
                    let part = inner.get(..end).unwrap_or(inner);
                    folder.stat(part)?.check_directory(&path.join(part))?;
                }
            }
            checked = inner;
        }
        let found = folder.stat(&name)?;
        match byte_len {
            Some(byte_len) => found.check_len(&path.join(&name), byte_len)?,
            None => found.check_file(&path.join(&name))?,
        }
    }
    if manifest.shards.is_empty() && manifest.number() == 0 {
        let shards = path.join(names::SHARDS);
        folder.stat(names::SHARDS)?.check_directory(&shards)?;
    }
    Ok(manifest)
}

/// The error for a generation that is not there, with those that are.
pub fn missing(folder: &Folder, path: &Path, number: u64, numbers: &[u64]) -> CacheError {
    let all = [0].into_iter().chain(numbers.iter().copied());
    let kept = all.filter(|other| {
        read_manifest(folder, path, *other).is_ok_and(|manifest| !manifest.removed)
    });
    CacheError::NoGeneration {
        path: path.to_path_buf(),
        generation: number,
        kept: kept.collect(),
    }
}
