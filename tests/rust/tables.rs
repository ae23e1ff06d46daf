//! Tables and arrays give the files that their samples give one by one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryViewArray, Int64Array, RecordBatch, StringArray};
use arrow_buffer::Buffer;
use dataset_rt::error::CacheError;
use dataset_rt::format::columns::Value;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::manifest::Compression;
use dataset_rt::format::payload::{Dtype, FieldSpec, PayloadSchema};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::writer::{
    CacheWriter, Feed, FieldRows, Offsets, Rule, WriteRequest, WriterOptions,
};

const ROWS: usize = 3000;

fn writer(base: &Path, algorithm: Algorithm, payload: Option<PayloadSchema>) -> CacheWriter {
    let compression = Compression {
        algo: algorithm,
        ratio: 1.0,
    };
    CacheWriter::create(WriteRequest {
        vfs: Arc::new(OsVfs),
        base,
        name: "train",
        options: WriterOptions::new(64, 2, 100_000, compression).unwrap(),
        schema: None,
        payload,
        source_version: None,
        lock: CacheLock::without_locking(base, "train"),
        profile: Arc::default(),
    })
    .unwrap()
}

/// All files of the cache; the manifest has the SHA-256 of the others.
fn files(base: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in ["train", "train/shards"] {
        for entry in fs::read_dir(base.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(base).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn dense(row: usize) -> [u8; 40] {
    [(row % 251) as u8; 40]
}

fn ragged(row: usize) -> Vec<u8> {
    vec![(row % 13) as u8; 2 * (row % 7)]
}

fn bytes(row: usize) -> Vec<u8> {
    format!("{}", row * row).into_bytes()
}

fn text(row: usize) -> Option<String> {
    (row % 5 != 3).then(|| format!("row {row}"))
}

fn spec(name: &str, dtype: Dtype, shape: &[Option<u64>]) -> FieldSpec {
    FieldSpec {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

/// The samples one by one: fields `a` (bytes), `b` (dense) and `c` (ragged), columns `n` and `t`.
fn one_by_one(base: &Path, algorithm: Algorithm) {
    let schema = PayloadSchema::new(vec![
        spec("a", Dtype::Bytes, &[None]),
        spec("b", Dtype::Uint8, &[Some(40)]),
        spec("c", Dtype::Int16, &[None]),
    ]);
    let mut writer = writer(base, algorithm, Some(schema.unwrap()));
    for row in 0..ROWS {
        let mut payload = Vec::new();
        for extent in [bytes(row).len(), ragged(row).len() / 2] {
            payload.extend_from_slice(&(extent as u64).to_le_bytes());
        }
        payload.extend([bytes(row), dense(row).to_vec(), ragged(row)].concat());
        let text = text(row);
        let text = text.as_deref().map_or(Value::Null, Value::Str);
        let values = [("n", Value::Int(row as i64)), ("t", text)];
        if writer.push_named(&payload, &values).unwrap() {
            writer.submit(&mut || Ok(())).unwrap();
        }
    }
    writer.finish(&mut || Ok(())).unwrap();
}

/// The same samples as arrays of `b` and `c` and batches of the rest.
fn feed(batch_rows: usize) -> Feed {
    let mut offsets = vec![3i64];
    let mut values = vec![0; 6];
    for row in 0..ROWS {
        values.extend(ragged(row));
        offsets.push(values.len() as i64 / 2);
    }
    values.extend([0; 5]);
    let starts: Vec<usize> = (0..ROWS).step_by(batch_rows).collect();
    let batches = starts.into_iter().map(move |start| {
        let rows = start..(start + batch_rows).min(ROWS);
        let number = |row: usize| row as i64;
        let columns: [(&str, ArrayRef); 3] = [
            (
                "a",
                Arc::new(BinaryViewArray::from_iter_values(rows.clone().map(bytes))),
            ),
            (
                "t",
                Arc::new(StringArray::from_iter(rows.clone().map(text))),
            ),
            (
                "n",
                Arc::new(Int64Array::from_iter_values(rows.map(number))),
            ),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        );
        batch.map_err(|error| CacheError::internal(error.to_string()))
    });
    Feed {
        arrays: vec![
            (
                spec("b", Dtype::Uint8, &[Some(40)]),
                FieldRows::Dense {
                    bytes: Buffer::from((0..ROWS).flat_map(dense).collect::<Vec<u8>>()),
                    row_bytes: 40,
                },
            ),
            (
                spec("c", Dtype::Int16, &[None]),
                FieldRows::Ragged {
                    bytes: Buffer::from(values),
                    offsets: Offsets::Large(offsets.into()),
                    unit: 2,
                },
            ),
        ],
        rows: ROWS,
        batches: Some(Box::new(batches)),
        rule: Rule::First(1),
    }
}

#[test]
fn tables_give_the_files_of_their_samples_however_they_are_split() {
    for algorithm in [Algorithm::None, Algorithm::Lz4] {
        let expected = tempfile::tempdir().unwrap();
        one_by_one(expected.path(), algorithm);
        let expected = files(expected.path());
        assert!(expected.len() > 5, "one shard proves little");
        for batch_rows in [1, 700, ROWS] {
            let base = tempfile::tempdir().unwrap();
            let mut writer = writer(base.path(), algorithm, None);
            feed(batch_rows).run(&mut writer, &mut || Ok(())).unwrap();
            writer.finish(&mut || Ok(())).unwrap();
            assert_eq!(files(base.path()), expected, "{algorithm:?} {batch_rows}");
        }
    }
}

#[test]
fn a_look_that_fails_ends_the_table() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = writer(base.path(), Algorithm::None, None);
    let outcome = feed(7).run(&mut writer, &mut || Err(CacheError::Interrupted));
    assert!(
        matches!(outcome, Err(CacheError::Interrupted)),
        "{outcome:?}"
    );
    drop(writer);
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn arrays_and_batches_of_different_lengths_are_refused() {
    for rows in [ROWS - 1, ROWS + 1] {
        let base = tempfile::tempdir().unwrap();
        let mut writer = writer(base.path(), Algorithm::None, None);
        let mut feed = feed(ROWS);
        if rows > ROWS {
            feed.rows = rows;
        } else {
            feed.arrays.truncate(1);
            feed.arrays[0].1 = FieldRows::Dense {
                bytes: Buffer::from(vec![0u8; 40 * rows]),
                row_bytes: 40,
            };
        }
        let outcome = feed.run(&mut writer, &mut || Ok(()));
        assert!(
            matches!(outcome, Err(CacheError::Sample { .. })),
            "{outcome:?}"
        );
    }
}
