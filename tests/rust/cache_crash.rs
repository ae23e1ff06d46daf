//! Power cuts and failing disks under the real writer, judged by the real reader and its full validation.
//!
//! The threads of a writer may do independent operations in another order on another run. A power cut is tried on the
//! recorded operations of one run; a failure is put at a call number, whatever call that is.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dataset_rt::dataset::{Dataset, DatasetOptions};
use dataset_rt::error::Result;
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::Vfs;
use dataset_rt::types::Io;

use crate::support::altered_vfs::forgetful;
use crate::support::caches::{Layout, samples, write};
use crate::support::crash_vfs::SimDisk;
use crate::support::disk::Tree;
use crate::support::naive::Sample;
use crate::support::reading::{deliver, options};
use crate::support::scenario::{Scenario, Verdict};

const NAME: &str = "train";

fn rows() -> Vec<Sample> {
    samples(5, 300)
}

/// Enough to train a dictionary on.
fn many_rows() -> Vec<Sample> {
    samples(20, 60)
}

/// Two shards with records in them, or one that needs a dictionary.
fn publish(vfs: Arc<dyn Vfs>, base: &Path, trained: bool) -> Result<()> {
    let lock = CacheLock::try_acquire(base, NAME)?;
    let (layout, rows) = match trained {
        false => (Layout::none(800), rows()),
        true => (Layout::trained(1 << 20), many_rows()),
    };
    write(vfs, base, NAME, lock, layout, &rows).map(drop)
}

/// Opens the cache with validation, and reads every sample.
fn judge(base: &Path, trained: bool) -> Verdict {
    let cache = base.join(NAME);
    if !cache.exists() {
        return Verdict::Absent;
    }
    let options = DatasetOptions {
        validate_cache: true,
        ..options(Io::Pread)
    };
    match Dataset::open(&[cache], options) {
        Err(error) => Verdict::Broken(error.to_string()),
        Ok(dataset) => {
            let delivered = deliver(&dataset);
            let expected = if trained { many_rows() } else { rows() };
            let complete = cache_has_dictionary(base) == trained;
            if complete && delivered.failure.is_none() && delivered.samples == expected {
                Verdict::Complete
            } else {
                Verdict::Broken(format!("{delivered:?}"))
            }
        }
    }
}

fn cache_has_dictionary(base: &Path) -> bool {
    base.join(NAME).join(DICTIONARY).exists()
}

fn with_scenario<T>(base: &str, body: impl FnOnce(&Scenario<'_>) -> T) -> T {
    with_either_scenario(base, false, body)
}

fn with_either_scenario<T>(base: &str, trained: bool, body: impl FnOnce(&Scenario<'_>) -> T) -> T {
    let scenario = Scenario {
        before: Tree::new(),
        run: &|vfs, root| publish(vfs, &root.join(base), trained),
        check: &|root| judge(&root.join(base), trained),
        die: &|root| {
            let base = root.join(base);
            fs::create_dir_all(&base).unwrap();
            let holder = r#"{"pid":1,"host":"gone","since_unix":1}"#;
            fs::write(base.join(format!(".{NAME}.lock")), holder).unwrap();
        },
        judged: Mutex::default(),
        rerun: Mutex::default(),
    };
    body(&scenario)
}

fn sound(disk: SimDisk) -> Arc<dyn Vfs> {
    Arc::new(disk)
}

#[test]
fn a_power_cut_under_the_writer_leaves_no_cache_or_a_valid_one() {
    for base in ["", "new/base"] {
        let states = with_scenario(base, |scenario| scenario.cut_power(&sound)).unwrap();
        assert!(states > 500, "{states}");
    }
}

#[test]
fn a_dictionary_is_published_with_its_cache_or_not_at_all() {
    let states = with_either_scenario("", true, |scenario| scenario.cut_power(&sound)).unwrap();
    assert!(states > 300, "{states}");
    let tried = with_either_scenario("new", true, |scenario| scenario.inject_faults()).unwrap();
    assert!(tried > 150, "{tried}");
    let mount = |disk| forgetful(disk, |path| path.ends_with(DICTIONARY));
    let found = with_either_scenario("", true, |scenario| scenario.cut_power(&mount));
    assert!(found.is_err(), "no sync of the dictionary passed {found:?}");
}

#[test]
fn a_failing_disk_under_the_writer_leaves_no_cache_or_a_valid_one() {
    let tried = with_scenario("new/base", |scenario| scenario.inject_faults()).unwrap();
    assert!(tried > 200, "{tried}");
}

#[test]
fn every_sync_the_writer_might_forget_is_missed() {
    type Forgets = fn(&Path) -> bool;
    let forgotten: [(&str, Forgets); 8] = [
        ("a shard", |path| path.ends_with("000001.bin")),
        ("the index", |path| path.ends_with(INDEX)),
        ("the checksums", |path| path.ends_with(CHECKSUMS)),
        ("the metadata table", |path| path.ends_with(METADATA)),
        ("the manifest", |path| path.ends_with(MANIFEST)),
        ("the directory of shards", |path| path.ends_with("shards")),
        ("the staging directory", |path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(".train.tmp-"))
        }),
        ("the base", |path| path.ends_with("base")),
    ];
    for (what, forgets) in forgotten {
        let mount = |disk| forgetful(disk, forgets);
        let found = with_scenario("base", |scenario| scenario.cut_power(&mount));
        assert!(found.is_err(), "no sync of {what} passed {found:?}");
    }
}
