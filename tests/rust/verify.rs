//! A check of a cache finds everything that is wrong with it, says which samples, and finds nothing where nothing is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::error::CacheError;
use dataset_rt::format::columns::{Column, Value};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::{Manifest, ShardEntry};
use dataset_rt::format::metadata;
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::format::schema::Kind as ColumnKind;
use dataset_rt::limits::FINDINGS_MAX;
use dataset_rt::maintain::{Finding, Kind, Report, verify};
use dataset_rt::store::generations::Wanted;

use crate::support::caches::{Forge, Layout, record, samples, write_here};
use crate::support::damage::{Damage, apply, every_damage, files, undo};

fn check(cache: &Path, full: bool) -> Report {
    verify(cache, Wanted::Newest, full, &mut |_| Ok(())).unwrap()
}

/// What is wrong, and with which file and sample.
fn facts(report: &Report) -> BTreeSet<(Kind, PathBuf, Option<u64>)> {
    let fact = |finding: &Finding| {
        let facts = finding.facts();
        let inside = facts.path.strip_prefix(&report.path).unwrap().to_owned();
        (finding.kind, inside, facts.sample_id)
    };
    assert_eq!(report.findings.len() as u64, report.finding_count);
    report.findings.iter().map(fact).collect()
}

/// Writes the files of a cache to the disk and takes them out of memory, where the system can.
fn evict(cache: &Path) {
    for name in files(cache).keys() {
        let file = fs::File::open(cache.join(name)).unwrap();
        file.sync_all().unwrap();
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn layouts() -> [(Layout, usize); 4] {
    [
        (Layout::none(150), 7),
        (Layout::lz4(150), 7),
        (Layout::zstd(250), 7),
        (Layout::trained(1 << 20), 40),
    ]
}

#[test]
fn nothing_is_wrong_with_sound_caches_and_every_byte_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut caches: Vec<PathBuf> = layouts()
        .iter()
        .enumerate()
        .map(|(name, (layout, count))| {
            let samples = samples(*count, 60);
            write_here(folder.path(), &name.to_string(), *layout, &samples)
        })
        .collect();
    // A record longer than what is read at once, one that ends where that does, and empty ones.
    let block = 1 << 20;
    let long: Vec<Vec<u8>> = [3 * block, 1, block - 16, 0, block + 1, 5 * block + 77, 0]
        .iter()
        .map(|len| (0..*len).map(|at| (at / 3) as u8).collect())
        .collect();
    for algorithm in [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd] {
        let long: Vec<&[u8]> = long.iter().map(Vec::as_slice).collect();
        let path = folder.path().join(format!("{algorithm:?}"));
        Forge::sound(algorithm, &long).write(&path);
        caches.push(path);
    }
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published");
    for name in ["0.2.0/fixed-none", "0.2.0/mixed-lz4", "0.4.8/mixed-none"] {
        caches.push(published.join(name));
    }
    for cache in caches {
        for (full, is_cold) in [(false, false), (true, false), (true, true)] {
            if is_cold {
                evict(&cache);
            }
            let report = check(&cache, full);
            assert!(report.findings.is_empty(), "{:?}", report.findings);
            let files = files(&cache);
            let len = |name: &str| files[Path::new(name)].len() as u64;
            let all: u64 = files.values().map(|bytes| bytes.len() as u64).sum();
            assert_eq!(
                report.bytes_read,
                if full {
                    all - len(MANIFEST) + len(INDEX)
                } else {
                    len(INDEX)
                }
            );
            let manifest =
                Manifest::parse(Path::new(MANIFEST), &files[Path::new(MANIFEST)]).unwrap();
            assert_eq!((report.samples, report.full), (manifest.sample_count, full));
        }
    }
}

#[test]
fn every_damage_is_found_in_the_file_that_has_it() {
    for (layout, count) in layouts() {
        let folder = tempfile::tempdir().unwrap();
        let cache = write_here(folder.path(), "train", layout, &samples(count, 60));
        for (file, bytes) in &files(&cache) {
            let step = (bytes.len() / 11).max(1);
            for damage in every_damage(bytes.len(), &[0x01, 0x80]).step_by(step) {
                apply(&cache.join(file), &damage, bytes);
                let found = verify(&cache, Wanted::Newest, true, &mut |_| Ok(()));
                let left = fs::read(cache.join(file)).unwrap_or_default();
                undo(&cache.join(file), &damage, bytes);
                let context = || format!("{} {damage:?}: {found:?}", file.display());
                if file == Path::new(MANIFEST) && damage == Damage::Remove {
                    assert!(
                        matches!(found, Err(CacheError::NotFound { .. })),
                        "{}",
                        context()
                    );
                    continue;
                }
                let report = found.as_ref().unwrap();
                let named = facts(report).iter().any(|(_, path, _)| path == file);
                // Without its name, the checksum of the manifest is a field nobody knows; the others are as they were.
                let parse = |bytes: &[u8]| Manifest::parse(file, bytes).ok();
                let harmless = file == Path::new(MANIFEST) && parse(&left) == parse(bytes);
                assert!(named || harmless, "{}", context());
            }
        }
        assert!(check(&cache, true).findings.is_empty());
    }
}

#[test]
fn a_fast_check_finds_files_that_are_missing_too_short_or_too_long_and_wild_index_rows() {
    let folder = tempfile::tempdir().unwrap();
    let cache = write_here(folder.path(), "train", Layout::none(150), &samples(7, 60));
    for (file, bytes) in &files(&cache) {
        let path = cache.join(file);
        for (damage, kind) in [
            (Damage::Cut(bytes.len() - 1), Kind::WrongLength),
            (Damage::Append(b"\n"), Kind::WrongLength),
            (Damage::Remove, Kind::MissingFile),
        ] {
            // The manifest does not say how long the table is, and says itself when it is cut.
            if file == Path::new(MANIFEST)
                || (file == Path::new(METADATA) && damage != Damage::Remove)
            {
                continue;
            }
            apply(&path, &damage, bytes);
            let found = facts(&check(&cache, false));
            assert_eq!(
                found,
                BTreeSet::from([(kind, file.clone(), None)]),
                "{damage:?}"
            );
            undo(&path, &damage, bytes);
        }
    }
    let rows = fs::read(cache.join(INDEX)).unwrap();
    let mut wild = rows.clone();
    wild[3 * 24] = 99;
    wild[5 * 24 + 15] = 0xff;
    fs::write(cache.join(INDEX), &wild).unwrap();
    let row = |sample| (Kind::IndexRow, PathBuf::from(INDEX), Some(sample));
    assert_eq!(
        facts(&check(&cache, false)),
        BTreeSet::from([row(3), row(5)])
    );
    let report = check(&cache, false);
    assert_eq!(report.findings[1].facts().offset, Some(5 * 24));
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

#[test]
fn a_shard_of_a_size_that_no_record_has_is_refused_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut forge = Forge::sound(Algorithm::None, &[b"one", b"two"]);
    let len = 1 << 43;
    forge.manifest.shards[0].byte_len = len;
    forge.index[1] = IndexRow {
        shard: 0,
        offset: 0,
        byte_len: len,
    };
    forge.checksums = Some(forge.truthful());
    forge.write(&cache);
    // The file is as short as it was, so only the row claims that much.
    let report = check(&cache, true);
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.kind, f.facts().sample_id))
        .collect();
    assert_eq!(
        found,
        [(Kind::WrongLength, None), (Kind::RecordFormat, Some(1))]
    );
}

