//! Later generations as readers see them: which one is opened, what is in it, and what is said when it cannot be.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use dataset_rt::dataset::{Dataset, DatasetOptions, RowNumbers, SavedState};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{DELETED, GENERATIONS, MANIFEST};
use dataset_rt::maintain::Changed;
use dataset_rt::maintain::delete::delete;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;

use crate::support::caches::{Layout, samples, write_here};
use crate::support::naive::cells;
use crate::support::reading::{deliver, options};

fn cache(folder: &Path, count: usize) -> PathBuf {
    write_here(folder, "train", Layout::none(1000), &samples(count, 40))
}

pub fn without(path: &Path, ids: &[u64]) -> Changed {
    delete(Arc::new(OsVfs), path, ids.to_vec()).unwrap()
}

pub fn open(path: &Path, wanted: Wanted) -> Result<Dataset> {
    open_with(path, wanted, options(Io::Auto))
}

pub fn open_with(path: &Path, wanted: Wanted, options: DatasetOptions) -> Result<Dataset> {
    Dataset::open_stoppable(&[(path.to_owned(), wanted)], options, &mut || Ok(()))
}

/// Ids and samples that a dataset delivers are those of `samples` without `gone`, however they are asked for.
pub fn assert_holds(dataset: &Dataset, count: usize, gone: &[u64]) {
    let all = samples(count, 40);
    let live: Vec<u64> = (0..count as u64).filter(|id| !gone.contains(id)).collect();
    let delivered = deliver(dataset);
    assert_eq!(delivered.failure, None);
    let ids: Vec<u64> = delivered.references.iter().map(|r| r.sample).collect();
    assert_eq!(ids, live);
    let expected: Vec<_> = live.iter().map(|id| all[*id as usize].clone()).collect();
    assert_eq!(delivered.samples, expected);
    assert_eq!(dataset.row_count().unwrap(), live.len() as u64);

    let (_, table) = dataset.samples_metadata().unwrap();
    let table = arrow_select::concat::concat_batches(&table[0].schema(), &table).unwrap();
    let column = table.column_by_name("sample_id").unwrap();
    assert_eq!(
        column.as_primitive::<UInt64Type>().values(),
        live.as_slice()
    );
    let column = table.column_by_name("id").unwrap();
    let numbers = column.as_primitive::<Int64Type>().values().iter();
    assert!(
        numbers
            .map(|number| (number + 2) as u64)
            .eq(live.iter().copied())
    );

    let backwards: Vec<u64> = (0..live.len() as u64).rev().collect();
    let references = dataset
        .samples_of(RowNumbers::Unsigned(&backwards))
        .unwrap();
    let whole = dataset.selection(|_| true).unwrap();
    let batch = dataset.gather(references, &whole, &mut || Ok(())).unwrap();
    let values = &batch.columns[0].values;
    let offsets = batch.columns[0].extent.offsets.as_ref().unwrap();
    for (place, id) in live.iter().rev().enumerate() {
        let payload = &values[offsets[place] as usize..offsets[place + 1] as usize];
        assert_eq!(payload, all[*id as usize].0, "sample {id}");
    }
    let rows = live.iter().rev().map(|id| all[*id as usize].1.clone());
    assert!(cells(&batch.metadata().unwrap()).into_iter().eq(rows));
}

#[test]
fn deleted_samples_are_gone_at_once_and_the_others_keep_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 50);
    let before = open(&path, Wanted::Newest).unwrap();
    let first = without(&path, &[7, 3, 7, 49]);
    assert_eq!((first.generation, first.previous), (1, 0));
    assert_eq!((first.samples, first.deleted), (47, 3));
    let second = without(&path, &[0, 3, 8, 48]);
    assert_eq!((second.generation, second.previous), (2, 1));
    assert_eq!((second.samples, second.deleted), (44, 3));
    let again = without(&path, &[0, 49]);
    assert_eq!((again.generation, again.deleted), (2, 0));

    assert_holds(&before, 50, &[]);
    assert_holds(&open(&path, Wanted::Number(0)).unwrap(), 50, &[]);
    assert_holds(&open(&path, Wanted::Number(1)).unwrap(), 50, &[3, 7, 49]);
    let gone = [0, 3, 7, 8, 48, 49];
    for io in [Io::Mmap, Io::Pread] {
        assert_holds(
            &open_with(&path, Wanted::Newest, options(io)).unwrap(),
            50,
            &gone,
        );
    }
    let validated = DatasetOptions {
        validate_cache: true,
        ..options(Io::Auto)
    };
    open_with(&path, Wanted::Newest, validated).unwrap();
    let beyond = delete(Arc::new(OsVfs), &path, vec![50]).unwrap_err();
    assert!(matches!(
        beyond,
        CacheError::NoSample {
            sample_id: 50,
            sample_ids: 50,
            ..
        }
    ));
}

