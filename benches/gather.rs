//! Batches of 256 scattered records into recycled memory, beside a plain copy of as many bytes; the throughput column is
//! the figure.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark may stop at the first surprise"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dataset_rt::dataset::{Dataset, DatasetOptions, RowNumbers};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::manifest::Compression;
use dataset_rt::format::payload::{Dtype, FieldSpec, PayloadSchema};
use dataset_rt::reader::Selection;
use dataset_rt::sampling::uniform;
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::writer::profiler::Profile;
use dataset_rt::writer::{CacheWriter, WriteRequest, WriterOptions};

const ROWS: usize = 256;
const BATCHES: usize = 200;

/// A cache of `samples` payloads of `len` bytes.
fn write(base: &Path, samples: u64, len: usize) {
    let options = WriterOptions::new(
        1024,
        2,
        64 << 20,
        Compression {
            algo: Algorithm::None,
            ratio: 1.0,
        },
    );
    let field = FieldSpec {
        name: "x".to_owned(),
        dtype: Dtype::Uint8,
        shape: vec![Some(len as u64)],
    };
    let mut writer = CacheWriter::create(WriteRequest {
        vfs: Arc::new(OsVfs),
        base,
        name: "x",
        options: options.expect("good options"),
        schema: None,
        payload: Some(PayloadSchema::new(vec![field]).expect("a good schema")),
        source_version: None,
        lock: CacheLock::without_locking(base, "x"),
        profile: Arc::new(Profile::default()),
    })
    .expect("a new cache");
    let mut payload = vec![0; len];
    for sample in 0..samples {
        payload.fill(sample as u8);
        if writer.push_named(&payload, &[]).expect("room") {
            writer.submit(&mut || Ok(())).expect("no interrupt");
        }
    }
    writer.finish(&mut || Ok(())).expect("a durable cache");
}

fn gathers(criterion: &mut Criterion) {
    for (samples, len) in [(20_000, 12_288), (1_000_000, 256)] {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), samples, len);
        let mut group = criterion.benchmark_group(format!("gather/{len}"));
        group.throughput(Throughput::Bytes((ROWS * len) as u64));
        let mut rows = vec![0; ROWS * BATCHES];
        uniform::fill(1, 0, samples, 0, &mut rows);
        let source = vec![1_u8; ROWS * len];
        let mut target = vec![0_u8; ROWS * len];
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
        });
        for threads in [1, 2] {
            let options = DatasetOptions {
                num_workers: threads,
                ..DatasetOptions::with_seed(1)
            };
            let dataset = Dataset::open(&[folder.path().join("x")], options).expect("a cache");
            let selection = Selection::all(dataset.payload().expect("a payload"));
            let gather = |rows: &[u64]| {
                let samples = dataset.samples_of(RowNumbers::Unsigned(rows));
                dataset
                    .gather(samples.expect("good rows"), &selection, &mut || Ok(()))
                    .expect("sound records")
            };
            let all: Vec<u64> = (0..samples).collect();
            for part in all.chunks(1000) {
                let _ = gather(part);
            }
            let mut next = 0;
            group.bench_function(format!("threads/{threads}"), |bencher| {
                bencher.iter(|| {
                    next = (next + 1) % BATCHES;
                    gather(&rows[next * ROWS..(next + 1) * ROWS])
                });
            });
        }
    }
}

criterion_group!(benches, gathers);
criterion_main!(benches);
