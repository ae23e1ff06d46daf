//! Caches written by published releases, committed as they were, read to the values those releases were given.

use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::dataset::{Dataset, DatasetOptions, Ranks, SampleOptions};
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
    let mut options = DatasetOptions {
        verify,
        io,
        validate_cache,
        ..DatasetOptions::with_seed(0)
    };
    options.order.mode = Mode::Physical;
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
                assert_eq!(dataset.row_count().unwrap(), rows.len() as u64);
                let schema = dataset.schema().unwrap();
                let stream = dataset
                    .samples(SampleOptions::plain(Ranks::SINGLE))
                    .unwrap();
                let mut stream = stream.lock().unwrap();
                for (position, row) in rows.iter().enumerate() {
                    if stream.is_drained() {
                        assert!(stream.load(&mut || Ok(())).unwrap());
                    }
                    let sample = stream.take().unwrap();
                    assert_eq!(sample.reference.sample, position as u64);
                    assert_eq!(
                        Sha256Digest::of(sample.payload).to_string(),
                        row["sha256"].as_str().unwrap()
                    );
                    let metadata = row["metadata"].as_object().unwrap();
                    assert_eq!(schema.columns().len(), metadata.len());
                    for (column, value) in schema.columns().iter().zip(sample.metadata()) {
                        assert!(
                            same(&metadata[&column.name], value),
                            "{release} {cache} {position} {value:?}"
                        );
                    }
                }
                assert!(!stream.load(&mut || Ok(())).unwrap());
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
    let dataset = Dataset::open(&paths, DatasetOptions::with_seed(3)).unwrap();
    assert_eq!(dataset.row_count().unwrap(), 6 * 37);
    let (_, batches) = dataset.samples_metadata().unwrap();
    assert_eq!(
        batches.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        6 * 37
    );
}
