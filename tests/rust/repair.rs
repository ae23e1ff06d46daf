//! A repair keeps what can be trusted, says what is lost, and never lets a wrong byte or a deleted sample back in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::dataset::{Dataset, DatasetOptions};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::names::{
    CHECKSUMS, DELETED, DICTIONARY, GENERATIONS, INDEX, MANIFEST, METADATA,
};
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::repair::{Repaired, repair};
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;

use crate::support::caches::{Layout, samples, write_here};
use crate::support::reading::{deliver, options};

const COUNT: usize = 30;

fn cache(folder: &Path, layout: Layout) -> PathBuf {
    write_here(folder, "train", layout, &samples(COUNT, 60))
}

fn repaired(path: &Path) -> Result<Repaired> {
    repair(Arc::new(OsVfs), path, &mut || Ok(()))
}

fn flip(file: &Path, position: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[position] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// The newest generation opens with full validation and holds all samples but `gone`, unchanged.
fn assert_holds(path: &Path, gone: &[u64]) {
    let validated = DatasetOptions {
        validate_cache: true,
        ..options(Io::Auto)
    };
    let dataset = Dataset::open(&[path.to_owned()], validated).unwrap();
    let delivered = deliver(&dataset);
    assert_eq!(delivered.failure, None);
    let all = samples(COUNT, 60);
    let live: Vec<u64> = (0..COUNT as u64).filter(|id| !gone.contains(id)).collect();
    let ids: Vec<u64> = delivered.references.iter().map(|r| r.sample).collect();
    assert_eq!(ids, live);
    for (sample, id) in delivered.samples.iter().zip(live) {
        assert_eq!(*sample, all[id as usize], "sample {id}");
    }
    dataset.samples_metadata().unwrap();
}

#[test]
fn a_sound_cache_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    delete(Arc::new(OsVfs), &path, vec![1]).unwrap();
    let done = repaired(&path).unwrap();
    assert_eq!((done.changed.generation, done.changed.previous), (1, 1));
    assert!(done.damaged.is_empty() && done.lost.is_empty());
    assert_holds(&path, &[1]);
}

#[test]
fn what_is_written_twice_is_restored_without_loss() {
    for layout in [Layout::none(700), Layout::lz4(700), Layout::zstd(700)] {
        for file in [METADATA, CHECKSUMS] {
            for damage in ["flip", "cut", "gone"] {
                let folder = tempfile::tempdir().unwrap();
                let path = cache(folder.path(), layout);
                delete(Arc::new(OsVfs), &path, vec![2, 29]).unwrap();
                let victim = path.join(file);
                match damage {
                    "flip" => flip(&victim, 41),
                    "cut" => fs::write(&victim, &fs::read(&victim).unwrap()[..50]).unwrap(),
                    _ => fs::remove_file(&victim).unwrap(),
                }
                let done = repaired(&path).unwrap();
                assert_eq!(done.lost, [0u64; 0], "{file} {damage}");
                assert_eq!(done.damaged, [fs::canonicalize(&path).unwrap().join(file)]);
                assert_holds(&path, &[2, 29]);
                assert_eq!(repaired(&path).unwrap().changed.generation, 2);
            }
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_in_a_shard_or_the_index_loses_at_most_the_sample_it_belongs_to() {
    for (file, step) in [("shards/000001.bin", 37), (INDEX, 11)] {
        let folder = tempfile::tempdir().unwrap();
        let sound = cache(folder.path(), Layout::none(700));
        let len = fs::metadata(sound.join(file)).unwrap().len() as usize;
        for position in (0..len).step_by(step) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("train");
            crate::support::caches::copy(&sound, &path);
            flip(&path.join(file), position);
            let done = repaired(&path).unwrap();
            assert_eq!(done.lost.len(), 1, "{file} {position}");
            assert_eq!(done.changed.samples, COUNT as u64 - 1);
            assert_holds(&path, &done.lost);
        }
    }
}

#[test]
fn a_shard_that_is_cut_or_gone_loses_its_samples_only() {
    for gone in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = cache(folder.path(), Layout::lz4(700));
        let shard = path.join("shards/000002.bin");
        match gone {
            true => fs::remove_file(&shard).unwrap(),
            false => fs::write(&shard, &fs::read(&shard).unwrap()[..300]).unwrap(),
        }
        let done = repaired(&path).unwrap();
        assert!(
            done.lost.len() > 1 && done.lost.len() < 15,
            "{:?}",
            done.lost
        );
        assert!(done.lost.windows(2).all(|pair| pair[1] == pair[0] + 1));
        assert_holds(&path, &done.lost);
    }
}

#[test]
fn payloads_whose_dictionary_is_lost_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::trained(1 << 20));
    flip(&path.join(DICTIONARY), 9);
    let done = repaired(&path).unwrap();
    // Empty payloads were stored as they are.
    assert!(done.lost.len() < COUNT && !done.lost.is_empty());
    assert_holds(&path, &done.lost);
}

