//! Mapping against positional reads, many threads against one, any window against the smallest: equal samples in equal
//! order, and equal failures in equal places.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use dataset_rt::dataset::{BatchOptions, Dataset, DatasetOptions, OrderOptions, Share};
use dataset_rt::error::CacheError;
use dataset_rt::format::names::{SHARDS, shard};
use dataset_rt::reader::{Chunk, Loader, Selection};
use dataset_rt::sampling::order::Mode;
use dataset_rt::sampling::position::Remainder;
use dataset_rt::types::{Io, SampleRef, Verify};

use crate::support::engines::{ENGINES, SAMPLES, WORKERS, caches, open};
use crate::support::naive::{self, Cell, Sample, cells};
use crate::support::reading::{Delivered, deliver, options, typed};

const WINDOWS: [usize; 6] = [1, 2, 3, 7, 64, 1000];

/// Delivers two epochs.
fn epochs(
    paths: &[PathBuf],
    options: DatasetOptions,
    weigh: Option<fn(u64) -> f64>,
) -> [Delivered; 2] {
    let dataset = Dataset::open(paths, options).unwrap();
    if let Some(weigh) = weigh {
        let (_, batches) = dataset.samples_metadata().unwrap();
        let mut row = 0;
        let weighed = batches.into_iter().map(|batch| {
            let weights: Vec<f64> = (row..).take(batch.num_rows()).map(weigh).collect();
            row += batch.num_rows() as u64;
            let mut columns = batch.columns().to_vec();
            *columns.last_mut().unwrap() = Arc::new(Float64Array::from(weights)) as ArrayRef;
            Ok(RecordBatch::try_new(batch.schema(), columns).unwrap())
        });
        dataset.set_samples_metadata(weighed).unwrap();
    }
    [(); 2].map(|()| deliver(&dataset))
}

/// Every combination of engine, threads and window.
fn everywhere(order: OrderOptions) -> impl Iterator<Item = DatasetOptions> {
    ENGINES.into_iter().flat_map(move |io| {
        WORKERS.into_iter().flat_map(move |num_workers| {
            WINDOWS
                .into_iter()
                .map(move |prefetch_size| DatasetOptions {
                    order,
                    prefetch_size,
                    num_workers,
                    ..options(io)
                })
        })
    })
}

fn order(mode: Mode) -> OrderOptions {
    OrderOptions {
        mode,
        seed: 7,
        epoch_length: None,
    }
}

fn with(order: OrderOptions) -> DatasetOptions {
    DatasetOptions {
        order,
        ..options(Io::Pread)
    }
}

/// Flips one bit in the middle of a record.
fn damage(cache: &Path, sample: usize) {
    let row = naive::read(cache).index[sample];
    let file = cache.join(SHARDS).join(shard(row.shard));
    let at = row.offset + row.byte_len / 2;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn engine_threads_and_window_change_no_sample_and_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    let known: Vec<Vec<Sample>> = paths.iter().map(|path| naive::read(path).samples).collect();
    let by_row: fn(u64) -> f64 = |row| 0.25 + (row % 5) as f64;
    for (mode, weigh) in [
        (Mode::Physical, None),
        (Mode::WithReplacement, None),
        (Mode::WithReplacement, Some(by_row)),
        (Mode::WithoutReplacement, None),
        (Mode::WithoutReplacement, Some(by_row)),
    ] {
        let mut all = everywhere(order(mode)).map(|options| epochs(&paths, options, weigh));
        let first = all.next().unwrap();
        for epoch in &first {
            assert_eq!(epoch.failure, None);
            for (reference, sample) in epoch.references.iter().zip(&epoch.samples) {
                let known = &known[reference.cache as usize][reference.sample as usize];
                assert_eq!(sample, known, "{reference:?}");
            }
        }
        if mode == Mode::Physical {
            let every = known.iter().zip(0..).flat_map(|(samples, cache)| {
                (0..samples.len() as u64).map(move |sample| SampleRef { cache, sample })
            });
            assert_eq!(first[0].references, every.collect::<Vec<_>>());
        } else {
            assert_ne!(first[0].references, first[1].references);
            assert_eq!(first[0].references.len(), SAMPLES);
        }
        for (number, found) in all.enumerate() {
            assert_eq!(found, first, "{mode:?}, combination {}", number + 1);
        }
    }
}

