//! Writes that are abandoned or interrupted, or whose disk fails, panics or hangs, and what they hold meanwhile.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use dataset_rt::error::CacheError;
use dataset_rt::format::columns::Value;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::store::vfs::{OsVfs, Vfs};

use crate::support::altered_vfs::Altered;
use crate::support::disk::Tree;
use crate::support::naive::{Cell, Sample, read};
use crate::support::scenario::{Scenario, Verdict};
use crate::support::writing::{Setup, entries, noise};

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
