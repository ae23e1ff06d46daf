//! Dictionaries that are none, or not those of their cache.

use std::fs;

use dataset_rt::dataset::Caches;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::DICTIONARY;
use dataset_rt::types::Io;

use crate::support::caches::{Forge, Layout, copy, samples, write_here};
use crate::support::forgeries::{ENGINES, read};
use crate::support::reading::{Reading, open_error, options};

/// Payloads that zstd shrinks.
const LONG: [&[u8]; 2] = [&[7; 300], &[9; 200]];

/// What a cache with this dictionary delivers, if no record of it was compressed with it.
fn read_with_dictionary(dictionary: &[u8]) -> std::result::Result<(), String> {
    let mut forge = Forge::sound(Algorithm::Zstd, &LONG);
    forge.dictionary = Some(dictionary.to_vec());
    let delivered = read(&forge).delivered;
    match delivered.failure {
        Some(failure) => {
            assert!(delivered.samples.is_empty());
            Err(failure)
        }
        None => {
            let payloads = delivered.samples.iter().map(|(payload, _)| &payload[..]);
            assert!(payloads.eq(LONG));
            Ok(())
        }
    }
}

#[test]
fn a_dictionary_that_is_none_is_refused_before_anything_is_restored_with_it() {
    let magic = [0x37, 0xa4, 0x30, 0xec];
    let noise: Vec<u8> = (0..500_u32).map(|at| (at * at / 7) as u8).collect();
    for len in [4, 100, noise.len()] {
        let bad = [&magic[..], &noise[..len]].concat();
        let fault = read_with_dictionary(&bad).unwrap_err();
        assert!(
            fault.contains("a dictionary that zstd cannot load"),
            "{fault}"
        );
    }
    // Without the magic number it is content to refer to, which these records do not.
    for harmless in [&[][..], &magic, &noise] {
        assert_eq!(read_with_dictionary(harmless), Ok(()));
    }
}

#[test]
fn caches_that_differ_only_in_their_dictionary_have_other_contents() {
    let contents = |dictionary: Option<&[u8]>| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let mut forge = Forge::sound(Algorithm::Zstd, &LONG);
        forge.dictionary = dictionary.map(<[u8]>::to_vec);
        forge.write(&path);
        let caches = Caches::open(&[path], Io::Auto, false).unwrap();
        caches.contents().clone()
    };
    assert_eq!(contents(Some(b"one")), contents(Some(b"one")));
    assert_ne!(contents(Some(b"one")), contents(Some(b"two")));
    assert_ne!(contents(Some(b"one")), contents(None));
}

#[test]
fn another_dictionary_than_the_one_described_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = write_here(
        folder.path(),
        "train",
        Layout::trained(1 << 20),
        &samples(20, 60),
    );
    let sound = fs::read(cache.join(DICTIONARY)).unwrap();
    assert!(Reading::of(std::slice::from_ref(&cache), options(Io::Auto)).is_sound());
    let mut altered = sound.clone();
    *altered.last_mut().unwrap() ^= 1;
    for (bytes, at_open) in [
        (Some(&altered[..]), false),
        (Some(&sound[1..]), true),
        (Some(&[]), true),
        (None, true),
    ] {
        copy(&cache, &path);
        match bytes {
            Some(bytes) => fs::write(path.join(DICTIONARY), bytes).unwrap(),
            None => fs::remove_file(path.join(DICTIONARY)).unwrap(),
        }
        for io in ENGINES {
            let error = open_error(&path, io);
            assert_eq!(error.is_some(), at_open, "{error:?}");
            let failure = match error {
                Some(error) => error,
                None => {
                    let paths = std::slice::from_ref(&path);
                    Reading::of(paths, options(io)).delivered.failure.unwrap()
                }
            };
            assert!(failure.contains(DICTIONARY), "{failure}");
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
