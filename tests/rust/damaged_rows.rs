//! What the rows of damaged samples hold, what remains where all are damaged, and what is told about them.

use std::path::Path;

use dataset_rt::dataset::{Dataset, Ranks, SampleOptions};
use dataset_rt::error::CacheError;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::{SHARDS, shard};
use dataset_rt::format::payload::{Dtype, FieldSpec, PayloadSchema};
use dataset_rt::limits::SUBSTITUTES_MAX;
use dataset_rt::sampling::order::Mode;
use dataset_rt::types::{OnCorrupt, SampleRef};

use crate::support::caches::{Forge, Layout};
use crate::support::damaged::{
    COUNT, DAMAGED, MODES, batched, damage, damaged, open, share, single, with,
};

/// A cache with a field of fixed shape and one of open shape.
fn typed(path: &Path, count: u8, is_dense: bool) {
    let payloads: Vec<Vec<u8>> = (0..count)
        .map(|n| {
            let dense = [n + 1; 4];
            let ragged = vec![n + 1; 2 * usize::from(n % 3)];
            let extent = u64::from(n % 3).to_le_bytes();
            match is_dense {
                true => dense.to_vec(),
                false => [&extent[..], &dense, &ragged].concat(),
            }
        })
        .collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut forge = Forge::sound(Algorithm::None, &payloads);
    let field = |name: &str, shape: &[Option<u64>]| FieldSpec {
        name: name.to_owned(),
        dtype: Dtype::Uint8,
        shape: shape.to_vec(),
    };
    let mut fields = vec![field("dense", &[Some(2), Some(2)])];
    if !is_dense {
        fields.push(field("ragged", &[None, Some(2)]));
        forge.manifest.format_version = 4;
    }
    forge.manifest.payload = Some(PayloadSchema::new(fields).unwrap());
    forge.write(path);
}

#[test]
fn rows_that_are_left_out_hold_zeros_or_nothing() {
    for is_dense in [true, false] {
        for damaged in [vec![], vec![0, 4], vec![5], (0..6).collect()] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("cache");
            typed(&path, 6, is_dense);
            damage(&path, &damaged);
            let dataset = open(&path, with(Mode::Physical, OnCorrupt::Skip, 2));
            let whole = dataset.selection(|_| true).unwrap();
            let stream = dataset.batches(share(6, 0, 1), whole).unwrap();
            let (_, batch) = stream
                .lock()
                .unwrap()
                .next(&mut || Ok(()))
                .unwrap()
                .unwrap();
            let left_out: Vec<usize> = damaged.iter().map(|id| *id as usize).collect();
            assert_eq!(batch.left_out, left_out);
            let holds = |n: u8| !damaged.contains(&u64::from(n));
            let dense = (0..6).flat_map(|n| [if holds(n) { n + 1 } else { 0 }; 4]);
            assert_eq!(*batch.columns[0].values, dense.collect::<Vec<u8>>());
            assert_eq!(batch.columns[0].extent.offsets, None);
            if !is_dense {
                let extents = |n: u8| if holds(n) { u64::from(n % 3) } else { 0 };
                let ragged = (0..6).flat_map(|n| vec![n + 1; 2 * extents(n) as usize]);
                let column = &batch.columns[1];
                assert_eq!(*column.values, ragged.collect::<Vec<u8>>());
                assert_eq!(
                    column.extent.open_extents,
                    (0..6).map(extents).collect::<Vec<_>>()
                );
                let ends = (0..6).scan(0, |end, n| {
                    *end += 2 * extents(n);
                    Some(*end)
                });
                let offsets: Vec<u64> = [0].into_iter().chain(ends).collect();
                assert_eq!(column.extent.offsets, Some(offsets));
            }
            let ids: Vec<u64> = batch.samples.iter().map(|sample| sample.sample).collect();
            assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        }
    }
}

#[test]
fn where_all_are_damaged_substitution_gives_up_and_skipping_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<u64> = (0..COUNT as u64).collect();
    let path = damaged(folder.path(), Layout::none(200), &all);
    for mode in MODES {
        let dataset = open(&path, with(mode, OnCorrupt::Substitute, 2));
        let single = single(&dataset, Ranks::SINGLE).unwrap_err();
        let batches = batched(&dataset, share(8, 0, 1)).unwrap_err();
        for error in [single, batches] {
            let CacheError::NoSubstitute {
                attempts: SUBSTITUTES_MAX,
                fault,
                ..
            } = &error
            else {
                panic!("{error:?}")
            };
            assert!(matches!(**fault, CacheError::DamagedRecord { .. }));
        }
        let dataset = open(&path, with(mode, OnCorrupt::Skip, 2));
        assert_eq!(self::single(&dataset, Ranks::SINGLE).unwrap(), []);
        let (rows, steps) = batched(&dataset, share(8, 0, 1)).unwrap();
        assert_eq!((rows.len(), steps), (COUNT, COUNT / 8));
        assert!(rows.iter().all(|(.., holds)| !holds));
    }
}

#[test]
fn what_was_met_is_listed_once_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &DAMAGED);
    for on_corrupt in [OnCorrupt::Skip, OnCorrupt::Substitute] {
        let dataset = open(&path, with(Mode::Physical, on_corrupt, 2));
        let ids = |dataset: &Dataset| {
            use arrow_array::cast::AsArray;
            use arrow_array::types::UInt64Type;
            let (_, table) = dataset.corrupt_samples().unwrap();
            let ids = table.column_by_name("sample_id").unwrap();
            ids.as_primitive::<UInt64Type>().values().to_vec()
        };
        assert_eq!(ids(&dataset), [0u64; 0]);
        for _ in 0..2 {
            single(&dataset, Ranks::SINGLE).unwrap();
            batched(&dataset, share(8, 0, 1)).unwrap();
            assert_eq!(ids(&dataset), DAMAGED);
        }
        let stream = dataset
            .samples(SampleOptions::plain(Ranks::SINGLE))
            .unwrap();
        let corrupt = std::sync::Arc::clone(stream.lock().unwrap().corrupt());
        let first = corrupt.list()[0].clone();
        assert_eq!(
            first.sample,
            SampleRef {
                cache: 0,
                sample: 0
            }
        );
        assert_eq!(first.path, path.join(SHARDS).join(shard(0)));
        assert!(
            first
                .reason
                .starts_with("checksum of the record: expected crc32c")
        );
        assert_eq!(corrupt.take_news(), Some(first));
        assert_eq!(corrupt.take_news(), None);
    }
}
