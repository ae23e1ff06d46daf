//! Pipes, devices, directories and links in place of the files of a cache: refused, without a hang and without leaving
//! the cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dataset_rt::dataset::Dataset;
use dataset_rt::error::CacheError;
use dataset_rt::format::names::{CHECKSUMS, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::types::Io;

use crate::support::caches::{Layout, copy, samples, write_here};
use crate::support::forgeries::ENGINES;
use crate::support::reading::{Reading, open_error, options, returns, typed};

/// A small cache of several shards and the files it consists of.
fn sound_cache(folder: &Path) -> (PathBuf, Vec<String>) {
    let cache = write_here(folder, "train", Layout::none(150), &samples(5, 9));
    let files = [MANIFEST, METADATA, INDEX, CHECKSUMS].map(str::to_owned);
    let shards = [0, 1].map(|id| format!("{SHARDS}/{}", shard(id)));
    (cache, files.into_iter().chain(shards).collect())
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    type Place = fn(&Path);
    let places: [(&str, Place); 5] = [
        ("a pipe", |path| make_pipe(path)),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("an endless device", |path| {
            symlink("/dev/zero", path).unwrap()
        }),
        ("a link to itself", |path| symlink(path, path).unwrap()),
        ("a link to nothing", |path| {
            symlink("/nonexistent", path).unwrap()
        }),
    ];
    for file in &files {
        for (what, place) in places {
            let copied = folder.path().join("copy");
            copy(&cache, &copied);
            fs::remove_file(copied.join(file)).unwrap();
            place(&copied.join(file));
            for io in ENGINES {
                let path = copied.clone();
                let error = returns(&format!("{file} is {what}"), move || open_error(&path, io));
                assert!(error.is_some(), "{file} is {what}");
            }
            fs::remove_dir_all(copied).unwrap();
        }
    }
}

#[test]
fn a_pipe_put_in_place_of_a_file_after_opening_does_not_hang_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    for file in files.iter().filter(|file| *file != MANIFEST) {
        for io in ENGINES {
            let copied = folder.path().join("copy");
            copy(&cache, &copied);
            let dataset = Dataset::open(std::slice::from_ref(&copied), options(io)).unwrap();
            fs::remove_file(copied.join(file)).unwrap();
            make_pipe(&copied.join(file));
            let errors = returns(&format!("{file} is a pipe"), move || {
                let sample = (0..5).find_map(|row| dataset.sample(row).err());
                [sample, dataset.samples_metadata().err()].map(|error| error.as_ref().map(typed))
            });
            assert!(
                errors
                    .iter()
                    .flatten()
                    .any(|error| error.contains("regular file")),
                "{errors:?}"
            );
            fs::remove_dir_all(copied).unwrap();
        }
    }
}

#[test]
fn no_link_leads_out_of_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    let outside = folder.path().join("outside");
    copy(&cache, &outside);
    for name in files.iter().map(String::as_str).chain([SHARDS]) {
        let copied = folder.path().join("copy");
        copy(&cache, &copied);
        if name == SHARDS {
            fs::remove_dir_all(copied.join(name)).unwrap();
        } else {
            fs::remove_file(copied.join(name)).unwrap();
        }
        symlink(outside.join(name), copied.join(name)).unwrap();
        for io in ENGINES {
            let error = open_error(&copied, io).unwrap_or_else(|| panic!("{name} is a link"));
            assert!(error.contains("symbolic link"), "{name}: {error}");
        }
        fs::remove_dir_all(copied).unwrap();
    }
    // The cache itself may be reached over a link.
    let link = folder.path().join("link");
    symlink(&cache, &link).unwrap();
    assert!(Reading::of(std::slice::from_ref(&link), options(Io::Auto)).is_sound());
    let twice = Dataset::open(&[cache, link], options(Io::Auto))
        .err()
        .unwrap();
    assert!(
        matches!(
            twice,
            CacheError::DuplicateCache {
                first: 0,
                second: 1,
                ..
            }
        ),
        "{twice}"
    );
}

fn make_pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
