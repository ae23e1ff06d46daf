//! Caches written by published releases, committed as they were, read to the values those releases were given.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::dataset::{Dataset, DatasetOptions, OrderOptions};
use dataset_rt::format::checksum::Sha256Digest;
use dataset_rt::format::columns::Value;
use dataset_rt::sampling::order::Mode;
use dataset_rt::types::{Io, Verify};
use serde_json::Value as Json;

const RELEASES: [&str; 2] = ["0.2.0", "0.4.8"];
const CACHES: [&str; 3] = ["fixed-none", "mixed-lz4", "mixed-none"];

fn folder(release: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/published")
        .join(release)
}

fn open(path: PathBuf, io: Io, verify: Verify, validate_cache: bool) -> Dataset {
    let order = OrderOptions {
        mode: Mode::Physical,
        seed: 0,
        epoch_length: None,
    };
    let options = DatasetOptions {
        order,
        prefetch_size: 8,
        num_workers: 2,
        verify,
        io,
        validate_cache,
    };
    Dataset::open(&[path], options).unwrap()
}

fn same(expected: &Json, found: Value<'_>) -> bool {
    match found {
        Value::Null => expected.is_null(),
        Value::Bool(found) => expected.as_bool() == Some(found),
        Value::Int(found) => expected.as_i64() == Some(found),
        Value::Float(found) => expected
            .as_f64()
            .is_some_and(|expected| expected.to_bits() == found.to_bits()),
        Value::Str(found) => expected.as_str() == Some(found),
    }
}

#[test]
fn every_published_cache_reads_to_the_values_it_was_written_from() {
    for release in RELEASES {
        let expected: Json =
            serde_json::from_slice(&fs::read(folder(release).join("expected.json")).unwrap())
                .unwrap();
        for cache in CACHES {
            for (io, verify, validate) in [
                (Io::Mmap, Verify::First, false),
                (Io::Pread, Verify::Always, true),
                (Io::Auto, Verify::Never, false),
            ] {
                let dataset = open(folder(release).join(cache), io, verify, validate);
                let rows = expected[cache].as_array().unwrap();
                assert_eq!(dataset.len(), rows.len() as u64);
                let mut reader = dataset.iterate().unwrap();
                let mut position = 0;
                while let Some(chunk) = reader.next_chunk(&mut || Ok(())).unwrap() {
                    for sample in (0..chunk.len()).map(|place| chunk.get(place).unwrap()) {
                        let row = &rows[position];
                        assert_eq!(sample.reference.sample, position as u64);
                        assert_eq!(
                            Sha256Digest::of(sample.payload).to_string(),
                            row["sha256"].as_str().unwrap()
                        );
                        let columns = dataset.schema().columns().iter().zip(sample.metadata());
                        let metadata = row["metadata"].as_object().unwrap();
                        assert_eq!(dataset.schema().columns().len(), metadata.len());
                        for (column, value) in columns {
                            assert!(
                                same(&metadata[&column.name], value),
                                "{release} {cache} {position} {value:?}"
                            );
                        }
                        position += 1;
                    }
                }
                assert_eq!(position, rows.len());
            }
        }
    }
}

#[test]
fn published_caches_of_several_releases_open_as_one_dataset() {
    let paths: Vec<PathBuf> = RELEASES
        .iter()
        .flat_map(|release| CACHES.map(|cache| folder(release).join(cache)))
        .collect();
    let order = OrderOptions {
        mode: Mode::WithReplacement,
        seed: 3,
        epoch_length: None,
    };
    let (verify, io) = (Verify::First, Io::Auto);
    let options = DatasetOptions {
        order,
        prefetch_size: 64,
        num_workers: 4,
        verify,
        io,
        validate_cache: false,
    };
    let dataset = Arc::new(Dataset::open(&paths, options).unwrap());
    assert_eq!(dataset.len(), 6 * 37);
    let (_, batches) = dataset.samples_metadata().unwrap();
    assert_eq!(
        batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        6 * 37
    );
}
