//! Mapping against positional reads, many threads against one, any window against the smallest: equal samples in equal
//! order, and equal failures in equal places.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Float64Array, RecordBatch};
use dataset_rt::dataset::{
    BatchOptions, Dataset, DatasetOptions, OrderOptions, Ranks, SampleOptions, Share,
};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::names::{SHARDS, shard};
use dataset_rt::reader::{Chunk, Loader, Plan, ReaderOptions, SampleReader, Selection, Told};
use dataset_rt::sampling::order::Mode;
use dataset_rt::sampling::position::Remainder;
use dataset_rt::store::cache::Cache;
use dataset_rt::store::pool::FilePool;
use dataset_rt::types::{Io, OnCorrupt, SampleRef, Verify};

use crate::support::caches::{Layout, samples, write_here};
use crate::support::child;
use crate::support::naive::{self, Cell, Sample, cells};
use crate::support::reading::{Delivered, deliver, options, returns, typed};

const ENGINES: [Io; 3] = [Io::Mmap, Io::Pread, Io::Auto];
const WORKERS: [usize; 3] = [1, 2, 8];
const WINDOWS: [usize; 6] = [1, 2, 3, 7, 64, 1000];

/// Samples of all [`caches`].
const SAMPLES: usize = 61 + 40 + 19 + 30;

/// Caches of many shards: tiny payloads, compressed ones, some too large to be copied by the reader, and some that need
/// a dictionary.
fn caches(folder: &Path) -> Vec<PathBuf> {
    vec![
        write_here(folder, "tiny", Layout::none(1000), &samples(61, 9)),
        write_here(folder, "packed", Layout::lz4(3000), &samples(40, 700)),
        write_here(folder, "large", Layout::none(20_000), &samples(19, 6000)),
        write_here(folder, "small", Layout::trained(2000), &samples(30, 300)),
    ]
}

/// Delivers two epochs.
fn epochs(
    paths: &[PathBuf],
    options: DatasetOptions,
    weigh: Option<fn(u64) -> f64>,
) -> [Delivered; 2] {
    let dataset = Dataset::open(paths, options).unwrap();
    if let Some(weigh) = weigh {
        let (_, batches) = dataset.samples_metadata().unwrap();
        let mut row = 0;
        let weighed = batches.into_iter().map(|batch| {
            let weights: Vec<f64> = (row..).take(batch.num_rows()).map(weigh).collect();
            row += batch.num_rows() as u64;
            let mut columns = batch.columns().to_vec();
            *columns.last_mut().unwrap() = Arc::new(Float64Array::from(weights)) as ArrayRef;
            Ok(RecordBatch::try_new(batch.schema(), columns).unwrap())
        });
        dataset.set_samples_metadata(weighed).unwrap();
    }
    [(); 2].map(|()| deliver(&dataset))
}

/// Every combination of engine, threads and window.
fn everywhere(order: OrderOptions) -> impl Iterator<Item = DatasetOptions> {
    ENGINES.into_iter().flat_map(move |io| {
        WORKERS.into_iter().flat_map(move |num_workers| {
            WINDOWS
                .into_iter()
                .map(move |prefetch_size| DatasetOptions {
                    order,
                    prefetch_size,
                    num_workers,
                    ..options(io)
                })
        })
    })
}

fn order(mode: Mode) -> OrderOptions {
    OrderOptions {
        mode,
        seed: 7,
        epoch_length: None,
    }
}

#[test]
fn engine_threads_and_window_change_no_sample_and_no_order() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    let known: Vec<Vec<Sample>> = paths.iter().map(|path| naive::read(path).samples).collect();
    let by_row: fn(u64) -> f64 = |row| 0.25 + (row % 5) as f64;
    for (mode, weigh) in [
        (Mode::Physical, None),
        (Mode::WithReplacement, None),
        (Mode::WithReplacement, Some(by_row)),
        (Mode::WithoutReplacement, None),
        (Mode::WithoutReplacement, Some(by_row)),
    ] {
        let mut all = everywhere(order(mode)).map(|options| epochs(&paths, options, weigh));
        let first = all.next().unwrap();
        for epoch in &first {
            assert_eq!(epoch.failure, None);
            for (reference, sample) in epoch.references.iter().zip(&epoch.samples) {
                let known = &known[reference.cache as usize][reference.sample as usize];
                assert_eq!(sample, known, "{reference:?}");
            }
        }
        if mode == Mode::Physical {
            let every = known.iter().zip(0..).flat_map(|(samples, cache)| {
                (0..samples.len() as u64).map(move |sample| SampleRef { cache, sample })
            });
            assert_eq!(first[0].references, every.collect::<Vec<_>>());
        } else {
            assert_ne!(first[0].references, first[1].references);
            assert_eq!(first[0].references.len(), SAMPLES);
        }
        for (number, found) in all.enumerate() {
            assert_eq!(found, first, "{mode:?}, combination {}", number + 1);
        }
    }
}

