//! What a released version drew, every later version draws. A failure here means that running jobs would silently change
//! their order: the code is to be changed back, never the numbers.
//!
//! The numbers come from a separate implementation of the documented layout in exact rational arithmetic, not from the
//! code under test.

use std::sync::Arc;

use dataset_rt::sampling::alias::AliasTable;
use dataset_rt::sampling::order::{Mode, Order};
use dataset_rt::sampling::permutation::Permutation;
use dataset_rt::sampling::quota::QuotaTable;
use dataset_rt::sampling::rng::{philox, sample_bits};
use dataset_rt::sampling::uniform;

const SEED: u64 = 42;
const EPOCH: u32 = 1;

fn whole_weights() -> Arc<[f64]> {
    (0..100u32)
        .map(|row| f64::from(1 + row * row % 11))
        .collect()
}

fn broken_weights() -> Arc<[f64]> {
    (1..=50u32).map(|row| 0.1 * f64::from(row)).collect()
}

/// FNV-1a over whole numbers.
fn digest(rows: &[u64]) -> u64 {
    rows.iter().fold(0xcbf2_9ce4_8422_2325, |hash, row| {
        (hash ^ row).wrapping_mul(0x0100_0000_01b3)
    })
}

fn filled<const N: usize>(fill: impl FnOnce(&mut [u64])) -> [u64; N] {
    let mut out = [u64::MAX; N];
    fill(&mut out);
    out
}

#[test]
fn words_are_pinned() {
    assert_eq!(
        philox(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0]
        ),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
    assert_eq!(
        sample_bits(SEED, EPOCH, 7),
        [0xab73_b6f0, 0xf99e_6aa7, 0xa959_d113, 0x4960_f83f]
    );
}

#[test]
fn uniform_draws_are_pinned() {
    assert_eq!(
        filled(|out| uniform::fill(SEED, EPOCH, 1000, 0, out)),
        [823, 850, 686, 380, 42, 666, 382, 531]
    );
    assert_eq!(
        filled(|out| uniform::fill(SEED, EPOCH, 1_281_167, (1 << 40) + 1, out)),
        [75_232, 72_416, 577_490, 549_540, 736_864, 330_743]
    );
    // Half of these words are rejected once.
    assert_eq!(
        filled(|out| uniform::fill(SEED, 0, (1 << 31) + 1, 0, out)),
        [
            1_831_108_351,
            1_985_825_397,
            66_015_588,
            248_406_942,
            2_078_156_764,
            2_128_402_587
        ]
    );
    assert_eq!(
        filled(|out| uniform::fill((1 << 63) + 5, 7, (1 << 40) + 1, 0, out)),
        [
            948_317_493_909,
            635_004_855_419,
            332_768_441_458,
            849_309_769_049,
            859_298_409_900
        ]
    );
    let many: [u64; 5000] = filled(|out| uniform::fill(SEED, EPOCH, 1_281_167, 0, out));
    assert_eq!(digest(&many), 0x6fb2_c255_ad97_a7dd);
}

#[test]
fn weighted_draws_are_pinned() {
    let whole = AliasTable::build(&whole_weights()).unwrap();
    assert_eq!(
        filled(|out| whole.fill(SEED, EPOCH, 0, out)),
        [
            24, 92, 84, 82, 79, 30, 36, 77, 93, 96, 96, 31, 26, 93, 25, 73
        ]
    );
    let many: [u64; 5000] = filled(|out| whole.fill(SEED, EPOCH, 0, out));
    assert_eq!(digest(&many), 0xd75a_e682_ad90_3c7e);

    let broken = AliasTable::build(&broken_weights()).unwrap();
    assert_eq!(
        filled(|out| broken.fill(SEED, EPOCH, 1001, out)),
        [41, 32, 43, 5, 41, 34, 47, 39, 43, 42, 37, 6]
    );
    let many: [u64; 5000] = filled(|out| broken.fill(SEED, EPOCH, 0, out));
    assert_eq!(digest(&many), 0xd4eb_c188_c480_7233);
}

