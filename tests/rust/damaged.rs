//! Damaged samples while reading: raised, left out, or replaced by the same others whoever reads them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::dataset::{
    BatchOptions, Dataset, DatasetOptions, Ranks, RowNumbers, SampleOptions, Share,
};
use dataset_rt::error::CacheError;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::names::{INDEX, SHARDS, shard};
use dataset_rt::format::payload::{Dtype, FieldSpec, PayloadSchema};
use dataset_rt::limits::SUBSTITUTES_MAX;
use dataset_rt::reader::Selection;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::sampling::position::Remainder;
use dataset_rt::types::{Io, OnCorrupt, SampleRef, Verify};

use crate::support::caches::{Forge, Layout, samples, write_here};
use crate::support::reading::options;

const COUNT: usize = 40;
/// Samples of the one cache that are damaged: the first, the last, neighbours, and the only ones of a shard.
const DAMAGED: [u64; 6] = [0, 11, 12, 13, 30, 39];
const MODES: [Mode; 3] = [
    Mode::Physical,
    Mode::WithReplacement,
    Mode::WithoutReplacement,
];

/// A cache of 40 samples of which some records are flipped.
fn damaged(folder: &Path, layout: Layout, ids: &[u64]) -> PathBuf {
    let path = write_here(folder, "train", layout, &samples(COUNT, 30));
    damage(&path, ids);
    path
}

fn damage(path: &Path, ids: &[u64]) {
    let rows = fs::read(path.join(INDEX)).unwrap();
    for id in ids {
        let row = IndexRow::from_bytes(&rows[*id as usize * 24..][..24]).unwrap();
        let file = path.join(SHARDS).join(shard(row.shard));
        let mut bytes = fs::read(&file).unwrap();
        bytes[(row.offset + row.byte_len - 1) as usize] ^= 1;
        fs::write(file, bytes).unwrap();
    }
}

fn with(mode: Mode, on_corrupt: OnCorrupt, num_workers: usize) -> DatasetOptions {
    let mut options = DatasetOptions {
        on_corrupt,
        num_workers,
        ..options(Io::Auto)
    };
    options.order.mode = mode;
    options
}

fn open(path: &Path, options: DatasetOptions) -> Dataset {
    Dataset::open(&[path.to_owned()], options).unwrap()
}

/// Ids and payloads of the samples of the rest of an epoch, each with the position after it.
type Found = Vec<(u64, Vec<u8>, u64)>;

fn single(dataset: &Dataset, ranks: Ranks) -> Result<Found, CacheError> {
    let stream = dataset.samples(SampleOptions::plain(ranks)).unwrap();
    let mut stream = stream.lock().unwrap();
    let mut found = Vec::new();
    loop {
        while let Some(sample) = stream.take() {
            let (id, payload) = (sample.reference.sample, sample.payload.to_vec());
            let after = stream.cursor().unwrap();
            let passed = if after.epoch == 0 {
                after.position
            } else {
                COUNT as u64
            };
            found.push((id, payload, passed));
        }
        if !stream.load(&mut || Ok(()))? {
            return Ok(found);
        }
    }
}

fn share(batch_size: u64, rank: u64, world_size: u64) -> BatchOptions {
    BatchOptions {
        share: Share::ALL,
        batch_size,
        remainder: Remainder::Pad,
        epochs: Some(1),
        rank,
        world_size,
    }
}

/// Position, id, payload, and whether it holds something, of each row.
type BatchRows = Vec<(u64, u64, Vec<u8>, bool)>;

/// All rows of an epoch, and the number of steps.
fn batched(dataset: &Dataset, options: BatchOptions) -> Result<(BatchRows, usize), CacheError> {
    let stream = dataset.batches(options, Selection::all(None)).unwrap();
    let mut stream = stream.lock().unwrap();
    let (mut rows, mut steps) = (Vec::new(), 0);
    while let Some((step, batch)) = stream.next(&mut || Ok(()))? {
        steps += 1;
        let column = &batch.columns[0];
        let offsets = column.extent.offsets.as_deref().unwrap();
        assert_eq!(offsets.len(), batch.samples.len() + 1);
        assert_eq!(batch.samples.len() as u64, step.rows);
        for (row, (sample, position)) in batch.samples.iter().zip(step.positions()).enumerate() {
            let payload = &column.values[offsets[row] as usize..offsets[row + 1] as usize];
            let holds = !batch.left_out.contains(&row);
            rows.push((position, sample.sample, payload.to_vec(), holds));
        }
    }
    Ok((rows, steps))
}

/// What stands at each position of the first epoch in a cache without damage.
fn planned(mode: Mode) -> Vec<u64> {
    let order = Order::new(mode, COUNT as u64, None, 7, None).unwrap();
    let mut rows = vec![0; COUNT];
    order.epoch(0).unwrap().fill(0, &mut rows).unwrap();
    rows
}

/// The same with others in the place of damaged samples, drawn one after the other until one is sound.
fn substituted(mode: Mode, damaged: &[u64]) -> Vec<u64> {
    let order = Order::new(mode, COUNT as u64, None, 7, None).unwrap();
    let epoch = order.epoch(0).unwrap();
    let stand_in = |(position, id): (u64, u64)| {
        let mut drawn = (0..).map(|attempt| epoch.substitute(position, attempt).unwrap());
        match damaged.contains(&id) {
            true => drawn.find(|other| !damaged.contains(other)).unwrap(),
            false => id,
        }
    };
    (0..).zip(planned(mode)).map(stand_in).collect()
}

