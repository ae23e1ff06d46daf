//! Vacuum: files that no generation needs any more are removed.
//!
//! A file goes only if the manifest of a generation that is given up names it and that of no kept one does; nothing is
//! removed for not being known. A generation is given up by marking its manifest, durably, before any of its files goes:
//! the mark tells readers, and lets an interrupted vacuum be finished.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::lease;
use crate::error::{CacheError, Result};
use crate::format::generation::{Operation, folder, placed};
use crate::format::manifest::Manifest;
use crate::format::names::{
    CHECKSUMS, DELETED, DICTIONARY, GENERATIONS, INDEX, MANIFEST, METADATA, SHARDS,
};
use crate::store::change::{Change, now_unix};
use crate::store::generations::{self, Wanted};
use crate::store::vfs::Vfs;

/// What a vacuum did, or would do.
#[derive(Clone, Debug)]
pub struct Vacuumed {
    /// The cache directory, resolved.
    pub path: PathBuf,
    /// Generations that can still be opened, in ascending order, and why each is kept.
    pub kept: Vec<(u64, &'static str)>,
    /// Generations that are given up.
    pub removed: Vec<u64>,
    /// Files that are removed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Which generations are kept, beside the newest and leased ones, and whether anything is done.
#[derive(Clone, Copy, Debug)]
pub struct VacuumOptions {
    /// Those that another one replaced less than this ago.
    pub grace: Duration,
    /// Whether the one before the newest is kept, however old it is.
    pub keep_previous: bool,
    /// Whether nothing is removed.
    pub dry_run: bool,
}

/// Removes what only generations need that are not kept.
///
/// # Errors
/// As [`Change::begin`]; that of any manifest, unless a repair has replaced its generation, or lease that cannot be read:
/// nothing is removed then; [`CacheError::Io`]
/// for a file that cannot be removed: the next vacuum goes on from there.
pub fn vacuum(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    options: VacuumOptions,
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<Vacuumed> {
    let change = Change::begin(Arc::clone(&vfs), path, Wanted::Newest)?;
    let path = change.path();
    let (manifests, replaced) = read_all(path)?;
    let leases = lease::list(&*vfs, path)?;
    let leased = leases.iter().filter(|(_, lease)| !lease.is_expired());
    let leased: BTreeSet<u64> = leased.map(|(_, lease)| lease.generation).collect();
    let kept = keep(&manifests, &leased, options);

    let is_kept = |number: &u64| kept.iter().any(|(other, _)| other == number);
    let mut needed = BTreeSet::new();
    let mut condemned = BTreeMap::new();
    for (number, manifest) in &manifests {
        let names = manifest.files().into_iter().map(|(name, _)| name);
        match is_kept(number) {
            true => needed.extend(names),
            false => drop(condemned.insert(*number, names.collect::<Vec<_>>())),
        }
    }
    // Whoever opened one before it was damaged has it as long as any generation before it is kept.
    let oldest_kept = kept.iter().map(|(number, _)| *number).min();
    for number in replaced
        .into_iter()
        .filter(|number| Some(*number) < oldest_kept)
    {
        condemned.insert(number, own_files(&*vfs, path, number)?);
    }
    if needed.is_empty() {
        return Err(CacheError::internal("a vacuum that would keep no file"));
    }
    let named: BTreeSet<&String> = condemned.values().flatten().collect();
    let mut files = Vec::new();
    let mut bytes = 0u64;
    for name in named.into_iter().filter(|name| !needed.contains(*name)) {
        let file = path.join(name);
        match std::fs::symlink_metadata(&file) {
            Ok(found) => bytes = bytes.saturating_add(found.len()),
            // An earlier vacuum came as far as this.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(CacheError::io("look at", &file, error)),
        }
        files.push(file);
    }
    let given_up = condemned.keys().filter_map(|number| manifests.get(number));
    let given_up: Vec<&Manifest> = given_up.collect();
    let vacuumed = Vacuumed {
        path: path.to_path_buf(),
        removed: condemned.keys().copied().collect(),
        kept,
        files: files.len() as u64,
        bytes,
    };
    if options.dry_run {
        return Ok(vacuumed);
    }
    interrupt()?;
    for manifest in given_up.iter().filter(|manifest| !manifest.removed) {
        let marked = Manifest {
            removed: true,
            ..(*manifest).clone()
        };
        change.replace_manifest(&marked)?;
    }
    remove(&*vfs, &files, interrupt)?;
    for number in condemned.keys().filter(|number| **number > 0) {
        let manifest = path.join(placed(*number, MANIFEST));
        remove(&*vfs, &[manifest], &mut || Ok(()))?;
    }
    remove_empty(&*vfs, path)?;
    for (file, _) in leases.iter().filter(|(_, lease)| lease.is_expired()) {
        lease::release(&*vfs, file)?;
    }
    Ok(vacuumed)
}

/// The manifests of all generations that have one that can be read, and the numbers of those that a repair replaced since
/// theirs cannot.
fn read_all(path: &Path) -> Result<(BTreeMap<u64, Manifest>, Vec<u64>)> {
    let folder = generations::open_folder(path)?;
    let numbers = generations::list(path)?;
    let mut manifests = BTreeMap::new();
    let mut unreadable = Vec::new();
    for number in [0].into_iter().chain(numbers) {
        match generations::read_manifest(&folder, path, number) {
            Ok(manifest) => drop(manifests.insert(number, manifest)),
            // An earlier vacuum took its manifest last.
            Err(CacheError::NotFound { .. }) if number > 0 => {}
            Err(error @ (CacheError::Manifest { .. } | CacheError::DamagedFile { .. }))
                if number > 0 =>
            {
                unreadable.push((number, error));
            }
            Err(error) => return Err(error),
        }
    }
    let repairs = manifests.values().filter_map(|manifest| {
        let own = manifest.generation.as_ref()?;
        (own.operation == Operation::Repair).then_some(own.number)
    });
    let last_repair = repairs.max();
    let mut replaced = Vec::new();
    for (number, error) in unreadable {
        match Some(number) < last_repair {
            true => replaced.push(number),
            false => return Err(error),
        }
    }
    Ok((manifests, replaced))
}

/// What lies in the folder of generation `number` under names that generations use, but for its manifest.
fn own_files(vfs: &dyn Vfs, path: &Path, number: u64) -> Result<Vec<String>> {
    let names = [INDEX, CHECKSUMS, METADATA, DICTIONARY, DELETED].map(str::to_owned);
    let mut names = Vec::from(names);
    let shards = path.join(placed(number, SHARDS));
    if vfs
        .exists(&shards)
        .map_err(|error| CacheError::io("look for", &shards, error))?
    {
        let listed = vfs.list(&shards);
        let listed = listed.map_err(|error| CacheError::io("list directory", &shards, error))?;
        let listed = listed.iter().filter_map(|name| name.to_str());
        names.extend(listed.map(|name| format!("{SHARDS}/{name}")));
    }
    Ok(names.iter().map(|name| placed(number, name)).collect())
}

/// The generations to be kept, and why.
fn keep(
    manifests: &BTreeMap<u64, Manifest>,
    leased: &BTreeSet<u64>,
    options: VacuumOptions,
) -> Vec<(u64, &'static str)> {
    let oldest_superseded = now_unix().saturating_sub(options.grace.as_secs());
    let usable = manifests.values().filter(|manifest| !manifest.removed);
    let mut kept = Vec::new();
    let mut superseded_unix = None;
    for (age, manifest) in usable.rev().enumerate() {
        let number = manifest.number();
        let reason = match age {
            0 => Some("newest"),
            1 if options.keep_previous => Some("previous"),
            _ if leased.contains(&number) => Some("leased"),
            _ if superseded_unix.is_none_or(|since| since > oldest_superseded) => Some("grace"),
            _ => None,
        };
        kept.extend(reason.map(|reason| (number, reason)));
        superseded_unix = manifest.generation.as_ref().map(|own| own.created_unix);
    }
    kept.reverse();
    kept
}

/// Removes files, durably; those that are gone already are no error.
fn remove(
    vfs: &dyn Vfs,
    files: &[PathBuf],
    interrupt: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut folders = BTreeSet::new();
    for file in files {
        interrupt()?;
        match vfs.remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(CacheError::io("remove", file, error));
            }
            _ => folders.extend(file.parent()),
        }
    }
    for folder in folders {
        match vfs.sync_dir(folder) {
            // It went with its last file in an earlier vacuum.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(CacheError::io("sync directory", folder, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the folders that the vacuum left empty: those of shards, then those of generations.
fn remove_empty(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    let numbers = generations::list(path)?;
    let own = numbers
        .iter()
        .map(|number| path.join(GENERATIONS).join(folder(*number)));
    let own: Vec<PathBuf> = own.collect();
    let shards = own.iter().map(|folder| folder.join(SHARDS));
    let shards: Vec<PathBuf> = shards.chain([path.join(SHARDS)]).collect();
    for folder in shards.iter().chain(&own) {
        let fault = |action| move |error| CacheError::io(action, folder, error);
        if !vfs.exists(folder).map_err(fault("look for"))? {
            continue;
        }
        if vfs
            .list(folder)
            .map_err(fault("list directory"))?
            .is_empty()
        {
            vfs.remove_dir_all(folder)
                .map_err(fault("remove directory"))?;
        }
    }
    Ok(())
}
