//! A check of a cache finds every damaged record and says which sample it is, however many there are and wherever they
//! lie.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::format::columns::{Column, Value};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::{Manifest, ShardEntry};
use dataset_rt::format::metadata;
use dataset_rt::format::names::{CHECKSUMS, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::format::schema::Kind as ColumnKind;
use dataset_rt::limits::FINDINGS_MAX;
use dataset_rt::maintain::{Kind, Report};

use crate::support::caches::{Forge, Layout, record, samples, write_here};
use crate::support::checking::{check, facts};
use crate::support::damage::files;

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn everything_that_is_wrong_at_once_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let cache = write_here(folder.path(), "train", Layout::none(150), &samples(12, 60));
    let shards = files(&cache)
        .keys()
        .filter(|file| file.starts_with(SHARDS))
        .count();
    assert!(shards > 5, "{shards}");
    let part = |name: &str| PathBuf::from(name);
    let shard_file = |number| Path::new(SHARDS).join(shard(number));
    let manifest = Manifest::parse(
        Path::new(MANIFEST),
        &fs::read(cache.join(MANIFEST)).unwrap(),
    )
    .unwrap();
    let rows = fs::read(cache.join(INDEX)).unwrap();
    let row = |sample: usize| IndexRow::from_bytes(&rows[sample * 24..][..24]).unwrap();
    let in_shard = |shard| (0..12).filter(move |sample| row(*sample).shard == shard);
    // A record flipped, a shard lost, a shard cut in its last record, a checksum, the table, a wild index row.
    let flipped = in_shard(0).next_back().unwrap();
    flip(
        &cache.join(shard_file(0)),
        (row(flipped).offset + 9) as usize,
    );
    fs::remove_file(cache.join(shard_file(1))).unwrap();
    let cut = fs::OpenOptions::new()
        .write(true)
        .open(cache.join(shard_file(2)))
        .unwrap();
    cut.set_len(manifest.shards[2].byte_len - 1).unwrap();
    let (wrong_sum, wild) = (in_shard(3).next().unwrap(), in_shard(4).next().unwrap());
    flip(&cache.join(CHECKSUMS), wrong_sum * 4);
    flip(&cache.join(INDEX), wild * 24 + 7);
    flip(&cache.join(METADATA), 100);
    let record = |kind, shard, sample: usize| (kind, shard_file(shard), Some(sample as u64));
    let expected = BTreeSet::from([
        (Kind::Checksum, part(INDEX), None),
        (Kind::Checksum, part(CHECKSUMS), None),
        (Kind::Checksum, part(METADATA), None),
        (Kind::Checksum, shard_file(0), None),
        (Kind::MissingFile, shard_file(1), None),
        (Kind::WrongLength, shard_file(2), None),
        (Kind::IndexRow, part(INDEX), Some(wild as u64)),
        record(Kind::RecordChecksum, 0, flipped),
        record(Kind::RecordFormat, 2, in_shard(2).next_back().unwrap()),
        record(Kind::RecordChecksum, 3, wrong_sum),
    ]);
    let report = check(&cache, true);
    assert_eq!(facts(&report), expected);
    // Files come first, in the order of the manifest, then samples in theirs; again the same.
    let order = |report: &Report| -> Vec<_> {
        report
            .findings
            .iter()
            .map(|finding| finding.error.to_string())
            .collect()
    };
    assert_eq!(order(&check(&cache, true)), order(&report));
    assert_eq!(
        report.findings.last().unwrap().facts().sample_id,
        Some(wrong_sum as u64)
    );
    // With nothing but the manifest left, every file is missing.
    for file in files(&cache)
        .keys()
        .filter(|file| **file != Path::new(MANIFEST))
    {
        fs::remove_file(cache.join(file)).unwrap();
    }
    let found = facts(&check(&cache, true));
    assert_eq!(found.len(), shards + 3);
    assert!(found.iter().all(|(kind, ..)| *kind == Kind::MissingFile));
}

/// A cache of `count` tiny records in one shard.
fn numbered(count: usize) -> Forge {
    let payloads: Vec<Vec<u8>> = (0..count).map(|id| id.to_le_bytes().to_vec()).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    Forge::sound(Algorithm::None, &payloads)
}

#[test]
fn a_thousand_damaged_records_are_all_listed_and_only_they() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let forge = numbered(5000);
    forge.write(&cache);
    let mut bytes = forge.shards[0].clone();
    let damaged: Vec<u64> = (0..1000).map(|n| n * 4999 / 999).collect();
    for id in &damaged {
        let row = forge.index[*id as usize];
        bytes[(row.offset + row.byte_len - 1) as usize] ^= 1;
    }
    let path = Path::new(SHARDS).join(shard(0));
    fs::write(cache.join(&path), bytes).unwrap();
    let report = check(&cache, true);
    assert_eq!(report.finding_count, 1001);
    assert_eq!(report.findings[0].kind, Kind::Checksum);
    let found: Vec<_> = report.findings[1..]
        .iter()
        .map(|f| f.facts().sample_id.unwrap())
        .collect();
    assert_eq!(found, damaged);
    for finding in &report.findings[1..] {
        let facts = finding.facts();
        let row = forge.index[facts.sample_id.unwrap() as usize];
        assert_eq!(
            (facts.offset, &facts.path),
            (Some(row.offset), &cache.join(&path))
        );
    }
}