#[test]
fn permutations_are_pinned() {
    let small = |pass| {
        let permutation = Permutation::new(SEED, EPOCH, pass, 10).unwrap();
        filled(|out| permutation.fill(0, out).unwrap())
    };
    assert_eq!(small(0), [2, 5, 9, 0, 7, 1, 6, 8, 3, 4]);
    assert_eq!(small(3), [0, 7, 1, 6, 4, 2, 3, 8, 5, 9]);

    let largest_table = Permutation::new(SEED, EPOCH, 0, 65_536).unwrap();
    let mut all = vec![0; 65_536];
    largest_table.fill(0, &mut all).unwrap();
    assert_eq!(all[..6], [16_484, 33_574, 65_151, 63_750, 41_722, 1111]);
    assert_eq!(digest(&all), 0x8590_ea76_5d9d_4435);

    let network = Permutation::new(SEED, EPOCH, 0, 100_000).unwrap();
    let many: [u64; 5000] = filled(|out| network.fill(0, out).unwrap());
    assert_eq!(many[..6], [82_863, 63_384, 55_773, 67_698, 83_401, 16_504]);
    assert_eq!(digest(&many), 0x0d9e_07e7_1675_ff7c);

    let large = Permutation::new(SEED, EPOCH, 2, (1 << 40) + 1).unwrap();
    assert_eq!(
        filled(|out| large.fill(1 << 39, out).unwrap()),
        [
            446_743_087_091,
            828_026_587_819,
            738_688_947_781,
            798_833_566_886
        ]
    );
}

#[test]
fn quotas_are_pinned() {
    let table = QuotaTable::build(&whole_weights(), 100).unwrap();
    let offset = table.offset(SEED, EPOCH);
    let counts: Vec<u64> = (0..20).map(|row| table.count(offset, row)).collect();
    assert_eq!(
        counts,
        [0, 0, 1, 2, 2, 0, 1, 1, 2, 1, 1, 0, 0, 1, 3, 1, 1, 0, 2, 2]
    );
}

#[test]
fn orders_are_pinned() {
    let rows = |mode, weights: Option<Arc<[f64]>>, rows, length| {
        let order = Order::new(mode, rows, weights, SEED, length).unwrap();
        filled::<16>(|out| order.epoch(EPOCH).unwrap().fill(0, out).unwrap())
    };
    assert_eq!(
        rows(Mode::WithReplacement, None, 1000, None)[..8],
        [823, 850, 686, 380, 42, 666, 382, 531]
    );
    assert_eq!(
        rows(Mode::WithReplacement, Some(whole_weights()), 100, None),
        [
            24, 92, 84, 82, 79, 30, 36, 77, 93, 96, 96, 31, 26, 93, 25, 73
        ]
    );
    assert_eq!(
        rows(Mode::WithoutReplacement, Some(whole_weights()), 100, None),
        [
            25, 51, 98, 96, 64, 7, 14, 48, 66, 47, 97, 29, 84, 96, 63, 13
        ]
    );
    assert_eq!(
        rows(
            Mode::WithoutReplacement,
            Some(broken_weights()),
            50,
            Some(77)
        ),
        [
            25, 35, 49, 49, 40, 14, 20, 35, 41, 34, 49, 28, 46, 10, 40, 28
        ]
    );
    assert_eq!(
        rows(Mode::WithoutReplacement, None, 10, Some(25)),
        [2, 5, 9, 0, 7, 1, 6, 8, 3, 4, 1, 8, 6, 0, 4, 9]
    );
    let order = Order::new(Mode::WithoutReplacement, 10, None, SEED, Some(25)).unwrap();
    assert_eq!(
        filled(|out| order.epoch(EPOCH).unwrap().fill(16, out).unwrap()),
        [5, 7, 2, 3, 9, 0, 4, 6, 8]
    );
    assert_eq!(
        rows(Mode::Physical, None, 10, Some(25))[8..12],
        [8, 9, 0, 1]
    );
}
