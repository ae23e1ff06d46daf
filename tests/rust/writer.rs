//! Whole caches, written and read back by the plainest reader.

use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::columns::Value;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::manifest::Compression;
use dataset_rt::format::names::DICTIONARY;
use dataset_rt::format::schema::{ColumnSpec, Kind, Schema};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::{OsVfs, Vfs};
use dataset_rt::writer::profiler::Profile;
use dataset_rt::writer::{CacheWriter, WriteRequest, WriteSummary, WriterOptions};

use crate::support::altered_vfs::Altered;
use crate::support::disk::Tree;
use crate::support::naive::{Cell, Sample, read};
use crate::support::scenario::{Scenario, Verdict};

/// Everything a write depends on but its samples.
struct Setup {
    prefetch: u64,
    threads: u64,
    shard_bytes: u64,
    algorithm: Algorithm,
    level: Option<i64>,
    dictionary_bytes: u64,
    schema: Option<Schema>,
    version: Option<String>,
    vfs: Arc<dyn Vfs>,
    locked: bool,
    profile: Arc<Profile>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            prefetch: 64,
            threads: 4,
            shard_bytes: 64 << 20,
            algorithm: Algorithm::None,
            level: None,
            dictionary_bytes: 0,
            schema: None,
            version: None,
            vfs: Arc::new(OsVfs),
            locked: false,
            profile: Arc::default(),
        }
    }
}

impl Setup {
    fn begin(&self, base: &Path) -> Result<CacheWriter> {
        let compression = Compression {
            algo: self.algorithm,
            ratio: 1.0,
        };
        CacheWriter::create(WriteRequest {
            vfs: Arc::clone(&self.vfs),
            base,
            name: "train",
            options: WriterOptions::new(
                self.prefetch,
                self.threads,
                self.shard_bytes,
                compression,
            )?
            .with_level(self.level, self.dictionary_bytes)?,
            schema: self.schema.clone(),
            payload: None,
            source_version: self.version.clone(),
            lock: match self.locked {
                true => CacheLock::try_acquire(base, "train")?,
                false => CacheLock::without_locking(base, "train"),
            },
            profile: Arc::clone(&self.profile),
        })
    }

    fn write<'a>(
        &self,
        base: &Path,
        names: &[&str],
        samples: impl IntoIterator<Item = &'a Sample>,
    ) -> Result<WriteSummary> {
        let mut writer = self.begin(base)?;
        for (payload, cells) in samples {
            let values: Vec<_> = names
                .iter()
                .copied()
                .zip(cells.iter().map(Cell::value))
                .collect();
            if writer.push_named(payload, &values)? {
                writer.submit(&mut || Ok(()))?;
            }
        }
        writer.finish(&mut || Ok(()))
    }
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(path).unwrap();
    listed.map(|entry| entry.unwrap().path()).collect()
}

/// All files below a directory.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for path in entries(&directory) {
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_path_buf();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Numbers that look random and are always the same.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Samples of every shape: empty and long payloads, text that shrinks and noise that does not, extremes in all types.
fn mixed(count: u64) -> Vec<Sample> {
    let texts = ["", "a", "日本語🙂", "quote\"back\\slash\n\u{0}", " lead"];
    let ints = [0, -1, i64::MIN, i64::MAX, (1 << 53) + 1];
    let floats = [0.0, -0.0, 0.1, f64::MAX, 5e-324];
    let sizes = [0, 1, 14, 15, 300, 4096, 70_000];
    (0..count)
        .map(|n| {
            let size = sizes[(n % 7) as usize];
            let payload = match n % 2 {
                0 => vec![n as u8; size],
                _ => noise(n, size),
            };
            let at = (n % 5) as usize;
            let cells = vec![
                Cell::Bool(n % 3 == 0),
                Cell::Float(floats[at].to_bits()),
                Cell::Int(ints[at]),
                Cell::Str(texts[at].to_owned()),
            ];
            (payload, cells)
        })
        .collect()
}

const NAMES: [&str; 4] = ["b", "f", "i", "s"];
const ALGORITHMS: [Algorithm; 3] = [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd];

