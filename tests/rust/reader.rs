//! What is large: offsets beyond 2^32, long records, long indexes, and ten thousand caches with few open files.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dataset_rt::dataset::{Dataset, DatasetOptions, OrderOptions};
use dataset_rt::format::checksum::Crc32c;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::names::{CHECKSUMS, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::sampling::order::Mode;
use dataset_rt::types::{Io, Verify};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::caches::{Forge, Layout, record, samples, write_here};
use crate::support::child;
use crate::support::naive::Sample;
use crate::support::reading::{Reading, deliver, options};

const ENGINES: [Io; 2] = [Io::Mmap, Io::Pread];

#[test]
fn offsets_around_two_and_four_gibibytes_are_exact() {
    const LEN: u64 = 5 << 30;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let payloads: Vec<Vec<u8>> = (0..7_u8).map(|id| vec![id + 1; 5000]).collect();
    let records: Vec<Vec<u8>> = (0..)
        .zip(&payloads)
        .map(|(id, payload)| record(Algorithm::None, id, payload))
        .collect();
    let len = records[0].len() as u64;
    let offsets = [
        0,
        // Where an offset of 32 bits would look for the record at 4 GiB + 10,000.
        10_000,
        (1 << 31) - 100,
        (1 << 32) - 100 - len,
        (1 << 32) - 100,
        (1 << 32) + 10_000,
        LEN - len,
    ];
    let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    let mut forge = Forge::sound(Algorithm::None, &slices);
    forge.checksums = Some(
        (0..)
            .zip(&records)
            .map(|(id, record)| Crc32c::of_record(record, id))
            .collect(),
    );
    forge.index = offsets
        .map(|offset| IndexRow {
            shard: 0,
            offset,
            byte_len: len,
        })
        .to_vec();
    forge.manifest.shards[0].byte_len = LEN;
    forge.write(&path);
    // Sparse: only the records take room on the disk.
    let file = File::create(path.join(SHARDS).join(shard(0))).unwrap();
    file.set_len(LEN).unwrap();
    for (record, offset) in records.iter().zip(offsets) {
        file.write_all_at(record, offset).unwrap();
    }
    for io in ENGINES {
        for verify in [Verify::First, Verify::Never] {
            let options = DatasetOptions {
                verify,
                ..options(io)
            };
            let reading = Reading::of(std::slice::from_ref(&path), options);
            assert!(reading.is_sound(), "{:?}", reading.delivered.failure);
            let found: Vec<_> = reading
                .delivered
                .samples
                .into_iter()
                .map(|(payload, _)| payload)
                .collect();
            assert!(found == payloads, "{io:?} {verify:?}");
        }
    }
    // A byte of the sparse part is out of every record; a byte of the last record is not.
    file.write_all_at(b"x", 1 << 30).unwrap();
    file.write_all_at(b"x", LEN - 1).unwrap();
    for io in ENGINES {
        let delivered = Reading::of(std::slice::from_ref(&path), options(io)).delivered;
        assert_eq!(delivered.samples.len(), 6);
        assert!(delivered.failure.unwrap().contains("sample 6 at byte"));
    }
}

#[test]
fn records_longer_than_any_block_survive() {
    let mut rows = samples(4, 1);
    rows[2].0 = (0..17_u32 << 20).map(|at| (at >> 4) as u8).collect();
    rows[0].0 = vec![7; (4 << 20) + 1];
    for layout in [
        Layout::none(1 << 20),
        Layout::lz4(64 << 20),
        Layout::zstd(64 << 20),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = write_here(folder.path(), "train", layout, &rows);
        for io in ENGINES {
            let reading = Reading::of(std::slice::from_ref(&path), options(io));
            assert_eq!(reading.delivered.failure, None);
            assert!(reading.delivered.samples == rows, "{io:?}");
        }
    }
}

#[test]
fn an_index_too_long_to_be_held_is_read_row_by_row() {
    // More than the 8 MiB up to which positional reading holds a table in memory.
    const ROWS: u64 = 400_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let mut forge = Forge::sound(Algorithm::None, &[b"even", b"odd"]);
    let records = [0, 1].map(|at| {
        let IndexRow {
            offset, byte_len, ..
        } = forge.index[at];
        forge.shards[0][offset as usize..][..byte_len as usize].to_vec()
    });
    forge.manifest.sample_count = ROWS;
    forge.index = (0..ROWS as usize).map(|row| forge.index[row % 2]).collect();
    forge.checksums = Some(
        (0..ROWS)
            .map(|row| Crc32c::of_record(&records[row as usize % 2], row))
            .collect(),
    );
    forge.write(&path);
    for io in ENGINES {
        let dataset = Dataset::open(std::slice::from_ref(&path), options(io)).unwrap();
        for row in (0..ROWS).step_by(9_973).chain([ROWS - 2, ROWS - 1]) {
            let chunk = dataset.sample(row).unwrap();
            let expected: &[u8] = if row % 2 == 0 { b"even" } else { b"odd" };
            assert_eq!(chunk.get(0).unwrap().payload, expected);
        }
        assert!(dataset.sample(ROWS).is_err());
    }
}

const CACHES: usize = 10_000;
const KINDS: usize = 8;

fn rows_of(kind: usize) -> Vec<Sample> {
    samples(3 + kind, 5000).split_off(kind)
}

/// Ten thousand caches that share the files of a few.
fn many_caches(folder: &Path) -> Vec<PathBuf> {
    let kinds: Vec<PathBuf> = (0..KINDS)
        .map(|kind| {
            write_here(
                folder,
                &format!("kind-{kind}"),
                Layout::none(1 << 20),
                &rows_of(kind),
            )
        })
        .collect();
    let shard = format!("{SHARDS}/{}", shard(0));
    let link = |number: usize| {
        let path = folder.join(number.to_string());
        fs::create_dir_all(path.join(SHARDS)).unwrap();
        for file in [MANIFEST, METADATA, INDEX, CHECKSUMS, &shard] {
            fs::hard_link(kinds[number % KINDS].join(file), path.join(file)).unwrap();
        }
        path
    };
    (0..CACHES).map(link).collect()
}

#[test]
fn ten_thousand_caches_need_few_open_files() {
    child::run("reader::with_few_open_files", "few files");
}

/// Does nothing unless started by the test above: the limit is of the whole process.
#[test]
fn with_few_open_files() {
    if child::role().as_deref() != Some("few files") {
        return;
    }
    let limit = Rlimit {
        current: Some(256),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let paths = many_caches(folder.path());
    let known: Vec<Vec<Sample>> = (0..KINDS).map(rows_of).collect();
    for io in ENGINES {
        for mode in [Mode::Physical, Mode::WithoutReplacement] {
            let order = OrderOptions {
                mode,
                seed: 1,
                epoch_length: None,
            };
            let options = DatasetOptions {
                order,
                num_workers: 4,
                prefetch_size: 256,
                ..options(io)
            };
            let dataset = Dataset::open(&paths, options).unwrap();
            assert_eq!(dataset.row_count().unwrap(), 3 * CACHES as u64);
            let delivered = deliver(&dataset);
            assert_eq!(delivered.failure, None);
            let mut seen = HashSet::new();
            for (reference, sample) in delivered.references.iter().zip(&delivered.samples) {
                assert!(seen.insert(*reference));
                let expected = &known[reference.cache as usize % KINDS][reference.sample as usize];
                assert!(sample == expected, "{reference:?}");
            }
            assert_eq!(seen.len(), 3 * CACHES);
            let (_, batches) = dataset.samples_metadata().unwrap();
            assert_eq!(
                batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
                3 * CACHES
            );
        }
    }
}
