//! The metadata of samples on its way into a cache: schemas learned and declared, and what is refused.

use std::path::PathBuf;

use dataset_rt::error::CacheError;
use dataset_rt::format::columns::Value;
use dataset_rt::format::schema::{ColumnSpec, Kind, Schema};

use crate::support::damage::files;
use crate::support::naive::{Cell, Sample, read};
use crate::support::writing::{NAMES, Setup, entries, mixed};

#[test]
fn nulls_and_non_finite_floats_survive_in_format_4() {
    let float = |value: f64| Cell::Float(value.to_bits());
    let rows = [
        vec![Cell::Null, float(f64::NAN), Cell::Null],
        vec![Cell::Int(1), float(f64::INFINITY), Cell::Null],
        vec![Cell::Null, float(f64::NEG_INFINITY), Cell::Null],
    ];
    let samples: Vec<Sample> = rows.map(|cells| (b"x".to_vec(), cells)).into();
    let base = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let written = Setup::default()
        .write(base.path(), &names, &samples)
        .unwrap();
    let found = read(&written.path);
    assert_eq!(found.samples, samples);
    assert_eq!(found.manifest.format_version, 4);
    let columns = found.manifest.metadata_schema.columns();
    let described: Vec<String> = columns.iter().map(ColumnSpec::describe).collect();
    assert_eq!(described, ["int or null", "float", "string or null"]);

    let only_finite = Setup::default();
    let base = tempfile::tempdir().unwrap();
    let sample = (Vec::new(), vec![float(f64::INFINITY)]);
    let written = only_finite.write(base.path(), &["a"], [&sample]).unwrap();
    assert_eq!(written.manifest.format_version, 4);
}

#[test]
fn a_schema_learned_after_the_first_batches_holds_for_all_rows() {
    // Three batches; the second gives `late` its type and the third shows the first null of `n`.
    let samples: Vec<Sample> = (0..140_000)
        .map(|row| {
            let late = match row {
                0..70_000 => Cell::Null,
                _ => Cell::Int(row),
            };
            let n = match row {
                139_000 => Cell::Null,
                _ => Cell::Str(format!("row {row}")),
            };
            (vec![row as u8], vec![late, n, Cell::Null])
        })
        .collect();
    let base = tempfile::tempdir().unwrap();
    let setup = Setup::default();
    let written = setup
        .write(base.path(), &["late", "n", "never"], &samples)
        .unwrap();
    let found = read(&written.path);
    assert!(found.samples == samples);
    let columns = found.manifest.metadata_schema.columns();
    let described: Vec<String> = columns.iter().map(ColumnSpec::describe).collect();
    assert_eq!(
        described,
        ["int or null", "string or null", "string or null"]
    );
    let mut names: Vec<_> = files(&written.path).into_keys().collect();
    names.retain(|name| name.components().count() == 1);
    let expected = [
        "checksums.bin",
        "index.bin",
        "manifest.json",
        "metadata.arrow",
    ];
    assert_eq!(names, expected.map(PathBuf::from));
}

#[test]
fn a_source_without_metadata_can_be_written() {
    let samples: Vec<Sample> = (0..70_000).map(|n| (vec![n as u8], Vec::new())).collect();
    let base = tempfile::tempdir().unwrap();
    let written = Setup::default().write(base.path(), &[], &samples).unwrap();
    assert!(read(&written.path).samples == samples);
}