#[test]
fn samples_come_back_as_they_went_in() {
    for algorithm in ALGORITHMS {
        for (shard_bytes, prefetch) in [(64 << 20, 64), (100_000, 1), (1, 7), (5000, 1000)] {
            let base = tempfile::tempdir().unwrap();
            let setup = Setup {
                shard_bytes,
                prefetch,
                algorithm,
                version: Some("v7".to_owned()),
                ..Setup::default()
            };
            let samples = mixed(200);
            let summary = setup.write(base.path(), &NAMES, &samples).unwrap();
            assert_eq!(summary.path, base.path().join("train"));
            assert_eq!(entries(base.path()), std::slice::from_ref(&summary.path));
            let found = read(&summary.path);
            assert_eq!(found.samples, samples);
            assert_eq!(found.manifest, summary.manifest);
            let version = if algorithm == Algorithm::Zstd { 4 } else { 2 };
            assert_eq!(found.manifest.format_version, version);
            assert_eq!(found.manifest.source_name, "train");
            assert_eq!(found.manifest.source_version.as_deref(), Some("v7"));
            let shards = &found.manifest.shards;
            for (id, shard) in (0..).zip(shards) {
                let records = found.index.iter().filter(|row| row.shard == id).count();
                assert!(shard.byte_len <= shard_bytes || records == 1);
            }
            assert_eq!(shards.len() == 1, shard_bytes == 64 << 20);
        }
    }
}

#[test]
fn bytes_depend_on_samples_and_options_alone() {
    let samples = mixed(500);
    for (algorithm, level, dictionary_bytes) in [
        (Algorithm::Lz4, None, 0),
        (Algorithm::Lz4, Some(9), 0),
        (Algorithm::Zstd, Some(1), 0),
        (Algorithm::Zstd, Some(6), 0),
        (Algorithm::Zstd, None, 2048),
    ] {
        let written = |threads, prefetch| {
            let base = tempfile::tempdir().unwrap();
            let setup = Setup {
                threads,
                prefetch,
                shard_bytes: 300_000,
                algorithm,
                level,
                dictionary_bytes,
                ..Setup::default()
            };
            let path = setup.write(base.path(), &NAMES, &samples).unwrap().path;
            files(&path)
        };
        let expected = written(1, 1);
        let has_dictionary = expected.contains_key(Path::new(DICTIONARY));
        assert_eq!(has_dictionary, dictionary_bytes > 0);
        for (threads, prefetch) in [(1, 64), (2, 3), (4, 64), (16, 1000)] {
            assert!(
                written(threads, prefetch) == expected,
                "{algorithm:?} {level:?} {threads} {prefetch}"
            );
        }
    }
}

/// Short texts that share most of their words.
fn texts(count: u64) -> Vec<Sample> {
    let text = |n: u64| {
        format!(
            "sample {n}: a photo of object number {} on a table",
            n * 7919
        )
    };
    let sample = |n| (text(n).into_bytes(), vec![Cell::Int(n as i64)]);
    (0..count).map(sample).collect()
}

#[test]
fn a_dictionary_makes_short_records_shorter() {
    let samples = texts(2000);
    let stored = |dictionary_bytes| {
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            algorithm: Algorithm::Zstd,
            dictionary_bytes,
            ..Setup::default()
        };
        let written = setup.write(base.path(), &["n"], &samples).unwrap();
        let found = read(&written.path);
        assert!(found.samples == samples);
        let dictionary = found.manifest.dictionary;
        assert_eq!(dictionary.is_some(), dictionary_bytes > 0);
        assert!(dictionary.is_none_or(|entry| entry.byte_len <= dictionary_bytes));
        found.manifest.shards[0].byte_len
    };
    let (without, with) = (stored(0), stored(4096));
    assert!(with * 3 < without * 2, "{with} {without}");
}

#[test]
fn a_dictionary_depends_on_no_more_than_the_first_samples() {
    // 100 bytes for each byte of the dictionary, whichever way chunks are cut.
    let first = texts(4000);
    let enough = first.iter().scan(0, |sum, (payload, _)| {
        *sum += payload.len();
        Some(*sum)
    });
    let enough = enough.take_while(|sum| *sum < 102_400).count() + 1;
    let dictionary = |samples: &[Sample], prefetch| {
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            algorithm: Algorithm::Zstd,
            dictionary_bytes: 1024,
            prefetch,
            ..Setup::default()
        };
        let path = setup.write(base.path(), &["n"], samples).unwrap().path;
        assert!(read(&path).samples == samples);
        fs::read(path.join(DICTIONARY)).unwrap()
    };
    let expected = dictionary(&first, 64);
    let with_other_end = |from: usize| {
        let mut samples = first.clone();
        let end = samples[from..].iter_mut().zip(0..);
        end.for_each(|((payload, _), n)| *payload = noise(n, 60));
        samples
    };
    assert!(dictionary(&with_other_end(enough / 2), 64) != expected);
    for prefetch in [1, 64, 1000] {
        let other_end = with_other_end(enough);
        assert!(dictionary(&other_end, prefetch) == expected, "{prefetch}");
        assert!(dictionary(&first[..enough], prefetch) == expected);
    }
}

