//! The threads of a reader: how they end, fail and are interrupted, and how much they ask for ahead of who takes it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dataset_rt::dataset::{Dataset, DatasetOptions, Ranks, SampleOptions};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::reader::{Plan, ReaderOptions, SampleReader, Told};
use dataset_rt::store::cache::Cache;
use dataset_rt::types::{Io, OnCorrupt, SampleRef, Verify};

use crate::support::caches::{Layout, samples, write_here};
use crate::support::child;
use crate::support::engines::{WORKERS, caches, open};
use crate::support::reading::{options, returns};

/// The first cache's samples, again and again, with something done before each run is planned.
struct Endless<F> {
    samples: u64,
    len: u64,
    before: F,
}

impl<F: Fn(u64, usize) + Send + Sync> Plan for Endless<F> {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, count: usize, out: &mut Vec<SampleRef>) -> Result<()> {
        (self.before)(start, count);
        out.clear();
        out.extend((start..).take(count).map(|position| SampleRef {
            cache: 0,
            sample: position % self.samples,
        }));
        Ok(())
    }

    fn substitute(&self, position: u64, _attempt: u32) -> Result<SampleRef> {
        Ok(SampleRef {
            cache: 0,
            sample: position % self.samples,
        })
    }
}

fn reader_options(io: Io, num_workers: usize, prefetch_size: usize) -> ReaderOptions {
    ReaderOptions {
        prefetch_size,
        num_workers,
        verify: Verify::First,
        io,
        populate_bytes: 0,
        on_corrupt: OnCorrupt::Raise,
    }
}

fn start(
    plan: Arc<dyn Plan>,
    caches: &Arc<[Arc<Cache>]>,
    options: ReaderOptions,
) -> Result<SampleReader> {
    let told = Told {
        corrupt: &Arc::default(),
        profile: &Arc::default(),
    };
    SampleReader::start(plan, caches, options, told)
}

#[test]
fn a_reader_that_is_dropped_closed_or_finished_leaves_no_thread_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), "tiny", Layout::none(1000), &samples(61, 9));
    for io in [Io::Mmap, Io::Pread] {
        let caches = open(std::slice::from_ref(&path), io);
        for (taken, len) in [(0, 1 << 40), (1, 1 << 40), (20, 1 << 40), (usize::MAX, 500)] {
            for close in [false, true] {
                let before = |_, _| ();
                let plan: Arc<dyn Plan> = Arc::new(Endless {
                    samples: 61,
                    len,
                    before,
                });
                let options = reader_options(io, 8, 1000);
                let mut reader = start(Arc::clone(&plan), &caches, options).unwrap();
                assert!(Arc::strong_count(&caches) > 1);
                for _ in 0..taken {
                    if reader.next_chunk(&mut || Ok(())).unwrap().is_none() {
                        assert_eq!(Arc::strong_count(&caches), 1, "finished");
                        break;
                    }
                }
                if close {
                    reader.close();
                } else {
                    drop(reader);
                }
                // Each worker owns its share of the caches for as long as it runs.
                assert_eq!(Arc::strong_count(&caches), 1);
            }
        }
    }
}

#[test]
fn the_system_sees_the_threads_come_and_go() {
    child::run(
        "reader_threads::threads_in_a_process_of_their_own",
        "threads",
    );
}

