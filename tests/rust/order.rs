//! Ranks and workers share one order: what each of them takes, put together, is the order itself.

use std::path::Path;
use std::sync::Arc;

use dataset_rt::dataset::{
    BatchOptions, Dataset, DatasetOptions, Ranks, SampleOptions, Share, Step,
};
use dataset_rt::reader::Selection;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::sampling::position::Remainder;
use dataset_rt::sync::lock;
use proptest::prelude::*;

/// 40 rows; epochs of other lengths go through them again or stop earlier.
fn open(mode: Mode, epoch_length: u64) -> Dataset {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/states/cache");
    let mut options = DatasetOptions {
        num_workers: 1,
        prefetch_size: 16,
        ..DatasetOptions::with_seed(5)
    };
    options.order.mode = mode;
    options.order.epoch_length = Some(epoch_length);
    Dataset::open(&[cache], options).unwrap()
}

fn go_on() -> dataset_rt::error::Result<()> {
    Ok(())
}

/// Steps with the samples they hold.
fn batches(dataset: &Dataset, options: BatchOptions) -> Vec<(Step, Vec<u64>)> {
    let stream = dataset.batches(options, Selection::all(None)).unwrap();
    let mut stream = lock(&stream);
    let remaining = stream.remaining().unwrap();
    let mut found = Vec::new();
    while let Some((step, batch)) = stream.next(&mut go_on).unwrap() {
        let samples = batch.samples.iter().map(|sample| sample.sample);
        found.push((step, samples.collect()));
    }
    assert_eq!(remaining, Some(found.len() as u64));
    found
}

fn samples(dataset: &Dataset, options: SampleOptions) -> Vec<u64> {
    let stream = dataset.samples(options).unwrap();
    let mut stream = lock(&stream);
    let mut found = Vec::new();
    loop {
        while let Some(sample) = stream.take() {
            found.push(sample.reference.sample);
        }
        if !stream.load(&mut go_on).unwrap() {
            return found;
        }
    }
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![
        Mode::Physical,
        Mode::WithReplacement,
        Mode::WithoutReplacement,
    ])
}