#[test]
fn a_source_with_too_few_samples_gets_no_dictionary() {
    for samples in [texts(1), vec![(Vec::new(), vec![Cell::Int(1)]); 300]] {
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            algorithm: Algorithm::Zstd,
            dictionary_bytes: 112_640,
            ..Setup::default()
        };
        let path = setup.write(base.path(), &["n"], &samples).unwrap().path;
        let found = read(&path);
        assert!(found.samples == samples);
        assert_eq!(found.manifest.dictionary, None);
        assert!(!path.join(DICTIONARY).exists());
    }
}

#[test]
fn a_write_that_trains_can_be_interrupted_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let setup = Setup {
        algorithm: Algorithm::Zstd,
        dictionary_bytes: 1024,
        ..Setup::default()
    };
    let mut writer = setup.begin(base.path()).unwrap();
    let samples = texts(10_000);
    let error = samples.iter().find_map(|(payload, _)| {
        let is_full = writer.push_named(payload, &[("n", Value::Int(1))]).unwrap();
        let submitted = is_full.then(|| writer.submit(&mut || Err(CacheError::Interrupted)));
        submitted.and_then(Result::err)
    });
    assert!(matches!(error, Some(CacheError::Interrupted)), "{error:?}");
    // Nothing was encoded or waited for before the dictionary was due.
    assert_eq!(setup.profile.peak_in_flight(), (0, 0));
    assert!((1500..3000).contains(&writer.rows()), "{}", writer.rows());
    drop(writer);
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
}

#[test]
fn shards_and_index_equal_those_of_the_published_release() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published/0.2.0");
    for (name, algorithm) in [
        ("mixed-none", Algorithm::None),
        ("mixed-lz4", Algorithm::Lz4),
    ] {
        let theirs = read(&data.join(name));
        let columns = theirs.manifest.metadata_schema.columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            shard_bytes: 8192,
            algorithm,
            ..Setup::default()
        };
        let ours = setup.write(base.path(), &names, &theirs.samples).unwrap();
        assert_eq!(
            ours.manifest.metadata_schema,
            theirs.manifest.metadata_schema
        );
        assert_eq!(read(&ours.path).samples, theirs.samples);
        // Their lz4 is not promised to choose the same matches for ever, but shards must be cut in the same places.
        if algorithm == Algorithm::None {
            let (ours, theirs) = (files(&ours.path), files(&data.join(name)));
            for (name, bytes) in theirs {
                if name.starts_with("shards") || name.ends_with("index.bin") {
                    assert!(ours[&name] == bytes, "{}", name.display());
                }
            }
        }
        let lengths = |shards: &[dataset_rt::format::manifest::ShardEntry]| {
            let pairs = shards.iter().map(|s| s.uncompressed_byte_len);
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(
            lengths(&ours.manifest.shards),
            lengths(&theirs.manifest.shards)
        );
    }
}

#[test]
fn nulls_and_non_finite_floats_survive_in_format_4() {
    let float = |value: f64| Cell::Float(value.to_bits());
    let rows = [
        vec![Cell::Null, float(f64::NAN), Cell::Null],
        vec![Cell::Int(1), float(f64::INFINITY), Cell::Null],
        vec![Cell::Null, float(f64::NEG_INFINITY), Cell::Null],
    ];
    let samples: Vec<Sample> = rows.map(|cells| (b"x".to_vec(), cells)).into();
    let base = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let written = Setup::default()
        .write(base.path(), &names, &samples)
        .unwrap();
    let found = read(&written.path);
    assert_eq!(found.samples, samples);
    assert_eq!(found.manifest.format_version, 4);
    let columns = found.manifest.metadata_schema.columns();
    let described: Vec<String> = columns.iter().map(ColumnSpec::describe).collect();
    assert_eq!(described, ["int or null", "float", "string or null"]);

    let only_finite = Setup::default();
    let base = tempfile::tempdir().unwrap();
    let sample = (Vec::new(), vec![float(f64::INFINITY)]);
    let written = only_finite.write(base.path(), &["a"], [&sample]).unwrap();
    assert_eq!(written.manifest.format_version, 4);
}

