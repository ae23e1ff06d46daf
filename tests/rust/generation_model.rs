//! Random sequences of changes and readings of one cache, against a twin that is nothing but lists in memory.
//!
//! A seed gives the same sequence on every run; a failure names it. `DATASET_RT_MODEL_SEED` tries one seed alone,
//! `DATASET_RT_MODEL_STEPS` another number of steps. A new operation is one more entry of [`STEPS`].

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_select::concat::concat_batches;
use dataset_rt::dataset::{Dataset, RowNumbers};
use dataset_rt::error::CacheError;
use dataset_rt::maintain::compact::{CompactOptions, compact};
use dataset_rt::maintain::delete::delete;
use dataset_rt::maintain::vacuum::{VacuumOptions, vacuum};
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::lock::CacheLock;
use dataset_rt::types::Io;

use crate::support::altered_vfs::unsynced;
use crate::support::caches::{Layout, write};
use crate::support::disk::SplitMix;
use crate::support::generations::{append, contents};
use crate::support::naive::{Cell, Sample, cells};
use crate::support::reading::{deliver, options};

/// A cache, and what it should be.
struct Twin {
    path: PathBuf,
    random: SplitMix,
    /// What each generation holds.
    generations: Vec<Vec<(u64, Sample)>>,
    /// The generations that the last vacuum left; later ones are all there.
    kept: Vec<usize>,
    /// Ids ever given.
    ids: u64,
    /// Datasets opened at some time, and the generation each is of.
    open: Vec<(usize, Dataset)>,
    _folder: tempfile::TempDir,
}

type Step = fn(&mut Twin);

/// Every operation and how often it comes, relative to the others.
const STEPS: [(&str, usize, Step); 9] = [
    ("append", 3, Twin::append),
    ("delete", 3, Twin::delete),
    ("open", 3, Twin::open),
    ("iterate", 3, Twin::iterate),
    ("gather", 4, Twin::gather),
    ("metadata", 2, Twin::metadata),
    ("read an earlier generation", 2, Twin::read_earlier),
    ("compact", 1, Twin::compact),
    ("vacuum", 1, Twin::vacuum),
];