fn remainders() -> impl Strategy<Value = Remainder> {
    prop::sample::select(vec![Remainder::Keep, Remainder::Drop, Remainder::Pad])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn workers_that_take_turns_make_the_steps_of_one(
        mode in modes(),
        remainder in remainders(),
        (len, batch_size, world_size, rank) in (0u64..60, 1u64..8, 1u64..5, 0u64..5),
        (workers, epochs) in (1u64..6, 1u64..4),
    ) {
        let options = BatchOptions {
            batch_size,
            remainder,
            epochs: Some(epochs),
            share: Share::ALL,
            rank: rank % world_size,
            world_size,
        };
        let alone = batches(&open(mode, len), options);
        let shares: Vec<_> = (0..workers)
            .map(|skip| {
                let share = Share { skip, step: workers };
                batches(&open(mode, len), BatchOptions { share, ..options })
            })
            .collect();
        let mut turns: Vec<_> = shares.iter().map(|share| share.iter()).collect();
        for (number, (step, expected)) in alone.iter().enumerate() {
            let (found, samples) = turns[number % workers as usize].next().unwrap();
            prop_assert_eq!(samples, expected);
            prop_assert_eq!(
                (found.epoch, found.step, found.start, found.valid, found.after),
                (step.epoch, step.step, step.start, step.valid, step.after)
            );
            prop_assert_eq!(found.positions().count(), expected.len());
        }
        prop_assert!(turns.iter_mut().all(|turn| turn.next().is_none()));
    }

    #[test]
    fn ranks_and_workers_that_deal_out_samples_deliver_the_order(
        mode in modes(),
        remainder in remainders(),
        (len, world_size) in (0u64..60, 1u64..5),
        (block, workers) in (1u64..8, 1u64..6),
    ) {
        let order = open(mode, len).rows(0, 0, None).unwrap();
        for rank in 0..world_size {
            let plain = SampleOptions {
                remainder,
                ..SampleOptions::plain(Ranks { rank, world_size })
            };
            let alone = samples(&open(mode, len), plain);
            let expected: Vec<u64> = match remainder {
                Remainder::Keep => (rank..len).step_by(world_size as usize).collect(),
                Remainder::Drop => (0..len / world_size).map(|step| step * world_size + rank).collect(),
                Remainder::Pad => (0..len.div_ceil(world_size))
                    .map(|step| (step * world_size + rank) % len)
                    .collect(),
            };
            let expected: Vec<u64> = expected.iter().map(|position| order[*position as usize]).collect();
            prop_assert_eq!(&alone, &expected);
            let shares: Vec<Vec<u64>> = (0..workers)
                .map(|skip| {
                    let share = Share { skip, step: workers };
                    samples(&open(mode, len), SampleOptions { block, share, ..plain })
                })
                .collect();
            let mut turns: Vec<_> = shares.iter().map(|share| share.chunks(block as usize)).collect();
            for (number, expected) in alone.chunks(block as usize).enumerate() {
                prop_assert_eq!(turns[number % workers as usize].next(), Some(expected));
            }
            prop_assert!(turns.iter_mut().all(|turn| turn.next().is_none()));
        }
    }

    #[test]
    fn a_worker_that_skips_what_it_had_continues_its_turns(
        mode in modes(),
        (len, batch_size, workers, skip, done) in (0u64..60, 1u64..8, 1u64..6, 0u64..6, 0usize..12),
    ) {
        let options = BatchOptions {
            batch_size,
            remainder: Remainder::Keep,
            epochs: Some(2),
            share: Share { skip, step: workers },
            rank: 0,
            world_size: 1,
        };
        let whole = batches(&open(mode, len), options);
        let share = Share { skip: skip + done as u64 * workers, step: workers };
        let rest = batches(&open(mode, len), BatchOptions { share, ..options });
        let expected: Vec<_> = whole.iter().skip(done).map(|(_, samples)| samples).collect();
        prop_assert_eq!(rest.iter().map(|(_, samples)| samples).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn an_endless_stream_over_nothing_ends_and_over_something_does_not() {
    for (len, batch_size, remainder) in [
        (0, 3, Remainder::Keep),
        (0, 3, Remainder::Pad),
        (7, 8, Remainder::Drop),
    ] {
        let options = BatchOptions {
            batch_size,
            remainder,
            epochs: None,
            share: Share { skip: 2, step: 3 },
            rank: 0,
            world_size: 1,
        };
        let stream = open(Mode::WithReplacement, len)
            .batches(options, Selection::all(None))
            .unwrap();
        assert!(lock(&stream).next(&mut go_on).unwrap().is_none());
        if len > 0 {
            let options = BatchOptions {
                batch_size: len,
                ..options
            };
            let stream = open(Mode::WithReplacement, len)
                .batches(options, Selection::all(None))
                .unwrap();
            for expected in [2, 5, 8] {
                let (step, _) = lock(&stream).next(&mut go_on).unwrap().unwrap();
                assert_eq!(step.epoch, expected);
            }
            drop(Arc::clone(&stream));
        }
    }
}

#[test]
fn a_share_without_a_step_is_refused() {
    let dataset = open(Mode::Physical, 10);
    let share = Share { skip: 0, step: 0 };
    let plain = SampleOptions::plain(Ranks {
        rank: 0,
        world_size: 1,
    });
    assert!(dataset.samples(SampleOptions { share, ..plain }).is_err());
    let options = BatchOptions {
        batch_size: 1,
        remainder: Remainder::Keep,
        epochs: Some(1),
        share,
        rank: 0,
        world_size: 1,
    };
    assert!(dataset.batches(options, Selection::all(None)).is_err());
}

/// Rows beyond 2^24, where single precision ends: what carries all the weight is what is drawn.
#[test]
fn of_many_rows_the_last_is_drawn_when_it_has_all_the_weight() {
    const ROWS: u64 = (1 << 24) + 5;
    let mut weights = vec![1e-300; ROWS as usize];
    *weights.last_mut().unwrap() = 1.0;
    let order = Order::new(
        Mode::WithReplacement,
        ROWS,
        Some(weights.into()),
        1,
        Some(100_000),
    )
    .unwrap();
    let mut drawn = vec![0; 100_000];
    order.epoch(0).unwrap().fill(0, &mut drawn).unwrap();
    assert!(drawn.iter().all(|row| *row == ROWS - 1));
}
