//! Draws and permutation indices per second on one core; the throughput column is the figure.

#![allow(
    clippy::expect_used,
    reason = "a benchmark may stop at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dataset_rt::sampling::alias::AliasTable;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::sampling::permutation::Permutation;
use dataset_rt::sampling::quota::QuotaTable;
use dataset_rt::sampling::uniform;

const DRAWS: usize = 1 << 16;
const ROWS: u64 = 1_000_000;

fn distinct_weights(rows: u64) -> Vec<f64> {
    let mut words = vec![0; rows as usize];
    uniform::fill(1, 0, 1 << 30, 0, &mut words);
    (1..)
        .zip(words)
        .map(|(row, word)| (word as f64 / (1u64 << 30) as f64).powi(4) + f64::from(row) * 1e-12)
        .collect()
}

fn draws(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("draws");
    group.throughput(Throughput::Elements(DRAWS as u64));
    let mut out = vec![0; DRAWS];
    let mut start = 0;
    let mut next = move || {
        start += DRAWS as u64;
        start
    };
    for rows in [1_281_167, (1 << 33) + 1] {
        group.bench_function(format!("uniform/{rows}"), |bencher| {
            bencher.iter(|| uniform::fill(1, 0, rows, next(), black_box(&mut out)));
        });
    }
    for count in [256, 1024, 8192] {
        let (mut start, mut out) = (0, vec![0; count]);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("uniform/{ROWS}, {count} at once"), |bencher| {
            bencher.iter(|| {
                start += count as u64;
                uniform::fill(1, 0, ROWS, start, black_box(&mut out));
            });
        });
    }
    group.throughput(Throughput::Elements(DRAWS as u64));
    for rows in [10_000, ROWS, 10 * ROWS] {
        let table = AliasTable::build(&distinct_weights(rows)).expect("positive weights");
        group.bench_function(format!("weighted/{rows}"), |bencher| {
            bencher.iter(|| table.fill(1, 0, next(), black_box(&mut out)));
        });
    }
    for rows in [60_000, 1_281_167, 1 << 40] {
        let permutation = Permutation::new(1, 0, 0, rows).expect("few enough rows");
        let (mut start, mut half) = (0, vec![0; DRAWS / 2]);
        group.throughput(Throughput::Elements(DRAWS as u64 / 2));
        group.bench_function(format!("permutation/{rows}"), |bencher| {
            bencher.iter(|| {
                start = (start + DRAWS as u64 / 2) % (rows - DRAWS as u64 / 2 + 1);
                permutation
                    .fill(start, black_box(&mut half))
                    .expect("in range");
            });
        });
    }
    group.throughput(Throughput::Elements(DRAWS as u64));
    let weights = distinct_weights(ROWS);
    let order = Order::new(
        Mode::WithoutReplacement,
        ROWS,
        Some(weights.into()),
        1,
        None,
    )
    .expect("positive weights");
    let epoch = order.epoch(0).expect("few enough rows");
    let mut start = 0;
    group.bench_function(format!("quota/{ROWS}"), |bencher| {
        bencher.iter(|| {
            start = (start + DRAWS as u64) % (ROWS - DRAWS as u64);
            epoch.fill(start, black_box(&mut out)).expect("in range");
        });
    });
    group.finish();
}

fn builds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("builds");
    group.throughput(Throughput::Elements(ROWS));
    group.sample_size(10);
    let weights = distinct_weights(ROWS);
    group.bench_function("alias", |bencher| {
        bencher.iter(|| AliasTable::build(black_box(&weights)).expect("positive weights"));
    });
    group.bench_function("quota", |bencher| {
        bencher.iter(|| QuotaTable::build(black_box(&weights), ROWS).expect("positive weights"));
    });
    group.throughput(Throughput::Elements(1 << 16));
    group.bench_function("shuffled table", |bencher| {
        bencher.iter(|| Permutation::new(black_box(1), 0, 0, 1 << 16).expect("few enough rows"));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .without_plots();
    targets = draws, builds
}
criterion_main!(benches);
