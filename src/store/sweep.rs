//! Remains of writers and maintainers that died: recognised by their names, removed under the lock of their cache.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

use super::lock::CacheLock;
use super::vfs::Vfs;
use crate::error::{CacheError, Result};
use crate::format::names;

/// What staging directories of generations are called by, and a manifest that is to replace another.
pub(super) const GENERATION_STEM: &str = "generation";
pub(super) const MANIFEST_STEM: &str = "manifest";
/// What leases are called by until they are granted.
pub(super) const LEASE_STEM: &str = "lease";

/// Removes what dead writers and maintainers of `base/name` left, and returns the paths.
///
/// The lock proves that they are dead; one that is not exclusive proves nothing, and nothing is removed. Lists all of
/// `base`, so [`Staging::begin`] calls it only when the lock [has remains](CacheLock::has_remains), which this settles.
pub fn sweep_stale(
    vfs: &dyn Vfs,
    base: &Path,
    name: &str,
    lock: &CacheLock,
) -> Result<Vec<PathBuf>> {
    if !lock.is_exclusive() || !lock.guards(base, name) {
        return Ok(Vec::new());
    }
    let mut swept = sweep_directory(vfs, base, name)?;
    let cache = base.join(name);
    for (directory, stem) in [
        (cache.clone(), MANIFEST_STEM),
        (cache.join(names::GENERATIONS), GENERATION_STEM),
        (
            cache.join(names::GENERATIONS).join(names::LEASES),
            LEASE_STEM,
        ),
    ] {
        let is_there = vfs
            .exists(&directory)
            .map_err(|error| CacheError::io("look for", &directory, error))?;
        if is_there {
            swept.extend(sweep_directory(vfs, &directory, stem)?);
        }
    }
    lock.set_remains(false);
    Ok(swept)
}

/// Removes entries of `base` that were staged under `stem`.
fn sweep_directory(vfs: &dyn Vfs, base: &Path, stem: &str) -> Result<Vec<PathBuf>> {
    let (staged, dead) = (format!(".{stem}.tmp-"), format!(".{stem}.dead-"));
    let names = vfs
        .list(base)
        .map_err(|error| CacheError::io("list directory", base, error))?;
    let mut swept = Vec::new();
    for entry in names.iter().filter_map(|entry| entry.to_str()) {
        let path = base.join(entry);
        let remove = if is_ours(entry, &dead) {
            path.clone()
        } else if is_ours(entry, &staged) {
            // Renamed first: should a network file system ever grant its lock twice, a live writer then fails cleanly
            // at its next operation and cannot publish a directory that is half removed.
            let aside = base.join(format!("{dead}{}", unique()));
            vfs.rename_noreplace(&path, &aside)
                .map_err(|error| CacheError::io("set aside stale directory", &path, error))?;
            aside
        } else {
            continue;
        };
        let removed = match stem {
            MANIFEST_STEM | LEASE_STEM => vfs.remove_file(&remove),
            _ => vfs.remove_dir_all(&remove),
        };
        removed.map_err(|error| CacheError::io("remove stale directory", &remove, error))?;
        swept.push(path);
    }
    Ok(swept)
}

/// Whether `entry` is `prefix` followed by what [`unique`] gives; the cache `a` must not sweep for a cache `a.tmp-x`.
fn is_ours(entry: &str, prefix: &str) -> bool {
    entry
        .strip_prefix(prefix)
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(pid, random)| {
            !pid.is_empty()
                && pid.bytes().all(|byte| byte.is_ascii_digit())
                && random.len() == 16
                && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

/// `<pid>-<16 hexadecimal digits>`, no two alike.
pub(super) fn unique() -> String {
    // The standard library seeds hash maps from the operating system and offers no other random number.
    let random = RandomState::new().hash_one(std::process::id());
    format!("{}-{random:016x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_writer_of_this_cache_makes_are_swept() {
        let real = format!(".c.tmp-{}", unique());
        for (entry, expected) in [
            (real.as_str(), true),
            (".c.tmp-1-0123456789abcdef", true),
            // Stages of caches called `c.tmp-1` and `c.tmp-x`, and things people make.
            (".c.tmp-1.tmp-1-0123456789abcdef", false),
            (".c.tmp-x-0123456789abcdef", false),
            (".c.tmp-1-0123456789abcde", false),
            (".c.tmp--0123456789abcdef", false),
            (".c.tmp-1-0123456789abcdefa", false),
            (".c.tmp-1-0123456789abcdeg", false),
            (".c.tmp-", false),
            ("c.tmp-1-0123456789abcdef", false),
            (".d.tmp-1-0123456789abcdef", false),
        ] {
            assert_eq!(is_ours(entry, ".c.tmp-"), expected, "{entry}");
        }
        assert_ne!(unique(), unique());
    }
}