#[test]
fn a_cache_can_lose_every_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 3);
    assert_eq!(without(&path, &[0, 1, 2]).samples, 0);
    let empty = open(&path, Wanted::Newest).unwrap();
    assert_eq!(empty.row_count().unwrap(), 0);
    assert_eq!(deliver(&empty).samples, []);
}

#[test]
fn a_deletion_writes_the_ids_and_a_manifest_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 50);
    without(&path, &[1, 2]);
    let generation = path.join(GENERATIONS).join("000001");
    let mut names: Vec<_> = fs::read_dir(&generation)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [DELETED, MANIFEST]);
    assert_eq!(fs::metadata(generation.join(DELETED)).unwrap().len(), 24);
    // Releases before 1.0 would give out what was deleted: they refuse format 4 by name.
    let root = Manifest::parse(&path, &fs::read(path.join(MANIFEST)).unwrap()).unwrap();
    assert_eq!((root.format_version, root.sample_count), (4, 50));
}

#[test]
fn a_damaged_newest_generation_is_named_with_the_last_good_one() {
    for (file, damage) in [
        (MANIFEST, "cut"),
        (MANIFEST, "gone"),
        (DELETED, "gone"),
        (DELETED, "cut"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = cache(folder.path(), 9);
        without(&path, &[1]);
        without(&path, &[2]);
        let victim = path.join(GENERATIONS).join("000002").join(file);
        match damage {
            "gone" => fs::remove_file(&victim).unwrap(),
            _ => fs::write(&victim, []).unwrap(),
        }
        let error = open(&path, Wanted::Newest).unwrap_err();
        let CacheError::DamagedGeneration {
            generation: 2,
            last_good: Some(1),
            ..
        } = &error
        else {
            panic!("{file} {damage}: {error:?}")
        };
        assert!(error.to_string().contains("dataset-rt repair"), "{error}");
        let fallen = open(&path, Wanted::LastGood).unwrap();
        assert_holds(&fallen, 9, &[1]);
        assert!(fallen.generations().unwrap()[0].1.is_some());
        assert_holds(&open(&path, Wanted::Number(1)).unwrap(), 9, &[1]);
        assert!(delete(Arc::new(OsVfs), &path, vec![3]).is_err());
    }
}

#[test]
fn a_generation_that_is_not_there_is_refused_with_those_that_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 9);
    let error = open(&path, Wanted::Number(1)).unwrap_err();
    assert!(
        matches!(&error, CacheError::NoGeneration { kept, .. } if kept == &[0]),
        "{error:?}"
    );
    without(&path, &[1]);
    let error = open(&path, Wanted::Number(7)).unwrap_err();
    assert!(
        matches!(&error, CacheError::NoGeneration { kept, .. } if kept == &[0, 1]),
        "{error:?}"
    );
}

#[test]
fn flipped_deleted_ids_are_noticed_before_any_sample_is_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 9);
    without(&path, &[1, 4]);
    let file = path.join(GENERATIONS).join("000001").join(DELETED);
    let sound = fs::read(&file).unwrap();
    for position in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[position] ^= 1;
        fs::write(&file, &flipped).unwrap();
        let delivered = deliver(&open(&path, Wanted::Newest).unwrap());
        assert_eq!(delivered.samples, []);
        assert!(delivered.failure.unwrap().contains(DELETED));
    }
}

#[test]
fn a_state_of_an_earlier_generation_is_refused_with_the_ids_that_went_since() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 20);
    without(&path, &[5]);
    let earlier = open(&path, Wanted::Newest).unwrap();
    let saved = earlier.saved_state().unwrap();
    let text = serde_json::to_string(&saved).unwrap();
    without(&path, &[6, 7]);
    let saved = SavedState::parse(&text).unwrap();
    let error = open(&path, Wanted::Newest)
        .unwrap()
        .load_state(&saved, &[])
        .unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("was in generation 1 and is in 2, without the samples 6, 7;"),
        "{told}"
    );
    open(&path, Wanted::Number(1))
        .unwrap()
        .load_state(&saved, &[])
        .unwrap();
}

#[test]
fn one_maintainer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), 9);
    let held = CacheLock::try_acquire(&fs::canonicalize(folder.path()).unwrap(), "train").unwrap();
    let error = delete(Arc::new(OsVfs), &path, vec![1]).unwrap_err();
    assert!(matches!(error, CacheError::Locked { .. }), "{error:?}");
    drop(held);
    without(&path, &[1]);
    assert!(!folder.path().join(".train.lock").exists());
}