#[cfg(unix)]
#[test]
fn links_and_folders_in_place_of_files_are_found_and_not_followed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let cache = write_here(
        folder.path(),
        "train",
        Layout::trained(1 << 20),
        &samples(40, 60),
    );
    let aside = folder.path().join("aside");
    for name in [INDEX, CHECKSUMS, METADATA, DICTIONARY, SHARDS, MANIFEST] {
        let path = cache.join(name);
        fs::rename(&path, &aside).unwrap();
        symlink(&aside, &path).unwrap();
        let found = facts(&check(&cache, true));
        let kind = if name == MANIFEST {
            Kind::Manifest
        } else {
            Kind::WrongKind
        };
        assert!(
            found.contains(&(kind, PathBuf::from(name), None)),
            "{name}: {found:?}"
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let found = facts(&check(&cache, true));
        assert!(!found.is_empty(), "{name}");
        fs::remove_dir(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    assert!(check(&cache, true).findings.is_empty());
}

#[test]
fn there_is_no_report_without_a_cache_or_when_the_caller_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("nowhere")] {
        let outcome = verify(&path, Wanted::Newest, true, &mut |_| Ok(()));
        assert!(
            matches!(outcome, Err(CacheError::NotFound { .. })),
            "{outcome:?}"
        );
    }
    let cache = write_here(folder.path(), "train", Layout::none(150), &samples(7, 60));
    let outcome = verify(&cache, Wanted::Newest, true, &mut |_| {
        Err(CacheError::Interrupted)
    });
    assert!(
        matches!(outcome, Err(CacheError::Interrupted)),
        "{outcome:?}"
    );
}

#[test]
fn a_manifest_that_cannot_be_trusted_is_all_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let cache = write_here(folder.path(), "train", Layout::none(150), &samples(7, 60));
    let sound = fs::read(cache.join(MANIFEST)).unwrap();
    let text = String::from_utf8(sound.clone()).unwrap();
    let newer = text.replace("\"format_version\": 2", "\"format_version\": 9");
    assert_ne!(newer, text);
    for bytes in [&b""[..], b"{}", &sound[..sound.len() - 2], newer.as_bytes()] {
        fs::write(cache.join(MANIFEST), bytes).unwrap();
        let found = facts(&check(&cache, true));
        assert_eq!(
            found,
            BTreeSet::from([(Kind::Manifest, PathBuf::from(MANIFEST), None)])
        );
    }
}