#[test]
fn a_schema_learned_after_the_first_batches_holds_for_all_rows() {
    // Three batches; the second gives `late` its type and the third shows the first null of `n`.
    let samples: Vec<Sample> = (0..140_000)
        .map(|row| {
            let late = match row {
                0..70_000 => Cell::Null,
                _ => Cell::Int(row),
            };
            let n = match row {
                139_000 => Cell::Null,
                _ => Cell::Str(format!("row {row}")),
            };
            (vec![row as u8], vec![late, n, Cell::Null])
        })
        .collect();
    let base = tempfile::tempdir().unwrap();
    let setup = Setup::default();
    let written = setup
        .write(base.path(), &["late", "n", "never"], &samples)
        .unwrap();
    let found = read(&written.path);
    assert!(found.samples == samples);
    let columns = found.manifest.metadata_schema.columns();
    let described: Vec<String> = columns.iter().map(ColumnSpec::describe).collect();
    assert_eq!(
        described,
        ["int or null", "string or null", "string or null"]
    );
    let mut names: Vec<_> = files(&written.path).into_keys().collect();
    names.retain(|name| name.components().count() == 1);
    let expected = [
        "checksums.bin",
        "index.bin",
        "manifest.json",
        "metadata.arrow",
    ];
    assert_eq!(names, expected.map(PathBuf::from));
}

#[test]
fn a_source_without_metadata_can_be_written() {
    let samples: Vec<Sample> = (0..70_000).map(|n| (vec![n as u8], Vec::new())).collect();
    let base = tempfile::tempdir().unwrap();
    let written = Setup::default().write(base.path(), &[], &samples).unwrap();
    assert!(read(&written.path).samples == samples);
}

#[test]
fn a_declared_schema_fixes_names_types_and_nulls() {
    let spec = |name: &str, kind, nullable| ColumnSpec {
        name: name.to_owned(),
        kind,
        nullable,
    };
    let columns = vec![spec("x", Kind::Float, false), spec("y", Kind::Int, true)];
    let setup = || Setup {
        schema: Some(Schema::new(columns.clone()).unwrap()),
        ..Setup::default()
    };
    let base = tempfile::tempdir().unwrap();
    let good = (b"p".to_vec(), vec![Cell::Int(2), Cell::Int(1)]);
    let written = setup().write(base.path(), &["x", "y"], [&good]).unwrap();
    assert_eq!(written.manifest.format_version, 4);
    assert_eq!(written.manifest.metadata_schema.columns(), columns);
    let found = read(&written.path).samples;
    assert_eq!(found[0].1, [Cell::Float(2.0f64.to_bits()), Cell::Int(1)]);

    let refused = |names: &[&str], cells: Vec<Cell>| {
        let base = tempfile::tempdir().unwrap();
        let bad = (Vec::new(), cells);
        let error = setup()
            .write(base.path(), names, [&good, &bad])
            .unwrap_err();
        assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
        error.to_string()
    };
    let text = refused(&["x", "y"], vec![Cell::Null, Cell::Null]);
    assert_eq!(
        text,
        "sample 1: metadata column `x`: expected float, found null"
    );
    let text = refused(&["x", "y"], vec![Cell::Int((1 << 53) + 1), Cell::Null]);
    assert!(
        text.contains("sample 1") && text.contains("exactly"),
        "{text}"
    );
    let text = refused(&["x", "z"], vec![Cell::Int(1), Cell::Null]);
    assert!(
        text.contains("`y` is missing and `z` is unexpected"),
        "{text}"
    );
}