/// The samples of all batches of an epoch, and the failure that ended them.
fn batches(dataset: &Dataset, batch_size: u64) -> (Vec<Sample>, Option<String>) {
    let options = BatchOptions {
        share: Share::ALL,
        batch_size,
        remainder: Remainder::Keep,
        epochs: Some(1),
        rank: 0,
        world_size: 1,
    };
    let stream = dataset.batches(options, Selection::all(None)).unwrap();
    let (mut stream, mut found) = (stream.lock().unwrap(), Vec::new());
    loop {
        let batch = match stream.next(&mut || Ok(())) {
            Ok(None) => return (found, None),
            Ok(Some((_, batch))) => batch,
            Err(error) => return (found, Some(typed(&error))),
        };
        let rows = cells(&batch.metadata().unwrap());
        let column = &batch.columns[0];
        let ends = column.extent.offsets.as_deref().unwrap().windows(2);
        for (ends, cells) in ends.zip(rows) {
            let payload = &column.values[ends[0] as usize..ends[1] as usize];
            found.push((payload.to_vec(), cells));
        }
    }
}

#[test]
fn batches_are_the_samples_whatever_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    for broken in [false, true] {
        if broken {
            damage(&paths[1], 20);
        }
        for mode in [Mode::Physical, Mode::WithReplacement] {
            for batch_size in [1, 7, 200] {
                let single = deliver(&Dataset::open(&paths, with(order(mode))).unwrap());
                // A batch with a damaged sample fails as a whole.
                let whole = single.samples.len() as u64 / batch_size * batch_size;
                let count = if broken { whole as usize } else { SAMPLES };
                for options in everywhere(order(mode)) {
                    let dataset = Dataset::open(&paths, options).unwrap();
                    let (found, failure) = batches(&dataset, batch_size);
                    assert!(found == single.samples[..count], "{options:?} {batch_size}");
                    assert_eq!(failure, single.failure);
                }
            }
        }
    }
}

fn with(order: OrderOptions) -> DatasetOptions {
    DatasetOptions {
        order,
        ..options(Io::Pread)
    }
}

/// Flips one bit in the middle of a record.
fn damage(cache: &Path, sample: usize) {
    let row = naive::read(cache).index[sample];
    let file = cache.join(SHARDS).join(shard(row.shard));
    let at = row.offset + row.byte_len / 2;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn failures_come_in_the_same_place_with_the_same_words() {
    for (broken, sample, before) in [(0, 17, 17), (1, 0, 61), (1, 39, 100), (2, 18, 119)] {
        let folder = tempfile::tempdir().unwrap();
        let paths = caches(folder.path());
        damage(&paths[broken], sample);
        for mode in [Mode::Physical, Mode::WithReplacement] {
            let mut all = everywhere(order(mode)).map(|options| epochs(&paths, options, None));
            let first = all.next().unwrap();
            if mode == Mode::Physical {
                assert_eq!(first[0].samples.len(), before);
                let failure = first[0].failure.as_ref().unwrap();
                assert!(failure.contains(&format!("sample {sample} ")), "{failure}");
            }
            for found in all {
                assert_eq!(found, first);
            }
        }
    }
}

#[test]
fn a_damaged_sample_is_refused_every_time_and_never_becomes_verified() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    // Plain bytes, which nothing but the checksum can find wrong.
    damage(&paths[2], 5);
    for io in ENGINES {
        let dataset = Dataset::open(&paths, options(io)).unwrap();
        for _ in 0..3 {
            let error = dataset.sample(61 + 40 + 5).unwrap_err();
            assert!(
                matches!(error, CacheError::DamagedRecord { sample_id: 5, .. }),
                "{error}"
            );
            assert_eq!(deliver(&dataset).samples.len(), 61 + 40 + 5);
        }
    }
}

fn open(paths: &[PathBuf], io: Io) -> Arc<[Arc<Cache>]> {
    let pool = Arc::new(FilePool::new(io));
    let open = |path: &PathBuf| Arc::new(Cache::open(path, Arc::clone(&pool)).unwrap());
    paths.iter().map(open).collect()
}

#[test]
fn a_loader_gives_each_sample_whatever_reads_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let paths = caches(folder.path());
    for io in [Io::Mmap, Io::Pread] {
        let caches = open(&paths, io);
        {
            for verify in [Verify::First, Verify::Always, Verify::Never] {
                let mut loader = Loader::new(Arc::clone(&caches), io, verify);
                for (path, cache) in paths.iter().zip(0..) {
                    let known = naive::read(path).samples;
                    let mut chunk = Chunk::default();
                    for sample in (0..known.len() as u64).rev() {
                        loader
                            .append(SampleRef { cache, sample }, &mut chunk)
                            .unwrap();
                    }
                    for (place, (payload, cells)) in known.iter().rev().enumerate() {
                        let found = chunk.get(place).unwrap();
                        assert_eq!(found.payload, &payload[..]);
                        assert_eq!(&found.metadata().map(Cell::of).collect::<Vec<_>>(), cells);
                    }
                }
            }
        }
    }
}

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
    child::run("engines::threads_in_a_process_of_their_own", "threads");
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