impl Twin {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut random = SplitMix::new(seed);
        let first = some_samples(&mut random, 0, 30);
        let layout = layout(&mut random);
        let (base, name) = (folder.path(), "train");
        let lock = CacheLock::try_acquire(base, name).unwrap();
        let path = write(unsynced(), base, name, lock, layout, &first).unwrap();
        Self {
            path,
            random,
            ids: first.len() as u64,
            generations: vec![(0..).zip(first).collect()],
            kept: Vec::new(),
            open: Vec::new(),
            _folder: folder,
        }
    }

    fn step(&mut self) -> &'static str {
        let total = STEPS.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = self.random.below(total);
        for (name, weight, step) in STEPS {
            if drawn < weight {
                step(self);
                return name;
            }
            drawn -= weight;
        }
        unreachable!("the weights add up to the total")
    }

    fn newest(&self) -> &Vec<(u64, Sample)> {
        self.generations.last().unwrap()
    }

    fn append(&mut self) {
        let count = self.random.below(12);
        let added = some_samples(&mut self.random, self.ids, count);
        let layout = layout(&mut self.random);
        let summary = append(unsynced(), &self.path, layout, &added).unwrap();
        assert_eq!(summary.added, added.len() as u64);
        if added.is_empty() {
            assert_eq!(summary.manifest.number() + 1, self.generations.len() as u64);
            return;
        }
        assert_eq!(summary.manifest.number(), self.generations.len() as u64);
        let mut next = self.newest().clone();
        next.extend((self.ids..).zip(added));
        self.ids += summary.added;
        assert_eq!(summary.manifest.sample_ids(), self.ids);
        self.generations.push(next);
    }

    fn delete(&mut self) {
        let count = self.random.below(8);
        let ids: Vec<u64> = (0..count)
            .map(|_| self.random.below(self.ids as usize) as u64)
            .collect();
        let mut next = self.newest().clone();
        next.retain(|(id, _)| !ids.contains(id));
        let gone = self.newest().len() - next.len();
        let changed = delete(unsynced(), &self.path, ids).unwrap();
        assert_eq!(changed.deleted, gone as u64);
        if gone > 0 {
            self.generations.push(next);
        }
        assert_eq!(changed.generation + 1, self.generations.len() as u64);
        assert_eq!(changed.samples, self.newest().len() as u64);
        let beyond = delete(unsynced(), &self.path, vec![self.ids]);
        assert!(matches!(beyond, Err(CacheError::NoSample { .. })));
    }

    fn open(&mut self) {
        let io = [Io::Mmap, Io::Pread][self.random.below(2)];
        let dataset = Dataset::open(std::slice::from_ref(&self.path), options(io)).unwrap();
        self.open.push((self.generations.len() - 1, dataset));
        if self.open.len() > 4 {
            let oldest = self.random.below(4);
            drop(self.open.remove(oldest));
        }
    }

    /// One of the datasets that are open, and what it should hold.
    fn any(&mut self) -> (&Dataset, Vec<(u64, Sample)>, &mut SplitMix) {
        if self.open.is_empty() {
            self.open();
        }
        let which = self.random.below(self.open.len());
        let (generation, dataset) = &self.open[which];
        (
            dataset,
            self.generations[*generation].clone(),
            &mut self.random,
        )
    }

    fn iterate(&mut self) {
        let (dataset, expected, _) = self.any();
        assert_eq!(dataset.row_count().unwrap(), expected.len() as u64);
        let delivered = deliver(dataset);
        assert_eq!(delivered.failure, None);
        let ids = delivered.references.iter().map(|r| r.sample);
        assert!(ids.zip(delivered.samples).eq(expected));
    }

    fn gather(&mut self) {
        let (dataset, expected, random) = self.any();
        if expected.is_empty() {
            return;
        }
        let count = random.below(20);
        let rows: Vec<u64> = (0..count)
            .map(|_| random.below(expected.len()) as u64)
            .collect();
        let references = dataset.samples_of(RowNumbers::Unsigned(&rows)).unwrap();
        let whole = dataset.selection(|_| true).unwrap();
        let batch = dataset.gather(references, &whole, &mut || Ok(())).unwrap();
        let values = &batch.columns[0].values;
        let offsets = batch.columns[0].extent.offsets.as_ref().unwrap();
        for (place, row) in rows.iter().enumerate() {
            let payload = &values[offsets[place] as usize..offsets[place + 1] as usize];
            assert_eq!(payload, expected[*row as usize].1.0);
        }
        let metadata = cells(&batch.metadata().unwrap());
        let wanted = rows.iter().map(|row| expected[*row as usize].1.1.clone());
        assert!(metadata.into_iter().eq(wanted));
    }

    fn metadata(&mut self) {
        let (dataset, expected, _) = self.any();
        let (schema, table) = dataset.samples_metadata().unwrap();
        let table = concat_batches(&schema, &table).unwrap();
        let ids = table.column_by_name("sample_id").unwrap();
        let ids = ids.as_primitive::<UInt64Type>().values().iter();
        assert!(ids.eq(expected.iter().map(|(id, _)| id)));
        let own: Vec<usize> = ["good", "id", "ratio", "text"]
            .iter()
            .map(|name| table.schema().index_of(name).unwrap())
            .collect();
        let rows = cells(&table.project(&own).unwrap());
        assert!(rows.iter().eq(expected.iter().map(|(_, (_, cells))| cells)));
    }

    fn compact(&mut self) {
        let options = CompactOptions {
            min_dead_fraction: [0.0, 0.2, 0.5][self.random.below(3)],
            max_shard_bytes: [None, Some(500)][self.random.below(2)],
        };
        let changed = compact(unsynced(), &self.path, options, &mut || Ok(())).unwrap();
        if changed.generation + 1 > self.generations.len() as u64 {
            self.generations.push(self.newest().clone());
        }
        assert_eq!(changed.generation + 1, self.generations.len() as u64);
        let found = contents(&self.path, Wanted::Newest).unwrap();
        assert_eq!(found, *self.newest());
    }

    fn vacuum(&mut self) {
        let grace = Duration::ZERO;
        let vfs = unsynced();
        let vacuumed = vacuum(
            vfs,
            &self.path,
            VacuumOptions {
                grace,
                keep_previous: true,
                dry_run: false,
            },
            &mut || Ok(()),
        )
        .unwrap();
        self.kept = vacuumed
            .kept
            .iter()
            .map(|(number, _)| *number as usize)
            .collect();
        // Datasets open files when they first need them.
        self.open.retain(|(number, _)| self.kept.contains(number));
        let newest = self.generations.len() - 1;
        assert_eq!(self.kept.last(), Some(&newest));
        let given_up = (0..newest).find(|number| !self.kept.contains(number));
        if let Some(number) = given_up {
            assert!(contents(&self.path, Wanted::Number(number as u64)).is_err());
        }
    }

    fn read_earlier(&mut self) {
        let newest = self.generations.len() - 1;
        let since = self.kept.last().map_or(0, |last| last + 1);
        let all: Vec<usize> = self.kept.iter().copied().chain(since..=newest).collect();
        let number = all[self.random.below(all.len())];
        let found = contents(&self.path, Wanted::Number(number as u64)).unwrap();
        assert_eq!(found, self.generations[number]);
    }
}

/// Samples in which any value but the flag may be missing, and payloads of any length.
fn some_samples(random: &mut SplitMix, first: u64, count: usize) -> Vec<Sample> {
    let sample = |at: u64, random: &mut SplitMix| {
        let len = [0, 3, 40, 300][random.below(4)] + random.below(5);
        let payload = (0..len).map(|byte| (byte / 5 * 3) as u8 ^ at as u8);
        let mut cells = vec![
            Cell::Bool(random.below(2) == 0),
            Cell::Int(at as i64),
            Cell::Float((at as f64 / 3.0).to_bits()),
            Cell::Str("é".repeat(random.below(6))),
        ];
        if random.below(10) == 0 {
            cells[1 + random.below(3)] = Cell::Null;
        }
        (payload.collect(), cells)
    };
    (first..first + count as u64)
        .map(|at| sample(at, random))
        .collect()
}

fn layout(random: &mut SplitMix) -> Layout {
    let shard_bytes = [200, 1000, 1 << 20][random.below(3)];
    match random.below(3) {
        0 => Layout::none(shard_bytes),
        1 => Layout::lz4(shard_bytes),
        _ => Layout::zstd(shard_bytes),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

#[test]
fn whatever_is_done_to_a_cache_it_stays_what_its_twin_is() {
    let seeds = match number("DATASET_RT_MODEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..10,
    };
    let steps = number("DATASET_RT_MODEL_STEPS").unwrap_or(250);
    for seed in seeds {
        let mut done = Vec::new();
        let run = AssertUnwindSafe(|| {
            let mut twin = Twin::new(seed);
            for _ in 0..steps {
                done.push("an operation that failed");
                let name = twin.step();
                done.pop();
                done.push(name);
            }
            assert!(twin.generations.len() > steps as usize / 8);
        });
        if let Err(panic) = catch_unwind(run) {
            eprintln!("seed {seed} failed in step {}: {done:?}", done.len());
            resume_unwind(panic);
        }
    }
}
