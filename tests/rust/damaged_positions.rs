//! Damaged samples left out or replaced by the same others whoever reads them: which sample stands at which position.

use std::collections::BTreeSet;

use dataset_rt::dataset::{DatasetOptions, Ranks, SampleOptions};
use dataset_rt::reader::Selection;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::types::{Io, OnCorrupt};

use crate::support::caches::{Layout, samples};
use crate::support::damaged::{
    COUNT, DAMAGED, MODES, batched, damaged, open, planned, share, single, with,
};

/// The same with others in the place of damaged samples, drawn one after the other until one is sound.
fn substituted(mode: Mode, damaged: &[u64]) -> Vec<u64> {
    let order = Order::new(mode, COUNT as u64, None, 7, None).unwrap();
    let epoch = order.epoch(0).unwrap();
    let stand_in = |(position, id): (u64, u64)| {
        let mut drawn = (0..).map(|attempt| epoch.substitute(position, attempt).unwrap());
        match damaged.contains(&id) {
            true => drawn.find(|other| !damaged.contains(other)).unwrap(),
            false => id,
        }
    };
    (0..).zip(planned(mode)).map(stand_in).collect()
}

#[test]
fn substitutes_depend_on_position_alone_and_not_on_who_reads_them() {
    let known: Vec<Vec<u8>> = samples(COUNT, 30)
        .into_iter()
        .map(|(payload, _)| payload)
        .collect();
    for layout in [Layout::none(200), Layout::lz4(200), Layout::zstd(1 << 20)] {
        let folder = tempfile::tempdir().unwrap();
        let path = damaged(folder.path(), layout, &DAMAGED);
        for mode in MODES {
            let expected = substituted(mode, &DAMAGED);
            assert_ne!(expected, planned(mode));
            for workers in [1, 2, 4] {
                for io in [Io::Mmap, Io::Pread] {
                    let options = DatasetOptions {
                        io,
                        prefetch_size: 7 * workers,
                        ..with(mode, OnCorrupt::Substitute, workers)
                    };
                    let found = single(&open(&path, options), Ranks::SINGLE).unwrap();
                    let ids: Vec<u64> = found.iter().map(|(id, ..)| *id).collect();
                    assert_eq!(ids, expected, "{mode:?} {workers} {io:?}");
                    let passed: Vec<u64> = found.iter().map(|(.., passed)| *passed).collect();
                    assert_eq!(passed, (1..=COUNT as u64).collect::<Vec<_>>());
                    for (id, payload, _) in &found {
                        assert_eq!(*payload, known[*id as usize]);
                    }
                }
                for (batch_size, world_size) in [(1, 1), (8, 1), (64, 1), (3, 2), (5, 3)] {
                    let mut seen = vec![None; COUNT];
                    let mut all_steps = BTreeSet::new();
                    for rank in 0..world_size {
                        let dataset = open(&path, with(mode, OnCorrupt::Substitute, workers));
                        let options = share(batch_size, rank, world_size);
                        let (rows, steps) = batched(&dataset, options).unwrap();
                        all_steps.insert(steps);
                        for (position, id, payload, holds) in rows {
                            assert!(holds);
                            assert_eq!(payload, known[id as usize]);
                            // Padding repeats positions, and finds the same there.
                            let before = seen[position as usize].replace(id);
                            assert!(before.is_none_or(|before| before == id));
                        }
                    }
                    assert_eq!(all_steps.len(), 1);
                    let seen: Vec<u64> = seen.into_iter().flatten().collect();
                    assert_eq!(seen, expected);
                }
            }
        }
    }
}

#[test]
fn a_resumed_epoch_goes_on_with_the_same_substitutes_and_leaves_the_same_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &DAMAGED);
    for mode in MODES {
        for on_corrupt in [OnCorrupt::Substitute, OnCorrupt::Skip] {
            let whole = single(&open(&path, with(mode, on_corrupt, 2)), Ranks::SINGLE).unwrap();
            for taken in 0..whole.len() {
                let first = open(&path, with(mode, on_corrupt, 1));
                let stream = first.samples(SampleOptions::plain(Ranks::SINGLE)).unwrap();
                let mut count = 0;
                while count < taken {
                    let mut stream = stream.lock().unwrap();
                    match stream.take() {
                        Some(_) => count += 1,
                        None => assert!(stream.load(&mut || Ok(())).unwrap()),
                    }
                }
                let saved = first.saved_state().unwrap();
                let second = open(&path, with(mode, on_corrupt, 3));
                second.load_state(&saved, &[]).unwrap();
                assert_eq!(
                    single(&second, Ranks::SINGLE).unwrap(),
                    whole[taken..],
                    "{taken}"
                );
            }
            let (rows, _) =
                batched(&open(&path, with(mode, on_corrupt, 2)), share(4, 0, 1)).unwrap();
            for taken in 0..COUNT / 4 {
                let first = open(&path, with(mode, on_corrupt, 1));
                let stream = first.batches(share(4, 0, 1), Selection::all(None)).unwrap();
                for _ in 0..taken {
                    stream
                        .lock()
                        .unwrap()
                        .next(&mut || Ok(()))
                        .unwrap()
                        .unwrap();
                }
                let saved = stream.lock().unwrap().state().unwrap();
                let second = open(&path, with(mode, on_corrupt, 4));
                second.load_state(&saved, &[]).unwrap();
                let (rest, _) = batched(&second, share(4, 0, 1)).unwrap();
                assert_eq!(rest, rows[taken * 4..]);
            }
        }
    }
}

#[test]
fn samples_that_are_left_out_keep_their_rows_in_batches_and_their_positions_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = damaged(folder.path(), Layout::none(200), &DAMAGED);
    for mode in MODES {
        let planned = planned(mode);
        let is_sound = |id: &u64| !DAMAGED.contains(id);
        for workers in [1, 2, 4] {
            let dataset = open(&path, with(mode, OnCorrupt::Skip, workers));
            let found = single(&dataset, Ranks::SINGLE).unwrap();
            let ids: Vec<(u64, u64)> = found.iter().map(|(id, _, passed)| (*id, *passed)).collect();
            let expected = planned
                .iter()
                .copied()
                .zip(1..)
                .filter(|(id, _)| is_sound(id));
            assert_eq!(ids, expected.collect::<Vec<_>>(), "{mode:?} {workers}");
            for (batch_size, world_size) in [(1, 1), (7, 1), (4, 2), (6, 3)] {
                let mut all_steps = BTreeSet::new();
                for rank in 0..world_size {
                    let dataset = open(&path, with(mode, OnCorrupt::Skip, workers));
                    let options = share(batch_size, rank, world_size);
                    let (rows, steps) = batched(&dataset, options).unwrap();
                    all_steps.insert(steps);
                    for (position, id, payload, holds) in rows {
                        assert_eq!(id, planned[position as usize]);
                        assert_eq!(holds, is_sound(&id));
                        assert!(holds || payload.is_empty());
                    }
                }
                assert_eq!(all_steps.len(), 1);
            }
        }
    }
}