/// The samples of all batches of an epoch, and the failure that ended them.
fn batches(dataset: &Dataset, batch_size: u64) -> (Vec<Sample>, Option<String>) {
    let options = BatchOptions {
        share: Share::ALL,
        batch_size,
        remainder: Remainder::Keep,
        epochs: Some(1),
        rank: 0,
        world_size: 1,
    };
    let stream = dataset.batches(options, Selection::all(None)).unwrap();
    let (mut stream, mut found) = (stream.lock().unwrap(), Vec::new());
    loop {
        let batch = match stream.next(&mut || Ok(())) {
            Ok(None) => return (found, None),
            Ok(Some((_, batch))) => batch,
            Err(error) => return (found, Some(typed(&error))),
        };
        let rows = cells(&batch.metadata().unwrap());
        let column = &batch.columns[0];
        let ends = column.extent.offsets.as_deref().unwrap().windows(2);
        for (ends, cells) in ends.zip(rows) {
            let payload = &column.values[ends[0] as usize..ends[1] as usize];
            found.push((payload.to_vec(), cells));
        }
    }
}

#[test]
fn batches_are_the_samples_whatever_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    for broken in [false, true] {
        if broken {
            damage(&paths[1], 20);
        }
        for mode in [Mode::Physical, Mode::WithReplacement] {
            for batch_size in [1, 7, 200] {
                let single = deliver(&Dataset::open(&paths, with(order(mode))).unwrap());
                // A batch with a damaged sample fails as a whole.
                let whole = single.samples.len() as u64 / batch_size * batch_size;
                let count = if broken { whole as usize } else { SAMPLES };
                for options in everywhere(order(mode)) {
                    let dataset = Dataset::open(&paths, options).unwrap();
                    let (found, failure) = batches(&dataset, batch_size);
                    assert!(found == single.samples[..count], "{options:?} {batch_size}");
                    assert_eq!(failure, single.failure);
                }
            }
        }
    }
}

#[test]
fn failures_come_in_the_same_place_with_the_same_words() {
    for (broken, sample, before) in [(0, 17, 17), (1, 0, 61), (1, 39, 100), (2, 18, 119)] {
        let folder = tempfile::tempdir().unwrap();
        let paths = caches(folder.path());
        damage(&paths[broken], sample);
        for mode in [Mode::Physical, Mode::WithReplacement] {
            let mut all = everywhere(order(mode)).map(|options| epochs(&paths, options, None));
            let first = all.next().unwrap();
            if mode == Mode::Physical {
                assert_eq!(first[0].samples.len(), before);
                let failure = first[0].failure.as_ref().unwrap();
                assert!(failure.contains(&format!("sample {sample} ")), "{failure}");
            }
            for found in all {
                assert_eq!(found, first);
            }
        }
    }
}

#[test]
fn a_damaged_sample_is_refused_every_time_and_never_becomes_verified() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    // Plain bytes, which nothing but the checksum can find wrong.
    damage(&paths[2], 5);
    for io in ENGINES {
        let dataset = Dataset::open(&paths, options(io)).unwrap();
        for _ in 0..3 {
            let error = dataset.sample(61 + 40 + 5).unwrap_err();
            assert!(
                matches!(error, CacheError::DamagedRecord { sample_id: 5, .. }),
                "{error}"
            );
            assert_eq!(deliver(&dataset).samples.len(), 61 + 40 + 5);
        }
    }
}

#[test]
fn a_loader_gives_each_sample_whatever_reads_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    for io in [Io::Mmap, Io::Pread] {
        let caches = open(&paths, io);
        {
            for verify in [Verify::First, Verify::Always, Verify::Never] {
                let mut loader = Loader::new(Arc::clone(&caches), io, verify);
                for (path, cache) in paths.iter().zip(0..) {
                    let known = naive::read(path).samples;
                    let mut chunk = Chunk::default();
                    for sample in (0..known.len() as u64).rev() {
                        loader
                            .append(SampleRef { cache, sample }, &mut chunk)
                            .unwrap();
                    }
                    for (place, (payload, cells)) in known.iter().rev().enumerate() {
                        let found = chunk.get(place).unwrap();
                        assert_eq!(found.payload, &payload[..]);
                        assert_eq!(&found.metadata().map(Cell::of).collect::<Vec<_>>(), cells);
                    }
                }
            }
        }
    }
}
