//! Weights of views.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use dataset_rt::dataset::Dataset;
use dataset_rt::types::Io;

use crate::support::caches::{Layout, samples, write_here};
use crate::support::reading::options;

fn table(sample_ids: &[u64], weights: Option<&[f64]>) -> RecordBatch {
    let numbers = |values: Vec<u64>| Arc::new(UInt64Array::from(values)) as ArrayRef;
    let mut columns = vec![
        ("cache_id", numbers(vec![0; sample_ids.len()])),
        ("sample_id", numbers(sample_ids.to_vec())),
    ];
    if let Some(weights) = weights {
        let weights = Arc::new(Float64Array::from(weights.to_vec())) as ArrayRef;
        columns.push(("weight", weights));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

fn weights(dataset: &Dataset, rows: usize) -> Vec<f64> {
    let (_, weights, _) = dataset.parts().unwrap();
    (0..rows).map(|row| weights.get(row).unwrap()).collect()
}

#[test]
fn a_table_without_weights_gives_each_sample_the_weight_of_its_first_active_row() {
    let folder = tempfile::tempdir().unwrap();
    let cache = write_here(
        folder.path(),
        "train",
        Layout::none(1 << 20),
        &samples(3, 9),
    );
    let dataset = Dataset::open(&[cache], options(Io::Auto)).unwrap();
    let select = |dataset: &Dataset, table| dataset.select([Ok(table)]).unwrap();
    let view = select(&dataset, table(&[0, 2, 0, 1], Some(&[1.0, 2.0, 3.0, 4.0])));
    assert_eq!(weights(&view, 4), [1.0, 2.0, 3.0, 4.0]);
    // In row order or not: the second row of sample 0 never counts.
    for (sample_ids, expected) in [
        ([0, 2, 0, 1], [1.0, 2.0, 1.0, 4.0]),
        ([1, 0, 0, 2], [4.0, 1.0, 1.0, 2.0]),
        ([2, 0, 0, 0], [2.0, 1.0, 1.0, 1.0]),
    ] {
        assert_eq!(
            weights(&select(&view, table(&sample_ids, None)), 4),
            expected
        );
    }
    // A view has one weight for all rows, and so have views of it.
    assert_eq!(
        weights(&select(&dataset, table(&[2, 2], None)), 2),
        [1.0, 1.0]
    );
}
