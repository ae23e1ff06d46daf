//! What can happen to the files of a cache.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::scenario::load;

/// What happens to one file.
#[derive(Clone, Debug, PartialEq)]
pub enum Damage {
    Flip { at: usize, mask: u8 },
    Cut(usize),
    Append(&'static [u8]),
    Remove,
}

/// Files of a cache and their bytes.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

pub fn files(cache: &Path) -> Files {
    let file = |(path, bytes): (PathBuf, Option<Vec<u8>>)| Some((path, bytes?));
    load(cache).into_iter().filter_map(file).collect()
}

/// Every flip with each of `masks`, every cut, appended bytes, and removal.
pub fn every_damage(len: usize, masks: &[u8]) -> impl Iterator<Item = Damage> {
    let flips = (0..len).flat_map(|at| {
        masks
            .iter()
            .map(move |mask| Damage::Flip { at, mask: *mask })
    });
    flips
        .chain((0..len).map(Damage::Cut))
        .chain([&[0][..], b"\n", b" ", &[255; 24]].map(Damage::Append))
        .chain([Damage::Remove])
}

pub fn apply(path: &Path, damage: &Damage, bytes: &[u8]) {
    // In place: to write a file anew makes some file systems write it back at once.
    let open = || OpenOptions::new().write(true).open(path).unwrap();
    match damage {
        Damage::Flip { at, mask } => open()
            .write_all_at(&[bytes[*at] ^ mask], *at as u64)
            .unwrap(),
        Damage::Cut(len) => open().set_len(*len as u64).unwrap(),
        Damage::Append(more) => open().write_all_at(more, bytes.len() as u64).unwrap(),
        Damage::Remove => fs::remove_file(path).unwrap(),
    }
}

pub fn undo(path: &Path, damage: &Damage, bytes: &[u8]) {
    let open = || OpenOptions::new().write(true).open(path).unwrap();
    match damage {
        Damage::Flip { at, .. } => open().write_all_at(&bytes[*at..][..1], *at as u64).unwrap(),
        Damage::Cut(len) => open().write_all_at(&bytes[*len..], *len as u64).unwrap(),
        Damage::Append(_) => open().set_len(bytes.len() as u64).unwrap(),
        Damage::Remove => File::create(path).unwrap().write_all_at(bytes, 0).unwrap(),
    }
}