#[test]
fn faults_of_a_source_name_the_sample_and_leave_nothing() {
    let good = (b"p".to_vec(), vec![Cell::Int(2)]);
    let refused = |names: [&str; 2], bad: Vec<Cell>| {
        let base = tempfile::tempdir().unwrap();
        let mut writer = Setup::default().begin(base.path()).unwrap();
        writer
            .push_named(&good.0, &[(names[0], Value::Int(2))])
            .unwrap();
        let values: Vec<_> = names[1..]
            .iter()
            .copied()
            .zip(bad.iter().map(Cell::value))
            .collect();
        let error = writer.push_named(b"", &values).unwrap_err();
        drop(writer);
        assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
        error.to_string()
    };
    let text = refused(["a", "a"], vec![Cell::Str("no".to_owned())]);
    assert_eq!(
        text,
        "sample 1: metadata column `a`: expected int or null, found string \"no\""
    );
    let text = refused(["a", "b"], vec![Cell::Int(1)]);
    assert!(
        text.starts_with("sample 1: metadata key `a` is missing and `b`"),
        "{text}"
    );
    let text = refused(["a", "a"], Vec::new());
    assert!(
        text.starts_with("sample 1: metadata key `a` is missing;"),
        "{text}"
    );

    let base = tempfile::tempdir().unwrap();
    let error = Setup::default()
        .write(base.path(), &["weight"], [&good])
        .unwrap_err();
    assert!(
        matches!(error, CacheError::Sample { row: 0, .. }),
        "{error}"
    );
    let none: [&Sample; 0] = [];
    let error = Setup::default().write(base.path(), &[], none).unwrap_err();
    assert!(matches!(error, CacheError::EmptySource { .. }), "{error}");
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
    Setup::default()
        .write(base.path(), &["a"], [&good])
        .unwrap();
    let error = Setup::default()
        .write(base.path(), &["a"], [&good])
        .unwrap_err();
    assert!(matches!(error, CacheError::Exists { .. }), "{error}");
    assert_eq!(entries(base.path()), [base.path().join("train")]);
}

#[test]
fn metadata_too_large_as_json_is_refused_by_a_worker_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let text = "\u{1}".repeat(4 << 20);
    let mut samples = mixed(500);
    samples[300].1[3] = Cell::Str(text);
    let error = Setup::default()
        .write(base.path(), &NAMES, &samples)
        .unwrap_err();
    assert!(
        matches!(error, CacheError::Sample { row: 300, .. }),
        "{error}"
    );
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
}