#[test]
fn a_declared_schema_fixes_names_types_and_nulls() {
    let spec = |name: &str, kind, nullable| ColumnSpec {
        name: name.to_owned(),
        kind,
        nullable,
    };
    let columns = vec![spec("x", Kind::Float, false), spec("y", Kind::Int, true)];
    let setup = || Setup {
        schema: Some(Schema::new(columns.clone()).unwrap()),
        ..Setup::default()
    };
    let base = tempfile::tempdir().unwrap();
    let good = (b"p".to_vec(), vec![Cell::Int(2), Cell::Int(1)]);
    let written = setup().write(base.path(), &["x", "y"], [&good]).unwrap();
    assert_eq!(written.manifest.format_version, 4);
    assert_eq!(written.manifest.metadata_schema.columns(), columns);
    let found = read(&written.path).samples;
    assert_eq!(found[0].1, [Cell::Float(2.0f64.to_bits()), Cell::Int(1)]);

    let refused = |names: &[&str], cells: Vec<Cell>| {
        let base = tempfile::tempdir().unwrap();
        let bad = (Vec::new(), cells);
        let error = setup()
            .write(base.path(), names, [&good, &bad])
            .unwrap_err();
        assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
        error.to_string()
    };
    let text = refused(&["x", "y"], vec![Cell::Null, Cell::Null]);
    assert_eq!(
        text,
        "sample 1: metadata column `x`: expected float, found null"
    );
    let text = refused(&["x", "y"], vec![Cell::Int((1 << 53) + 1), Cell::Null]);
    assert!(
        text.contains("sample 1") && text.contains("exactly"),
        "{text}"
    );
    let text = refused(&["x", "z"], vec![Cell::Int(1), Cell::Null]);
    assert!(
        text.contains("`y` is missing and `z` is unexpected"),
        "{text}"
    );
}

#[test]
fn faults_of_a_source_name_the_sample_and_leave_nothing() {
    let good = (b"p".to_vec(), vec![Cell::Int(2)]);
    let refused = |names: [&str; 2], bad: Vec<Cell>| {
        let base = tempfile::tempdir().unwrap();
        let mut writer = Setup::default().begin(base.path()).unwrap();
        writer
            .push_named(&good.0, &[(names[0], Value::Int(2))])
            .unwrap();
        let values: Vec<_> = names[1..]
            .iter()
            .copied()
            .zip(bad.iter().map(Cell::value))
            .collect();
        let error = writer.push_named(b"", &values).unwrap_err();
        drop(writer);
        assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
        error.to_string()
    };
    let text = refused(["a", "a"], vec![Cell::Str("no".to_owned())]);
    assert_eq!(
        text,
        "sample 1: metadata column `a`: expected int or null, found string \"no\""
    );
    let text = refused(["a", "b"], vec![Cell::Int(1)]);
    assert!(
        text.starts_with("sample 1: metadata key `a` is missing and `b`"),
        "{text}"
    );
    let text = refused(["a", "a"], Vec::new());
    assert!(
        text.starts_with("sample 1: metadata key `a` is missing;"),
        "{text}"
    );

    let base = tempfile::tempdir().unwrap();
    let error = Setup::default()
        .write(base.path(), &["weight"], [&good])
        .unwrap_err();
    assert!(
        matches!(error, CacheError::Sample { row: 0, .. }),
        "{error}"
    );
    let none: [&Sample; 0] = [];
    let error = Setup::default().write(base.path(), &[], none).unwrap_err();
    assert!(matches!(error, CacheError::EmptySource { .. }), "{error}");
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
    Setup::default()
        .write(base.path(), &["a"], [&good])
        .unwrap();
    let error = Setup::default()
        .write(base.path(), &["a"], [&good])
        .unwrap_err();
    assert!(matches!(error, CacheError::Exists { .. }), "{error}");
    assert_eq!(entries(base.path()), [base.path().join("train")]);
}

#[test]
fn metadata_too_large_as_json_is_refused_by_a_worker_and_leaves_nothing() {
    let base = tempfile::tempdir().unwrap();
    let text = "\u{1}".repeat(4 << 20);
    let mut samples = mixed(500);
    samples[300].1[3] = Cell::Str(text);
    let error = Setup::default()
        .write(base.path(), &NAMES, &samples)
        .unwrap_err();
    assert!(
        matches!(error, CacheError::Sample { row: 300, .. }),
        "{error}"
    );
    assert_eq!(entries(base.path()), Vec::<PathBuf>::new());
}
