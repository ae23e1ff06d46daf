//! All that a dataset gives away about its caches, and how it fails, in a form that can be compared.

use std::path::PathBuf;

use arrow_array::RecordBatch;
use dataset_rt::dataset::{Dataset, DatasetOptions, Ranks, SampleOptions};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::sampling::order::Mode;
use dataset_rt::types::{Io, SampleRef};

use super::naive::{Cell, Sample};

/// Options in their defaults, but for the order, which is physical, and one thread.
pub fn options(io: Io) -> DatasetOptions {
    let mut options = DatasetOptions {
        num_workers: 1,
        io,
        ..DatasetOptions::with_seed(7)
    };
    options.order.mode = Mode::Physical;
    options
}

/// Samples up to the end or the first failure.
#[derive(Debug, PartialEq, Default)]
pub struct Delivered {
    pub references: Vec<SampleRef>,
    pub samples: Vec<Sample>,
    pub failure: Option<String>,
}

/// What was read before, and instead of, the first failure of each part.
#[derive(Debug, PartialEq)]
pub struct Reading {
    pub delivered: Delivered,
    pub table: std::result::Result<Vec<RecordBatch>, String>,
}

impl Reading {
    /// Opens `paths`, delivers all samples and takes the samples metadata table. A failure to open fails both parts.
    pub fn of(paths: &[PathBuf], options: DatasetOptions) -> Self {
        match Dataset::open(paths, options) {
            Err(error) => {
                let text = typed(&error);
                let delivered = Delivered {
                    failure: Some(text.clone()),
                    ..Delivered::default()
                };
                let table = Err(text);
                Self { delivered, table }
            }
            Ok(dataset) => {
                let delivered = deliver(&dataset);
                let table = dataset.samples_metadata();
                let table = table.map(|(_, batches)| batches);
                Self {
                    delivered,
                    table: table.map_err(|error| typed(&error)),
                }
            }
        }
    }

    /// Whether nothing failed.
    pub fn is_sound(&self) -> bool {
        self.delivered.failure.is_none() && self.table.is_ok()
    }
}

/// Everything the next iterator of a dataset delivers. A failure ends it.
pub fn deliver(dataset: &Dataset) -> Delivered {
    let mut all = Delivered::default();
    let stream = match dataset.samples(SampleOptions::plain(Ranks::SINGLE)) {
        Ok(stream) => stream,
        Err(error) => {
            all.failure = Some(typed(&error));
            return all;
        }
    };
    let mut stream = stream.lock().unwrap();
    loop {
        while let Some(sample) = stream.take() {
            all.references.push(sample.reference);
            let cells = sample.metadata().map(Cell::of).collect();
            all.samples.push((sample.payload.to_vec(), cells));
        }
        match stream.load(&mut || Ok(())) {
            Ok(true) => {}
            Ok(false) => return all,
            Err(error) => {
                all.failure = Some(typed(&error));
                assert!(!stream.load(&mut || Ok(())).unwrap() && stream.take().is_none());
                return all;
            }
        }
    }
}

/// The text of an error that says what is wrong with the caches; another kind of error fails the test.
pub fn typed(error: &CacheError) -> String {
    match error {
        CacheError::NotFound { .. }
        | CacheError::Manifest { .. }
        | CacheError::UnsupportedVersion { .. }
        | CacheError::DamagedFile { .. }
        | CacheError::DamagedRecord { .. }
        | CacheError::Limit { .. } => error.to_string(),
        other => panic!("not an error about a cache: {other:?}"),
    }
}

/// Calls `work` in a thread and fails the test, instead of hanging it, if it never returns.
pub fn returns<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(std::time::Duration::from_secs(60)) {
        Ok(value) => value,
        Err(_) => panic!("{what}: hung or panicked"),
    }
}

/// The error of opening `path`.
pub fn open_error(path: &std::path::Path, io: Io) -> Option<String> {
    let result: Result<Dataset> = Dataset::open(&[path.to_owned()], options(io));
    result.err().map(|error| typed(&error))
}