#[test]
fn an_abandoned_or_interrupted_write_leaves_nothing() {
    for pushed in [0, 1, 500] {
        for interrupt in [false, true] {
            let base = tempfile::tempdir().unwrap();
            let mut writer = Setup::default().begin(base.path()).unwrap();
            for _ in 0..pushed {
                if writer
                    .push_named(&[7; 10_000], &[("a", Value::Int(1))])
                    .unwrap()
                {
                    writer.submit(&mut || Ok(())).unwrap();
                }
            }
            assert_eq!(entries(base.path()).len(), 1);
            if interrupt && pushed > 0 {
                let stop = writer.finish(&mut || Err(CacheError::Interrupted));
                // A write may be done before anybody asks.
                if stop.is_ok() {
                    continue;
                }
            } else {
                drop(writer);
            }
            assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn samples_in_flight_never_exceed_the_prefetch_size() {
    for (prefetch, size) in [
        (1, 1000),
        (2, 1000),
        (5, 200_000),
        (64, 1000),
        (64, 600_000),
    ] {
        for (algorithm, dictionary_bytes) in [
            (Algorithm::None, 0),
            (Algorithm::Lz4, 0),
            (Algorithm::Zstd, 0),
            (Algorithm::Zstd, 1024),
        ] {
            let base = tempfile::tempdir().unwrap();
            let setup = Setup {
                prefetch,
                algorithm,
                dictionary_bytes,
                threads: 64,
                ..Setup::default()
            };
            let sample = (noise(1, size), vec![Cell::Int(1)]);
            let count = if size > 100_000 { 24 } else { 300 };
            let samples = std::iter::repeat_n(&sample, count);
            setup.write(base.path(), &["a"], samples).unwrap();
            let (samples, bytes) = setup.profile.peak_in_flight();
            assert!(
                (1..=prefetch).contains(&samples),
                "{prefetch} {size}: {samples}"
            );
            assert!(
                bytes <= prefetch * size as u64,
                "{prefetch} {size}: {bytes}"
            );
            // A chunk is closed as soon as it is heavy, so that large samples travel alone.
            if size > 512 << 10 {
                let cores = std::thread::available_parallelism().unwrap().get();
                assert!(samples <= cores as u64 + 2);
            }
            let count = count as u64;
            assert_eq!(setup.profile.committed(), (count, count * size as u64));
        }
    }
}

#[test]
fn a_record_larger_than_a_shard_and_a_block_gets_its_own_shard() {
    let base = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> = [10, 9 << 20, 10, 4 << 20, 0]
        .iter()
        .map(|&size| (noise(3, size), vec![Cell::Int(1)]))
        .collect();
    let setup = Setup {
        shard_bytes: 1 << 20,
        ..Setup::default()
    };
    let written = setup.write(base.path(), &["a"], &samples).unwrap();
    let found = read(&written.path);
    assert!(found.samples == samples);
    let shards: Vec<u64> = found.index.iter().map(|row| row.shard).collect();
    assert_eq!(shards, [0, 1, 2, 3, 4]);
}

/// Writes a small cache of several shards on simulated disks.
fn with_scenario<T>(body: impl FnOnce(&Scenario<'_>) -> T) -> T {
    let samples: Vec<Sample> = (0..12)
        .map(|n| (noise(n, 300), vec![Cell::Int(1)]))
        .collect();
    body(&Scenario {
        before: Tree::default(),
        run: &|vfs, base| {
            let setup = Setup {
                shard_bytes: 2000,
                vfs,
                locked: true,
                ..Setup::default()
            };
            setup.write(base, &["a"], &samples).map(drop)
        },
        check: &|root| {
            let path = root.join("train");
            if !path.exists() {
                return Verdict::Absent;
            }
            match catch_unwind(|| read(&path).samples) {
                Ok(found) if found == samples => Verdict::Complete,
                Ok(_) => Verdict::Broken("other samples".to_owned()),
                Err(_) => Verdict::Broken("unreadable".to_owned()),
            }
        },
        die: &|root| fs::write(root.join(".train.lock"), "{}").unwrap(),
        judged: Mutex::default(),
        rerun: Mutex::default(),
    })
}

#[test]
fn a_power_cut_at_any_operation_of_a_write_leaves_the_whole_cache_or_none() {
    let states = with_scenario(|s| s.cut_power(&|disk| Arc::new(disk))).unwrap();
    assert!(states > 100, "{states}");
}

#[test]
fn a_shard_may_be_filled_to_its_last_byte() {
    // As published releases do it: records of 100 bytes, two of which fit 200 bytes and not 199.
    let sample = (vec![7; 100 - 8 - 7], vec![Cell::Int(1)]);
    for (shard_bytes, expected) in [
        (199, vec![100; 4]),
        (200, vec![200; 2]),
        (201, vec![200; 2]),
    ] {
        let base = tempfile::tempdir().unwrap();
        let setup = Setup {
            shard_bytes,
            ..Setup::default()
        };
        let samples = std::iter::repeat_n(&sample, 4);
        let written = setup.write(base.path(), &["a"], samples).unwrap();
        let lengths: Vec<u64> = written.manifest.shards.iter().map(|s| s.byte_len).collect();
        assert_eq!(lengths, expected);
    }
}

#[test]
fn every_failed_file_operation_gives_its_error_and_no_cache() {
    let tried = with_scenario(|s| s.inject_faults()).unwrap();
    assert!(tried > 100, "{tried}");
}

/// A disk on which something happens before a write to a shard.
fn odd(happens: impl Fn() + Send + Sync + 'static) -> Arc<dyn Vfs> {
    Arc::new(Altered::new(OsVfs).before_write(move |path| {
        if path.parent().unwrap().ends_with("shards") {
            happens();
        }
    }))
}

#[test]
fn a_panic_in_a_thread_is_an_internal_error_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let setup = Setup {
        vfs: odd(|| panic!("odd disk")),
        ..Setup::default()
    };
    let sample = (noise(1, 1 << 20), vec![Cell::Int(1)]);
    let endless = std::iter::repeat(&sample);
    let error = setup.write(base.path(), &["a"], endless).unwrap_err();
    assert!(error.to_string().contains("odd disk"), "{error}");
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_write_that_waits_for_a_stuck_disk_can_be_interrupted() {
    let base = tempfile::tempdir().unwrap();
    let (let_go, stuck) = std::sync::mpsc::channel::<()>();
    let stuck = Mutex::new(stuck);
    let setup = Setup {
        vfs: odd(move || {
            let _ = stuck.lock().unwrap().recv();
        }),
        ..Setup::default()
    };
    let mut writer = setup.begin(base.path()).unwrap();
    let payload = noise(1, 1 << 20);
    let mut let_go = Some(let_go);
    let error = loop {
        if writer
            .push_named(&payload, &[("a", Value::Int(1))])
            .unwrap()
        {
            // Only a writer that waits asks; then the disk may go on, or the threads could not end.
            let submitted = writer.submit(&mut || {
                let_go = None;
                Err(CacheError::Interrupted)
            });
            if let Err(error) = submitted {
                break error;
            }
        }
    };
    assert!(matches!(error, CacheError::Interrupted), "{error}");
    assert!(writer.rows() < 100, "{} MiB were taken", writer.rows());
    drop(writer);
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
}
