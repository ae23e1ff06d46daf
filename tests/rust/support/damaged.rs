//! A cache with damaged records, and what a dataset delivers of it sample by sample and in batches.

use std::fs;
use std::path::{Path, PathBuf};

use dataset_rt::dataset::{BatchOptions, Dataset, DatasetOptions, Ranks, SampleOptions, Share};
use dataset_rt::error::CacheError;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::names::{INDEX, SHARDS, shard};
use dataset_rt::reader::Selection;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::sampling::position::Remainder;
use dataset_rt::types::{Io, OnCorrupt};

use super::caches::{Layout, samples, write_here};
use super::reading::options;

/// Samples of the cache.
pub const COUNT: usize = 40;

/// Samples of the one cache that are damaged: the first, the last, neighbours, and the only ones of a shard.
pub const DAMAGED: [u64; 6] = [0, 11, 12, 13, 30, 39];

/// Every mode of an order.
pub const MODES: [Mode; 3] = [
    Mode::Physical,
    Mode::WithReplacement,
    Mode::WithoutReplacement,
];

/// A cache of 40 samples of which some records are flipped.
pub fn damaged(folder: &Path, layout: Layout, ids: &[u64]) -> PathBuf {
    let path = write_here(folder, "train", layout, &samples(COUNT, 30));
    damage(&path, ids);
    path
}

/// Flips a bit at the end of each of these records.
pub fn damage(path: &Path, ids: &[u64]) {
    let rows = fs::read(path.join(INDEX)).unwrap();
    for id in ids {
        let row = IndexRow::from_bytes(&rows[*id as usize * 24..][..24]).unwrap();
        let file = path.join(SHARDS).join(shard(row.shard));
        let mut bytes = fs::read(&file).unwrap();
        bytes[(row.offset + row.byte_len - 1) as usize] ^= 1;
        fs::write(file, bytes).unwrap();
    }
}

/// Options in their defaults, but for these.
pub fn with(mode: Mode, on_corrupt: OnCorrupt, num_workers: usize) -> DatasetOptions {
    let mut options = DatasetOptions {
        on_corrupt,
        num_workers,
        ..options(Io::Auto)
    };
    options.order.mode = mode;
    options
}

/// Opens the one cache.
pub fn open(path: &Path, options: DatasetOptions) -> Dataset {
    Dataset::open(&[path.to_owned()], options).unwrap()
}

/// Ids and payloads of the samples of the rest of an epoch, each with the position after it.
pub type Found = Vec<(u64, Vec<u8>, u64)>;

/// All samples of the rest of an epoch, one by one.
pub fn single(dataset: &Dataset, ranks: Ranks) -> Result<Found, CacheError> {
    let stream = dataset.samples(SampleOptions::plain(ranks)).unwrap();
    let mut stream = stream.lock().unwrap();
    let mut found = Vec::new();
    loop {
        while let Some(sample) = stream.take() {
            let (id, payload) = (sample.reference.sample, sample.payload.to_vec());
            let after = stream.cursor().unwrap();
            let passed = if after.epoch == 0 {
                after.position
            } else {
                COUNT as u64
            };
            found.push((id, payload, passed));
        }
        if !stream.load(&mut || Ok(()))? {
            return Ok(found);
        }
    }
}

/// Batches of one epoch, padded, for one of several ranks.
pub fn share(batch_size: u64, rank: u64, world_size: u64) -> BatchOptions {
    BatchOptions {
        share: Share::ALL,
        batch_size,
        remainder: Remainder::Pad,
        epochs: Some(1),
        rank,
        world_size,
    }
}

/// Position, id, payload, and whether it holds something, of each row.
pub type BatchRows = Vec<(u64, u64, Vec<u8>, bool)>;

/// All rows of an epoch, and the number of steps.
pub fn batched(dataset: &Dataset, options: BatchOptions) -> Result<(BatchRows, usize), CacheError> {
    let stream = dataset.batches(options, Selection::all(None)).unwrap();
    let mut stream = stream.lock().unwrap();
    let (mut rows, mut steps) = (Vec::new(), 0);
    while let Some((step, batch)) = stream.next(&mut || Ok(()))? {
        steps += 1;
        let column = &batch.columns[0];
        let offsets = column.extent.offsets.as_deref().unwrap();
        assert_eq!(offsets.len(), batch.samples.len() + 1);
        assert_eq!(batch.samples.len() as u64, step.rows);
        for (row, (sample, position)) in batch.samples.iter().zip(step.positions()).enumerate() {
            let payload = &column.values[offsets[row] as usize..offsets[row + 1] as usize];
            let holds = !batch.left_out.contains(&row);
            rows.push((position, sample.sample, payload.to_vec(), holds));
        }
    }
    Ok((rows, steps))
}

/// What stands at each position of the first epoch in a cache without damage.
pub fn planned(mode: Mode) -> Vec<u64> {
    let order = Order::new(mode, COUNT as u64, None, 7, None).unwrap();
    let mut rows = vec![0; COUNT];
    order.epoch(0).unwrap().fill(0, &mut rows).unwrap();
    rows
}
