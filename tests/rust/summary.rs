//! What is told of a cache without reading a payload is what its files hold.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use dataset_rt::error::CacheError;
use dataset_rt::format::index::{IndexRow, ROW_BYTES};
use dataset_rt::maintain::delete::delete;
use dataset_rt::store::cache::Cache;
use dataset_rt::store::pool::FilePool;
use dataset_rt::store::summary::{find, record_checksums, record_lengths, summary};
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;
use serde_json::Value;

use crate::support::caches::{Layout, samples, write_here};

/// More samples than are looked at together.
const MANY: usize = 70_000;

fn open(path: &Path, io: Io) -> Cache {
    Cache::open(path, Arc::new(FilePool::new(io))).unwrap()
}

fn told(path: &Path) -> Value {
    serde_json::to_value(summary(path).unwrap()).unwrap()
}

#[test]
fn lengths_and_checksums_of_records_are_those_of_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let many: Vec<_> = samples(100, 3).into_iter().cycle().take(MANY).collect();
    let path = write_here(folder.path(), "train", Layout::none(1 << 20), &many);
    let index = fs::read(path.join("index.bin")).unwrap();
    let rows = index.chunks_exact(ROW_BYTES as usize);
    let lengths: Vec<u64> = rows
        .map(|row| IndexRow::from_bytes(row).unwrap().byte_len)
        .collect();
    let sums = fs::read(path.join("checksums.bin")).unwrap();
    let sums: Vec<u64> = sums
        .as_chunks::<4>()
        .0
        .iter()
        .map(|sum| u32::from_le_bytes(*sum).into())
        .collect();
    for io in [Io::Mmap, Io::Pread] {
        let cache = open(&path, io);
        assert_eq!(record_lengths(&cache).unwrap(), lengths);
        assert_eq!(record_checksums(&cache).unwrap().unwrap(), sums);
    }
    assert_eq!(lengths.len(), MANY);
}

#[test]
fn a_summary_counts_the_files_of_its_generation() {
    let folder = tempfile::tempdir().unwrap();
    let written = samples(300, 90);
    let path = write_here(folder.path(), "train", Layout::trained(2000), &written);
    let bytes = |files: &[&str]| -> u64 {
        files
            .iter()
            .map(|file| fs::metadata(path.join(file)).unwrap().len())
            .sum()
    };
    let shards: u64 = fs::read_dir(path.join("shards"))
        .unwrap()
        .map(|shard| shard.unwrap().metadata().unwrap().len())
        .sum();
    let tables = bytes(&[
        "index.bin",
        "checksums.bin",
        "metadata.arrow",
        "dictionary.zstd",
    ]);
    let before = told(&path);
    assert_eq!(before["stored_bytes"], shards + tables);
    assert_eq!(before["shard_bytes"], shards);
    assert_eq!(before["dictionary_bytes"], bytes(&["dictionary.zstd"]));
    let payloads: usize = written.iter().map(|(payload, _)| payload.len()).sum();
    assert_eq!(before["payload_bytes"], payloads);
    assert_eq!(before["generation"], 0);
    assert_eq!(before["compression"]["zstd"], before["shards"]);

    delete(Arc::new(OsVfs), &path, vec![7, 8]).unwrap();
    let after = told(&path);
    assert_eq!(
        (&after["samples"], &after["deleted"]),
        (&298.into(), &2.into())
    );
    assert_eq!(
        (&after["generation"], &after["operation"]),
        (&1.into(), &"delete".into())
    );
    assert_eq!(
        after["stored_bytes"],
        shards + tables + bytes(&["generations/000001/deleted.bin"])
    );
}

#[test]
fn caches_are_found_in_a_folder_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path();
    for name in ["b", "a"] {
        write_here(base, name, Layout::none(1000), &samples(3, 3));
    }
    fs::create_dir_all(base.join("empty")).unwrap();
    fs::create_dir_all(base.join(".staging")).unwrap();
    fs::write(base.join(".staging/manifest.json"), "{}").unwrap();
    fs::write(base.join("file"), "").unwrap();
    assert_eq!(find(base).unwrap(), [base.join("a"), base.join("b")]);
    for path in ["a", "empty", "file", "missing"] {
        assert_eq!(find(&base.join(path)).unwrap(), [base.join(path)]);
    }
    let missing = summary(&base.join("empty")).unwrap_err();
    assert!(matches!(missing, CacheError::NotFound { .. }));
}
