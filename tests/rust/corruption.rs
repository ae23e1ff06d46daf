//! Whatever happens to the files of a cache, what is read is right or refused: every byte flipped, every file cut at
//! every length, grown and removed, under the default options, through both engines.

use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::manifest::Manifest;
use dataset_rt::format::names::{DICTIONARY, MANIFEST, SHARDS};
use dataset_rt::types::Io;

use crate::support::caches::{Layout, copy, samples, write_here};
use crate::support::damage::{Damage, apply, every_damage, files, undo};
use crate::support::reading::{Reading, options};

/// Does each damage to a copy of the cache and reads it with both engines, which must agree in all they deliver and say.
/// What is delivered must be what the sound cache delivers, up to a failure. Damage without any failure is returned,
/// with what the damaged file holds.
fn survivors(cache: &Path, damages: &[(PathBuf, Damage)]) -> Vec<(PathBuf, Damage, Vec<u8>)> {
    const THREADS: usize = 2;
    let sound = Reading::of(&[cache.to_owned()], options(Io::Auto));
    assert!(sound.is_sound(), "{:?}", sound.delivered.failure);
    let files = files(cache);
    let work = |thread: usize| {
        let folder = tempfile::tempdir().unwrap();
        let copied = folder.path().join("cache");
        copy(cache, &copied);
        let paths = [copied.clone()];
        let mut survivors = Vec::new();
        for (file, damage) in damages.iter().skip(thread).step_by(THREADS) {
            let (path, bytes) = (copied.join(file), &files[file]);
            apply(&path, damage, bytes);
            let found = Reading::of(&paths, options(Io::Auto));
            let by_reads = Reading::of(&paths, options(Io::Pread));
            let context = || format!("{} {damage:?}: {found:?}", file.display());
            assert_eq!(found, by_reads, "{} {damage:?}", file.display());
            let delivered = &found.delivered;
            let expected = sound.delivered.samples.get(..delivered.samples.len());
            assert_eq!(expected, Some(&delivered.samples[..]), "{}", context());
            let complete = delivered.samples.len() == sound.delivered.samples.len();
            assert!(complete || delivered.failure.is_some(), "{}", context());
            if let (Ok(found), Ok(expected)) = (&found.table, &sound.table) {
                assert_eq!(found, expected, "{}", context());
            }
            if found.is_sound() {
                let left = fs::read(&path).unwrap();
                survivors.push((file.clone(), damage.clone(), left));
            }
            undo(&path, damage, bytes);
        }
        assert!(Reading::of(&paths, options(Io::Auto)).is_sound());
        survivors
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let survivors = threads.into_iter().map(|thread| thread.join().unwrap());
        survivors.flatten().collect()
    })
}

fn manifest(bytes: &[u8]) -> Manifest {
    Manifest::parse(Path::new(MANIFEST), bytes).unwrap()
}

#[test]
fn a_damaged_byte_a_cut_or_a_lost_file_is_never_served() {
    let few = samples(5, 9);
    // Enough for a dictionary, and payloads that it shrinks.
    let many = samples(20, 60);
    for (layout, samples) in [
        (Layout::none(150), &few),
        (Layout::lz4(150), &few),
        (Layout::zstd(250), &samples(5, 40)),
        (Layout::trained(1 << 20), &many),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let cache = write_here(folder.path(), "train", layout, samples);
        let files = files(&cache);
        assert!(files.len() >= 6, "{:?}", files.keys());
        let has_dictionary = files.contains_key(Path::new(DICTIONARY));
        assert_eq!(has_dictionary, layout.dictionary_bytes > 0);
        let mut damages = Vec::new();
        for (file, bytes) in &files {
            // What compression leaves as it is need not be tried twice.
            let compressed = file.starts_with(SHARDS) || file == Path::new(DICTIONARY);
            let described = has_dictionary && file == Path::new(MANIFEST);
            if layout.algorithm == Algorithm::None || compressed || described {
                let masks = match has_dictionary {
                    true => &[0x20][..],
                    false => &[0x01, 0x80, 0xff],
                };
                let every = every_damage(bytes.len(), masks);
                damages.extend(every.map(|damage| (file.clone(), damage)));
            }
        }
        for (file, damage, left) in survivors(&cache, &damages) {
            // Without its name, the checksum of the manifest is a field nobody knows; the others are as they were.
            assert_eq!(file, Path::new(MANIFEST), "{damage:?}");
            assert_eq!(manifest(&left), manifest(&files[&file]), "{damage:?}");
        }
    }
}

/// The manifest without the fields that nothing protects in published caches. None of them decides which bytes a
/// sample or its metadata has: the source name, the numeric id of format 3, whether the format is called 2 or 3, the
/// raw length of a shard, and the compression ratio that the writer was told to expect.
fn protected_part(mut manifest: Manifest) -> Manifest {
    assert!([2, 3, 4].contains(&manifest.format_version));
    manifest.format_version = 2;
    manifest.cache_id = None;
    manifest.source_name.clear();
    for shard in &mut manifest.shards {
        shard.uncompressed_byte_len = 0;
        shard.compression.ratio = 1.0;
    }
    manifest
}

#[test]
fn damage_to_a_published_cache_is_refused_or_changes_no_sample() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published");
    // Hashed as a whole, a file gives one flip no better chance than another.
    let caches = [
        ("0.2.0/fixed-none", 1, 5, &[0x01, 0x02, 0x80, 0xff][..]),
        ("0.4.8/mixed-lz4", 3, 97, &[0x01]),
        ("0.4.8/mixed-none", 7, 389, &[0x02]),
    ];
    for (cache, manifest_step, step, masks) in caches {
        let cache = published.join(cache);
        let files = files(&cache);
        let mut damages = Vec::new();
        for (file, bytes) in &files {
            let (masks, step) = match file == Path::new(MANIFEST) {
                true => (masks, manifest_step),
                false => (&[0x10][..], step),
            };
            let every = every_damage(bytes.len(), masks).step_by(step);
            damages.extend(every.map(|damage| (file.clone(), damage)));
        }
        let survivors = survivors(&cache, &damages);
        assert!(!survivors.is_empty());
        for (file, damage, left) in survivors {
            assert_eq!(file, Path::new(MANIFEST), "{damage:?}");
            let (found, expected) = (manifest(&left), manifest(&files[&file]));
            assert_eq!(
                protected_part(found),
                protected_part(expected),
                "{damage:?}"
            );
        }
    }
}