#[test]
fn substitutes_depend_on_position_alone_and_not_on_who_reads_them() {
    let known: Vec<Vec<u8>> = samples(COUNT, 30)
        .into_iter()
        .map(|(payload, _)| payload)
        .collect();
    for layout in [Layout::none(200), Layout::lz4(200), Layout::zstd(1 << 20)] {
        let folder = tempfile::tempdir().unwrap();
        let path = damaged(folder.path(), layout, &DAMAGED);
        for mode in MODES {
            let expected = substituted(mode, &DAMAGED);
            assert_ne!(expected, planned(mode));
            for workers in [1, 2, 4] {
                for io in [Io::Mmap, Io::Pread] {
                    let options = DatasetOptions {
                        io,
                        prefetch_size: 7 * workers,
                        ..with(mode, OnCorrupt::Substitute, workers)
                    };
                    let found = single(&open(&path, options), Ranks::SINGLE).unwrap();
                    let ids: Vec<u64> = found.iter().map(|(id, ..)| *id).collect();
                    assert_eq!(ids, expected, "{mode:?} {workers} {io:?}");
                    let passed: Vec<u64> = found.iter().map(|(.., passed)| *passed).collect();
                    assert_eq!(passed, (1..=COUNT as u64).collect::<Vec<_>>());
                    for (id, payload, _) in &found {
                        assert_eq!(*payload, known[*id as usize]);
                    }
                }
                for (batch_size, world_size) in [(1, 1), (8, 1), (64, 1), (3, 2), (5, 3)] {
                    let mut seen = vec![None; COUNT];
                    let mut all_steps = BTreeSet::new();
                    for rank in 0..world_size {
                        let dataset = open(&path, with(mode, OnCorrupt::Substitute, workers));
                        let options = share(batch_size, rank, world_size);
                        let (rows, steps) = batched(&dataset, options).unwrap();
                        all_steps.insert(steps);
                        for (position, id, payload, holds) in rows {
                            assert!(holds);
                            assert_eq!(payload, known[id as usize]);
                            // Padding repeats positions, and finds the same there.
                            let before = seen[position as usize].replace(id);
                            assert!(before.is_none_or(|before| before == id));
                        }
                    }
                    assert_eq!(all_steps.len(), 1);
                    let seen: Vec<u64> = seen.into_iter().flatten().collect();
                    assert_eq!(seen, expected);
                }
            }
        }
    }
}

#[test]
fn a_resumed_epoch_goes_on_with_the_same_substitutes_and_leaves_the_same_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &DAMAGED);
    for mode in MODES {
        for on_corrupt in [OnCorrupt::Substitute, OnCorrupt::Skip] {
            let whole = single(&open(&path, with(mode, on_corrupt, 2)), Ranks::SINGLE).unwrap();
            for taken in 0..whole.len() {
                let first = open(&path, with(mode, on_corrupt, 1));
                let stream = first.samples(SampleOptions::plain(Ranks::SINGLE)).unwrap();
                let mut count = 0;
                while count < taken {
                    let mut stream = stream.lock().unwrap();
                    match stream.take() {
                        Some(_) => count += 1,
                        None => assert!(stream.load(&mut || Ok(())).unwrap()),
                    }
                }
                let saved = first.saved_state().unwrap();
                let second = open(&path, with(mode, on_corrupt, 3));
                second.load_state(&saved, &[]).unwrap();
                assert_eq!(
                    single(&second, Ranks::SINGLE).unwrap(),
                    whole[taken..],
                    "{taken}"
                );
            }
            let (rows, _) =
                batched(&open(&path, with(mode, on_corrupt, 2)), share(4, 0, 1)).unwrap();
            for taken in 0..COUNT / 4 {
                let first = open(&path, with(mode, on_corrupt, 1));
                let stream = first.batches(share(4, 0, 1), Selection::all(None)).unwrap();
                for _ in 0..taken {
                    stream
                        .lock()
                        .unwrap()
                        .next(&mut || Ok(()))
                        .unwrap()
                        .unwrap();
                }
                let saved = stream.lock().unwrap().state().unwrap();
                let second = open(&path, with(mode, on_corrupt, 4));
                second.load_state(&saved, &[]).unwrap();
                let (rest, _) = batched(&second, share(4, 0, 1)).unwrap();
                assert_eq!(rest, rows[taken * 4..]);
            }
        }
    }
}

#[test]
fn samples_that_are_left_out_keep_their_rows_in_batches_and_their_positions_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &DAMAGED);
    for mode in MODES {
        let planned = planned(mode);
        let is_sound = |id: &u64| !DAMAGED.contains(id);
        for workers in [1, 2, 4] {
            let dataset = open(&path, with(mode, OnCorrupt::Skip, workers));
            let found = single(&dataset, Ranks::SINGLE).unwrap();
            let ids: Vec<(u64, u64)> = found.iter().map(|(id, _, passed)| (*id, *passed)).collect();
            let expected = planned
                .iter()
                .copied()
                .zip(1..)
                .filter(|(id, _)| is_sound(id));
            assert_eq!(ids, expected.collect::<Vec<_>>(), "{mode:?} {workers}");
            for (batch_size, world_size) in [(1, 1), (7, 1), (4, 2), (6, 3)] {
                let mut all_steps = BTreeSet::new();
                for rank in 0..world_size {
                    let dataset = open(&path, with(mode, OnCorrupt::Skip, workers));
                    let options = share(batch_size, rank, world_size);
                    let (rows, steps) = batched(&dataset, options).unwrap();
                    all_steps.insert(steps);
                    for (position, id, payload, holds) in rows {
                        assert_eq!(id, planned[position as usize]);
                        assert_eq!(holds, is_sound(&id));
                        assert!(holds || payload.is_empty());
                    }
                }
                assert_eq!(all_steps.len(), 1);
            }
        }
    }
}

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