#[test]
fn deletions_outlive_the_manifest_of_their_generation() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    delete(Arc::new(OsVfs), &path, vec![3]).unwrap();
    delete(Arc::new(OsVfs), &path, vec![8, 9]).unwrap();
    fs::write(path.join(GENERATIONS).join("000002").join(MANIFEST), b"{}").unwrap();
    let done = repaired(&path).unwrap();
    assert_eq!(
        (
            done.started_from,
            done.changed.previous,
            done.changed.generation
        ),
        (1, 2, 3)
    );
    assert_eq!(done.lost_generations.len(), 1);
    assert_eq!(done.lost_generations[0].0, 2);
    assert_eq!((done.lost.len(), done.changed.deleted), (0, 2));
    assert_holds(&path, &[3, 8, 9]);
}

#[test]
fn a_damaged_list_of_deleted_ids_lets_none_of_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    delete(Arc::new(OsVfs), &path, vec![3, 20]).unwrap();
    // The checksum behind the ids.
    flip(&path.join(GENERATIONS).join("000001").join(DELETED), 17);
    let done = repaired(&path).unwrap();
    assert_eq!(done.lost, [0u64; 0]);
    assert_holds(&path, &[3, 20]);
}

#[test]
fn where_deleted_samples_might_come_back_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    delete(Arc::new(OsVfs), &path, vec![3, 20]).unwrap();
    let generation = path.join(GENERATIONS).join("000001");
    let (list, manifest) = (generation.join(DELETED), generation.join(MANIFEST));
    let (sound, sound_manifest) = (fs::read(&list).unwrap(), fs::read(&manifest).unwrap());
    let mut other_ids = sound.clone();
    other_ids[0] = 4;
    for damaged in [&sound[..8], &sound[..0], &other_ids[..], &[0; 24]] {
        for manifest_bytes in [&sound_manifest[..], b"{}"] {
            fs::write(&list, damaged).unwrap();
            fs::write(&manifest, manifest_bytes).unwrap();
            let error = repaired(&path).unwrap_err();
            assert!(
                matches!(&error, CacheError::DamagedFile { path, .. } if *path == fs::canonicalize(&list).unwrap()),
                "{error:?}"
            );
        }
    }
    fs::write(&manifest, &sound_manifest).unwrap();
    fs::remove_file(&list).unwrap();
    repaired(&path).unwrap_err();
    assert_eq!(fs::read_dir(path.join(GENERATIONS)).unwrap().count(), 1);

    fs::write(&list, &sound).unwrap();
    assert!(repaired(&path).unwrap().damaged.is_empty());
    assert_holds(&path, &[3, 20]);
}

#[test]
fn a_list_of_deleted_ids_is_made_anew_from_what_a_compaction_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    delete(Arc::new(OsVfs), &path, vec![3, 20]).unwrap();
    let options = CompactOptions {
        min_dead_fraction: 0.0,
        ..CompactOptions::default()
    };
    compact(Arc::new(OsVfs), &path, options, &mut || Ok(())).unwrap();
    delete(Arc::new(OsVfs), &path, vec![7]).unwrap();
    fs::remove_file(path.join(GENERATIONS).join("000001").join(DELETED)).unwrap();
    let done = repaired(&path).unwrap();
    assert_eq!((done.lost.len(), done.changed.deleted), (0, 2));
    assert_holds(&path, &[3, 7, 20]);
}

#[test]
fn a_damaged_root_manifest_is_replaced_where_a_later_generation_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    let root = path.join(MANIFEST);
    let sound = fs::read(&root).unwrap();
    fs::write(&root, &sound[..100]).unwrap();
    let error = repaired(&path).unwrap_err();
    assert!(matches!(error, CacheError::Manifest { .. }), "{error:?}");

    fs::write(&root, &sound).unwrap();
    delete(Arc::new(OsVfs), &path, vec![3]).unwrap();
    fs::write(&root, b"").unwrap();
    let opened = Dataset::open(std::slice::from_ref(&path), options(Io::Auto)).unwrap_err();
    assert!(
        matches!(opened, CacheError::DamagedGeneration { .. }),
        "{opened:?}"
    );
    let done = repaired(&path).unwrap();
    assert_eq!((done.lost.len(), done.changed.generation), (0, 2));
    assert_holds(&path, &[3]);
    let zero = [(path.clone(), Wanted::Number(0))];
    Dataset::open_stoppable(&zero, options(Io::Auto), &mut || Ok(())).unwrap_err();
}

#[test]
fn where_nothing_can_be_kept_nothing_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(700));
    fs::remove_file(path.join(INDEX)).unwrap();
    let error = repaired(&path).unwrap_err();
    assert!(error.to_string().contains("restore this file"), "{error}");
    assert!(
        fs::read_dir(path.join(GENERATIONS))
            .unwrap()
            .next()
            .is_none()
    );
}
