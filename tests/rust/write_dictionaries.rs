//! Dictionaries that a writer trains: what they save, what they depend on, and when there is none.

use std::fs;
use std::path::PathBuf;

use dataset_rt::error::CacheError;
use dataset_rt::format::columns::Value;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::DICTIONARY;

use crate::support::naive::{Cell, Sample, read};
use crate::support::writing::{Setup, entries, noise, texts};

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
