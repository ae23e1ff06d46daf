//! Several writers of one cache, in threads and in processes, some of them killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};

use dataset_rt::error::{CacheError, Result};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::publish::Staging;
use dataset_rt::store::sweep::sweep_stale;
use dataset_rt::store::vfs::OsVfs;

use crate::crash::{NAME, judge, publish};
use crate::support::scenario::Verdict;

const CHILD: &str = "DATASET_RT_TEST_CHILD";
const SAYS: &str = "child says: ";

/// Starts this test binary again as a child that plays `role` in `base`.
fn start(role: &str, base: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writers::child", "--nocapture"])
        .env(CHILD, format!("{role}:{}", base.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The next thing the child says.
fn hear(child: &mut Child) -> String {
    BufReader::new(child.stdout.as_mut().unwrap())
        .lines()
        .map(|line| line.unwrap())
        .find_map(|line| line.split_once(SAYS).map(|(_, said)| said.to_owned()))
        .unwrap()
}

/// Not a test unless started by one.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let (role, base) = task.split_once(':').unwrap();
    let base = Path::new(base);
    match role {
        "hold" => {
            let lock = CacheLock::try_acquire(base, NAME).unwrap();
            let staging = Staging::begin(Arc::new(OsVfs), base, NAME, lock).unwrap();
            let mut file = staging.create_file("index.bin").unwrap();
            file.write_all(b"half of it").unwrap();
            println!("{SAYS}holding");
            // Until killed, or until the parent is gone.
            let _ = std::io::stdin().read(&mut [0]);
        }
        "build" => println!("{SAYS}{}", build_or_reuse(base).unwrap()),
        _ => panic!("{role}"),
    }
}

/// What every process does that wants the cache to exist.
fn build_or_reuse(base: &Path) -> Result<&'static str> {
    let lock = CacheLock::acquire(base, NAME, &mut |_| Ok(()))?;
    if base.join(NAME).exists() {
        return Ok("reused");
    }
    publish(Arc::new(OsVfs), base, lock).map(|()| "built")
}

fn names(base: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(base)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn sixteen_processes_that_want_one_cache_build_it_once() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("new/base");
    let mut children: Vec<Child> = (0..16).map(|_| start("build", &base)).collect();
    let mut said = BTreeMap::new();
    for child in &mut children {
        *said.entry(hear(child)).or_insert(0) += 1;
        assert!(child.wait().unwrap().success());
    }
    let expected = [("built".to_owned(), 1), ("reused".to_owned(), 15)];
    assert_eq!(said, BTreeMap::from(expected));
    assert_eq!(judge(&base), Verdict::Complete);
    assert_eq!(names(&base), [NAME]);
}

#[test]
fn a_killed_writer_frees_the_lock_and_is_swept_but_a_live_one_is_not() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path();
    let mut child = start("hold", base);
    assert_eq!(hear(&mut child), "holding");
    match CacheLock::try_acquire(base, NAME) {
        Err(CacheError::Locked { path, holder }) => {
            assert_eq!(path, base.join(NAME));
            let named = format!("process {} on ", child.id());
            assert!(holder.starts_with(&named), "{holder}");
        }
        other => panic!("{other:?}"),
    }
    // A writer of another cache, even one that suspects remains, leaves the live one alone.
    fs::write(base.join(".letters.lock"), "killed").unwrap();
    let lock = CacheLock::try_acquire(base, "letters").unwrap();
    assert!(lock.has_remains());
    drop(Staging::begin(Arc::new(OsVfs), base, "letters", lock).unwrap());
    assert_eq!(names(base).len(), 2, "{:?}", names(base));

    child.kill().unwrap();
    child.wait().unwrap();
    let left = names(base);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left[1].starts_with(&format!(".{NAME}.tmp-{}-", child.id())),
        "{left:?}"
    );
    let lock = CacheLock::try_acquire(base, NAME).unwrap();
    assert!(lock.has_remains());
    publish(Arc::new(OsVfs), base, lock).unwrap();
    assert_eq!(judge(base), Verdict::Complete);
    assert_eq!(names(base), [NAME]);
}

#[test]
fn without_locks_the_rename_decides_and_nobody_is_swept() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path();
    let foreign = format!(".{NAME}.tmp-1-0123456789abcdef");
    fs::create_dir(base.join(&foreign)).unwrap();
    let lock = CacheLock::without_locking(base, NAME);
    assert!(sweep_stale(&OsVfs, base, NAME, &lock).unwrap().is_empty());
    let barrier = Barrier::new(8);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let write = || {
            let lock = CacheLock::without_locking(base, NAME);
            barrier.wait();
            publish(Arc::new(OsVfs), base, lock)
        };
        let writers: Vec<_> = (0..8).map(|_| scope.spawn(write)).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    let won = results.iter().filter(|result| result.is_ok()).count();
    let lost = |result: &&Result<()>| matches!(result, Err(CacheError::Exists { .. }));
    assert_eq!(
        (won, results.iter().filter(lost).count()),
        (1, 7),
        "{results:?}"
    );
    assert_eq!(judge(base), Verdict::Complete);
    assert_eq!(names(base), [foreign, NAME.to_owned()]);
}
