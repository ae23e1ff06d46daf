//! Manifests and metadata tables that lie about counts, lengths and names under checksums that fit, and what full
//! validation finds.

use std::fs;

use arrow_array::{RecordBatch, RecordBatchOptions};
use dataset_rt::dataset::{Caches, Dataset};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::metadata::{arrow_schema, writer};
use dataset_rt::format::names::MANIFEST;
use dataset_rt::format::schema::Schema;
use dataset_rt::store::generations::Wanted;
use dataset_rt::types::Io;

use crate::support::caches::Forge;
use crate::support::forgeries::{PAYLOADS, read};
use crate::support::reading::{deliver, open_error, options};

#[test]
fn manifests_that_lie_about_counts_and_lengths_are_refused() {
    let attacks: [fn(&mut Forge); 9] = [
        |forge| forge.manifest.sample_count = 2,
        |forge| forge.manifest.sample_count = 4,
        |forge| forge.manifest.sample_count = 0,
        |forge| forge.manifest.sample_count = 1 << 48,
        |forge| forge.manifest.sample_count = u64::MAX / 24,
        |forge| forge.manifest.shards[0].byte_len += 1,
        |forge| forge.manifest.shards[0].byte_len = i64::MAX as u64,
        |forge| forge.index.truncate(2),
        |forge| forge.index.push(forge.index[2]),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        attack(&mut forge);
        let reading = read(&forge);
        assert!(reading.delivered.samples.is_empty(), "attack {number}");
        assert!(
            reading.delivered.failure.is_some() && reading.table.is_err(),
            "attack {number}"
        );
    }
    // Fewer samples than the table has rows, or more, even if the index agrees.
    for count in [2, 4] {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.manifest.sample_count = count;
        forge.index.resize(count as usize, forge.index[2]);
        assert!(read(&forge).table.unwrap_err().contains("3 rows"));
    }
}

#[test]
fn row_counts_of_a_table_are_not_believed() {
    // Without columns, a batch may claim any number of rows; these add up to 3 if the sum wraps.
    let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
    forge.manifest.metadata_schema = Schema::default();
    let mut file = writer(Vec::new(), &Schema::default()).unwrap();
    for rows in [1 << 62, 1 << 62, 1 << 62, (1 << 62) + 3] {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = arrow_schema(&Schema::default());
        let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        file.write(&batch).unwrap();
    }
    file.finish().unwrap();
    forge.table = file.into_inner().unwrap();
    let fault = read(&forge).table.unwrap_err();
    assert!(fault.contains("rows"), "{fault}");
}

#[test]
fn columns_named_like_those_of_the_table_are_read_and_refused_the_table() {
    for column in ["cache_id", "sample_id", "weight"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        Forge::with_column(column, Algorithm::None, &PAYLOADS).write(&path);
        let dataset = Dataset::open(&[path], options(Io::Auto)).unwrap();
        let delivered = deliver(&dataset);
        assert_eq!(delivered.failure, None);
        assert_eq!(delivered.samples.len(), PAYLOADS.len());
        let table = dataset.samples_metadata().map(drop);
        let view = dataset.select([]).map(drop);
        for outcome in [table, view] {
            let Err(error @ CacheError::Manifest { .. }) = outcome else {
                panic!("{outcome:?}")
            };
            let expected = format!("metadata column `{column}` has a name that");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}

#[test]
fn shard_names_that_leave_their_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "../outside.bin",
        "/etc/hostname",
        "a/b.bin",
        "a\\b.bin",
        "..",
        ".",
        "",
        "C:x",
        "x\0y",
        "NUL",
    ];
    for name in names {
        let path = folder.path().join("cache");
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.write(&path);
        forge.manifest.shards[0].name = name.to_owned();
        fs::write(path.join(MANIFEST), forge.manifest.to_bytes().unwrap()).unwrap();
        fs::write(folder.path().join("outside.bin"), &forge.shards[0]).unwrap();
        let error = open_error(&path, Io::Auto).unwrap();
        assert!(error.contains("plain file name"), "{name:?}: {error}");
        fs::remove_dir_all(path).unwrap();
    }
}

/// A forged cache, opened and validated in full.
fn validated(forge: &Forge, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    forge.write(&path);
    Caches::open_stoppable(&[(path, Wanted::Newest)], Io::Auto, true, interrupt).map(drop)
}

#[test]
fn validation_compares_the_payload_bytes_of_a_shard() {
    for algorithm in [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd] {
        let mut forge = Forge::sound(algorithm, &PAYLOADS);
        validated(&forge, &mut || Ok(())).unwrap();
        forge.manifest.shards[0].uncompressed_byte_len += 1;
        let error = validated(&forge, &mut || Ok(())).unwrap_err().to_string();
        assert!(error.contains("payload bytes of the shard"), "{error}");
    }
}

#[test]
fn validation_ends_when_the_caller_says_so() {
    let forge = Forge::sound(Algorithm::None, &PAYLOADS);
    let outcome = validated(&forge, &mut || Err(CacheError::Interrupted));
    assert!(
        matches!(outcome, Err(CacheError::Interrupted)),
        "{outcome:?}"
    );
}
