//! Which damage may be left out or replaced, and which is raised under every option.

use std::fs;
use std::path::Path;

use dataset_rt::dataset::{DatasetOptions, Ranks, RowNumbers};
use dataset_rt::error::CacheError;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::names::{INDEX, SHARDS, shard};
use dataset_rt::sampling::order::Mode;
use dataset_rt::types::{Io, OnCorrupt, Verify};

use crate::support::caches::{Forge, Layout, samples, write_here};
use crate::support::damaged::{COUNT, batched, damage, damaged, open, share, single, with};

#[test]
fn by_default_and_for_rows_that_are_asked_for_damage_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &[11]);
    let raising = open(&path, with(Mode::Physical, OnCorrupt::Raise, 2));
    for error in [
        single(&raising, Ranks::SINGLE).unwrap_err(),
        batched(&raising, share(8, 0, 1)).unwrap_err(),
    ] {
        assert!(
            matches!(error, CacheError::DamagedRecord { sample_id: 11, .. }),
            "{error}"
        );
    }
    for on_corrupt in [OnCorrupt::Skip, OnCorrupt::Substitute] {
        let dataset = open(&path, with(Mode::Physical, on_corrupt, 2));
        assert!(dataset.sample(11).is_err());
        let rows = dataset.samples_of(RowNumbers::Unsigned(&[3, 11])).unwrap();
        let whole = dataset.selection(|_| true).unwrap();
        assert!(dataset.gather(rows, &whole, &mut || Ok(())).is_err());
    }
}

/// A cache as published releases wrote them, without record checksums, in two shards of ten samples.
fn unchecked(path: &Path) {
    let payloads: Vec<Vec<u8>> = (0..20u8).map(|n| vec![n; 10]).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut forge = Forge::sound(Algorithm::None, &payloads);
    let half = forge.index[10].offset;
    let (first, second) = forge.shards[0].split_at(half as usize);
    let shards = vec![first.to_vec(), second.to_vec()];
    let entry = forge.manifest.shards[0].clone();
    forge.manifest.shards = (0..2)
        .map(|number| dataset_rt::format::manifest::ShardEntry {
            name: shard(number),
            byte_len: shards[number as usize].len() as u64,
            uncompressed_byte_len: 100,
            ..entry.clone()
        })
        .collect();
    for row in &mut forge.index[10..] {
        (row.shard, row.offset) = (1, row.offset - half);
    }
    forge.shards = shards;
    forge.manifest.record_checksums = None;
    forge.write(path);
}

#[test]
fn without_record_checksums_a_damaged_shard_damages_all_its_samples_and_another_file_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    unchecked(&path);
    damage(&path, &[14]);
    let dataset = open(&path, with(Mode::Physical, OnCorrupt::Substitute, 2));
    let found = single(&dataset, Ranks::SINGLE).unwrap();
    assert_eq!(found.len(), 20);
    let ids: Vec<u64> = found.iter().map(|(id, ..)| *id).collect();
    assert_eq!(ids[..10], (0..10).collect::<Vec<_>>());
    assert!(ids[10..].iter().all(|id| *id < 10), "{ids:?}");
    let dataset = open(&path, with(Mode::Physical, OnCorrupt::Skip, 2));
    let (rows, _) = batched(&dataset, share(20, 0, 1)).unwrap();
    let holds: Vec<bool> = rows.iter().map(|(.., holds)| *holds).collect();
    assert_eq!(holds, (0..20).map(|id| id < 10).collect::<Vec<_>>());

    let index = fs::read(path.join(INDEX)).unwrap();
    let mut other = index.clone();
    other[3 * 24 + 16] ^= 1;
    fs::write(path.join(INDEX), &other).unwrap();
    for on_corrupt in [OnCorrupt::Skip, OnCorrupt::Substitute] {
        let dataset = open(&path, with(Mode::Physical, on_corrupt, 2));
        for error in [
            single(&dataset, Ranks::SINGLE).unwrap_err(),
            batched(&dataset, share(20, 0, 1)).unwrap_err(),
        ] {
            assert!(matches!(error, CacheError::DamagedFile { .. }), "{error}");
            assert!(error.to_string().contains(INDEX), "{error}");
        }
    }
}

#[test]
fn what_is_no_damage_of_a_record_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &[11]);
    for on_corrupt in [OnCorrupt::Skip, OnCorrupt::Substitute] {
        let options = DatasetOptions {
            io: Io::Pread,
            ..with(Mode::Physical, on_corrupt, 2)
        };
        let dataset = open(&path, options);
        let file = path.join(SHARDS).join(shard(1));
        fs::rename(&file, folder.path().join("aside")).unwrap();
        for error in [
            single(&dataset, Ranks::SINGLE).unwrap_err(),
            batched(&dataset, share(8, 0, 1)).unwrap_err(),
        ] {
            assert!(matches!(error, CacheError::DamagedFile { .. }), "{error}");
        }
        fs::rename(folder.path().join("aside"), &file).unwrap();
    }
}

#[test]
fn without_verification_only_what_cannot_be_decoded_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(
        folder.path(),
        "train",
        Layout::lz4(200),
        &samples(COUNT, 30),
    );
    let rows = fs::read(path.join(INDEX)).unwrap();
    let row = IndexRow::from_bytes(&rows[5 * 24..][..24]).unwrap();
    let file = path.join(SHARDS).join(shard(row.shard));
    let mut bytes = fs::read(&file).unwrap();
    bytes[row.offset as usize..][..8].fill(0xff);
    fs::write(&file, bytes).unwrap();
    let options = DatasetOptions {
        verify: Verify::Never,
        ..with(Mode::Physical, OnCorrupt::Skip, 2)
    };
    let dataset = open(&path, options);
    let ids: Vec<u64> = single(&dataset, Ranks::SINGLE)
        .unwrap()
        .iter()
        .map(|(id, ..)| *id)
        .collect();
    assert_eq!(
        ids,
        (0..COUNT as u64).filter(|id| *id != 5).collect::<Vec<_>>()
    );
}
