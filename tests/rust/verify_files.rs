//! A check of a cache finds whatever is wrong with its files, and finds nothing where nothing is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::error::CacheError;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA, SHARDS};
use dataset_rt::maintain::{Kind, verify};
use dataset_rt::store::generations::Wanted;

use crate::support::caches::{Forge, Layout, samples, write_here};
use crate::support::checking::{check, facts};
use crate::support::damage::{Damage, apply, every_damage, files, undo};

/// Writes the files of a cache to the disk and takes them out of memory, where the system can.
fn evict(cache: &Path) {
    for name in files(cache).keys() {
        let file = fs::File::open(cache.join(name)).unwrap();
        file.sync_all().unwrap();
        #[cfg(target_os = "linux")]
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
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
