//! The manifest of the generation that is to be checked, and what is wrong with it and with that of the root.

use std::path::Path;

use super::findings::{Findings, Kind, Place};
use crate::error::{CacheError, Result};
use crate::format::generation::placed;
use crate::format::manifest::Manifest;
use crate::format::names;
use crate::store::folder::Folder;
use crate::store::generations::{self, GENERATIONS_FORMAT, Wanted};

/// Number of the wanted generation of the cache in `folder`, and its manifest, if that can be trusted; what is wrong is
/// noted.
///
/// # Errors
/// [`CacheError::NotFound`] without a cache, [`CacheError::NoGeneration`] without that generation.
pub fn find(
    folder: &Folder,
    path: &Path,
    wanted: Wanted,
    findings: &Findings,
) -> Result<(u64, Option<Manifest>)> {
    let root = match generations::read_manifest(folder, path, 0) {
        Ok(root) => Some(root),
        Err(error @ CacheError::NotFound { .. }) => return Err(error),
        Err(error) => {
            note(path, 0, error, findings);
            None
        }
    };
    // A root that cannot be read may have had later generations.
    let has_later = root
        .as_ref()
        .is_none_or(|root| root.format_version >= GENERATIONS_FORMAT);
    let numbers = match has_later {
        true => generations::list(path).unwrap_or_else(|error| {
            findings.add(Place::Manifest(1), Kind::Generation, error);
            Vec::new()
        }),
        false => Vec::new(),
    };
    let newest = numbers.last().copied().unwrap_or(0);
    let number = match wanted {
        Wanted::Number(number) => number,
        _ => newest,
    };
    if number != 0 && !numbers.contains(&number) {
        return Err(generations::missing(folder, path, number, &numbers));
    }
    let found = match (number, root) {
        (0, Some(root)) => Ok(root),
        (0, None) => return Ok((0, None)),
        _ => generations::read_manifest(folder, path, number),
    };
    match found {
        Ok(manifest) if manifest.removed && number < newest => {
            Err(generations::missing(folder, path, number, &numbers))
        }
        Ok(manifest) if manifest.removed => {
            let file = path.join(placed(number, names::MANIFEST));
            let fault = "generation that a vacuum gave up, and nothing newer";
            let error = CacheError::manifest(&file, fault);
            findings.add(Place::Manifest(number), Kind::Generation, error);
            Ok((number, None))
        }
        Ok(manifest) => Ok((number, Some(manifest))),
        Err(CacheError::NotFound { .. }) if number < newest => {
            Err(generations::missing(folder, path, number, &numbers))
        }
        Err(error) => {
            note(path, number, error, findings);
            Ok((number, None))
        }
    }
}

/// Notes what is wrong with the manifest of generation `number`.
fn note(path: &Path, number: u64, error: CacheError, findings: &Findings) {
    let file = path.join(placed(number, names::MANIFEST));
    let (kind, error) = match error {
        CacheError::NotFound { .. } => {
            let error = CacheError::damaged(&file, "file of the cache", "a file", "nothing");
            (Kind::MissingFile, error)
        }
        CacheError::Limit { .. } => {
            let error = CacheError::manifest(&file, error.to_string());
            (Kind::Manifest, error)
        }
        CacheError::Io { .. } => (Kind::Unreadable, error),
        _ => (Kind::Manifest, error),
    };
    findings.add(Place::Manifest(number), kind, error);
}