#[test]
fn more_findings_than_the_limit_are_counted_and_the_first_ones_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let count = FINDINGS_MAX + 321;
    let forge = numbered(count);
    forge.write(&cache);
    fs::write(cache.join(CHECKSUMS), vec![0x55; 4 * count]).unwrap();
    let report = check(&cache, true);
    assert_eq!(report.finding_count, count as u64 + 1);
    assert_eq!(report.findings.len(), FINDINGS_MAX);
    let last = report.findings.last().unwrap().facts();
    assert_eq!(last.sample_id, Some(FINDINGS_MAX as u64 - 2));
}

/// A cache whose records lie in another order than their ids, and in shards that hold ids far apart.
fn shuffled() -> Forge {
    const COUNT: u64 = 9000;
    let mut forge = numbered(COUNT as usize);
    let mut shards = vec![Vec::new(), Vec::new(), Vec::new()];
    let mut lens = [0; 3];
    for id in (0..COUNT).rev() {
        // The first and the last id share a shard that holds no other; the others take turns backwards.
        let shard = if id == 0 || id == COUNT - 1 {
            2
        } else {
            id % 2
        };
        let bytes = record(Algorithm::None, id as i64, &id.to_le_bytes());
        let offset = shards[shard as usize].len() as u64;
        let byte_len = bytes.len() as u64;
        forge.index[id as usize] = IndexRow {
            shard,
            offset,
            byte_len,
        };
        shards[shard as usize].extend(bytes);
        lens[shard as usize] += 8;
    }
    let entry = forge.manifest.shards[0].clone();
    forge.manifest.shards = (0..3)
        .map(|number| ShardEntry {
            name: shard(number as u64),
            byte_len: shards[number].len() as u64,
            uncompressed_byte_len: lens[number],
            ..entry.clone()
        })
        .collect();
    forge.shards = shards;
    forge
}

#[test]
fn records_in_any_order_and_any_shard_are_each_checked_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut forge = shuffled();
    forge.write(&cache);
    let report = check(&cache, true);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let damaged = [0, 1, 2, 4500, 8998, 8999];
    for id in damaged {
        let row = forge.index[id];
        let end = (row.offset + row.byte_len - 1) as usize;
        forge.checksums.get_or_insert_with(|| shuffled().truthful());
        forge.shards[row.shard as usize][end] ^= 1;
    }
    forge.write(&cache);
    let found: Vec<_> = check(&cache, true)
        .findings
        .iter()
        .map(|f| f.facts().sample_id)
        .collect();
    assert_eq!(found, damaged.map(|id| Some(id as u64)));
    forge.checksums = None;
    forge.manifest.shards[2].uncompressed_byte_len += 1;
    forge.write(&cache);
    let report = check(&cache, true);
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert_eq!(report.findings[0].kind, Kind::PayloadBytes);
}

#[test]
fn records_that_contradict_the_manifest_or_the_table_are_found_under_sound_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let find = |name: &str, attack: fn(&mut Forge)| {
        let mut forge = Forge::sound(Algorithm::Lz4, &[b"one", b"two", b"three", b"four"]);
        attack(&mut forge);
        let cache = folder.path().join(name);
        forge.write(&cache);
        let report = check(&cache, true);
        let found = report
            .findings
            .iter()
            .map(|f| (f.kind, f.facts().sample_id));
        found.collect::<Vec<_>>()
    };
    assert_eq!(
        find("metadata", |forge| {
            let at = forge.index[2].offset as usize + 8 + br#"{"id":"#.len();
            forge.shards[0][at] = b'7';
        }),
        [(Kind::MetadataMismatch, Some(2))]
    );
    assert_eq!(
        find("json", |forge| {
            let at = forge.index[1].offset as usize + 8;
            forge.shards[0][at] = b'!';
        }),
        [(Kind::RecordFormat, Some(1))]
    );
    assert_eq!(
        find("envelope", |forge| {
            let at = forge.index[3].offset as usize;
            forge.shards[0][at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        }),
        [(Kind::RecordFormat, Some(3))]
    );
    assert_eq!(
        find("length", |forge| forge.index[0].byte_len = 3),
        [(Kind::RecordFormat, Some(0))]
    );
    assert_eq!(
        find("rows", |forge| {
            let mut column = Column::new(Some(ColumnKind::Int));
            (0..3).for_each(|id| column.push(Value::Int(id)).unwrap());
            let schema = &forge.manifest.metadata_schema;
            let batch = metadata::to_batch(&[column], schema, 3).unwrap();
            let mut table = metadata::writer(Vec::new(), schema).unwrap();
            table.write(&batch).unwrap();
            table.finish().unwrap();
            forge.table = table.into_inner().unwrap();
        }),
        [(Kind::FileFormat, None)]
    );
}