/// Does nothing unless started by the test above: it counts all reader threads of the process.
#[test]
fn threads_in_a_process_of_their_own() {
    if child::role().as_deref() != Some("threads") {
        return;
    }
    fn threads() -> usize {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        // The system keeps 15 letters of a name; a thread may end while it is looked at.
        let name = |task: std::io::Result<fs::DirEntry>| {
            fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks
            .filter_map(name)
            .filter(|name| name.starts_with("dataset_rt-"))
            .count()
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    for workers in WORKERS {
        let options = DatasetOptions {
            num_workers: workers,
            ..options(Io::Auto)
        };
        let dataset = Dataset::open(&paths, options).unwrap();
        assert_eq!(threads(), 0);
        let stream = dataset
            .samples(SampleOptions::plain(Ranks::SINGLE))
            .unwrap();
        assert!(stream.lock().unwrap().load(&mut || Ok(())).unwrap());
        // A thread names itself.
        returns("starting", move || {
            while threads() != workers {
                std::thread::yield_now()
            }
        });
        // The dataset keeps its last iterator, for its state.
        stream.lock().unwrap().close();
        // The system lists a joined thread a little longer than it runs.
        returns("stopping", || {
            while threads() > 0 {
                std::thread::yield_now()
            }
        });
    }
}

#[test]
fn a_panic_in_a_worker_is_an_error_in_its_place_and_no_hang() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), "tiny", Layout::none(1000), &samples(61, 9));
    let caches = open(&[path], Io::Mmap);
    let before = |start, count: usize| assert!(start + count as u64 <= 30, "a test that panics");
    let plan = Arc::new(Endless {
        samples: 61,
        len: 500,
        before,
    });
    let mut reader = start(plan, &caches, reader_options(Io::Mmap, 2, 4)).unwrap();
    let (delivered, error) = returns("reading", move || {
        let mut delivered = 0;
        loop {
            match reader.next_chunk(&mut || Ok(())) {
                Ok(Some(chunk)) => delivered += chunk.len(),
                Ok(None) => panic!("the end"),
                Err(error) => return (delivered, error),
            }
        }
    });
    assert_eq!(delivered, 30);
    assert!(matches!(error, CacheError::Internal { .. }), "{error}");
}

#[test]
fn an_interrupt_ends_the_wait_and_loses_no_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(folder.path(), "tiny", Layout::none(1000), &samples(61, 9));
    let caches = open(&[path], Io::Mmap);
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let before = move |_, _| gate.lock().unwrap().recv().unwrap();
    let plan = Arc::new(Endless {
        samples: 61,
        len: 9,
        before,
    });
    let mut reader = start(plan, &caches, reader_options(Io::Mmap, 1, 1)).unwrap();
    let (mut position, mut calls) = (0, 0);
    while position < 9 {
        let waited = reader.next_chunk(&mut || {
            calls += 1;
            Err(CacheError::Interrupted)
        });
        assert!(matches!(waited, Err(CacheError::Interrupted)));
        go.send(()).unwrap();
        let chunk = reader.next_chunk(&mut || Ok(())).unwrap().unwrap();
        for place in 0..chunk.len() {
            assert_eq!(chunk.get(place).unwrap().reference.sample, position);
            position += 1;
        }
    }
    assert!(reader.next_chunk(&mut || Ok(())).unwrap().is_none());
    assert_eq!(calls, 9);
}

#[test]
fn samples_asked_for_and_not_handed_out_never_exceed_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_here(
        folder.path(),
        "large",
        Layout::none(1 << 20),
        &samples(19, 9000),
    );
    let caches = open(&[path], Io::Pread);
    for (workers, window) in [(1, 1), (2, 1), (8, 3), (2, 64), (8, 200)] {
        let handed_out = Arc::new(AtomicUsize::new(0));
        let excess = Arc::new(AtomicUsize::new(0));
        let (out, over) = (Arc::clone(&handed_out), Arc::clone(&excess));
        let (ask, asked) = std::sync::mpsc::channel();
        let before = move |start: u64, count: usize| {
            let in_flight = start as usize + count - out.load(Ordering::SeqCst);
            over.fetch_max(in_flight, Ordering::SeqCst);
            // Nobody listens after the start.
            let _ = ask.send(count);
        };
        let plan = Arc::new(Endless {
            samples: 19,
            len: 3000,
            before,
        });
        let options = reader_options(Io::Pread, workers, window);
        let mut reader = start(plan, &caches, options).unwrap();
        // Before anything is taken, the whole window is asked for.
        let first: usize = returns("filling the window", move || {
            std::iter::from_fn(|| asked.recv().ok())
                .scan(0, |sum, count| {
                    *sum += count;
                    Some(*sum)
                })
                .find(|sum| *sum >= window)
                .unwrap()
        });
        assert_eq!(first, window);
        let mut held = 0;
        loop {
            // A chunk is handed out when the next is asked for: until then its memory is in use.
            handed_out.fetch_add(held, Ordering::SeqCst);
            let Some(chunk) = reader.next_chunk(&mut || Ok(())).unwrap() else {
                break;
            };
            held = chunk.len();
            reader.recycle(chunk);
        }
        assert_eq!(handed_out.load(Ordering::SeqCst), 3000);
        let most = excess.load(Ordering::SeqCst);
        assert!(most <= window, "{most} in flight with a window of {window}");
    }
}
