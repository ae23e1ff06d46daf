//! Appending: old ids stay, new ones follow, only what is new is written, and what does not fit is refused before anything
//! is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::names::{
    CHECKSUMS, DELETED, DICTIONARY, GENERATIONS, INDEX, MANIFEST, METADATA,
};
use dataset_rt::format::payload::{Dtype, FieldSpec, PayloadSchema};
use dataset_rt::format::schema::{ColumnSpec, Kind, Schema};
use dataset_rt::maintain::delete::delete;
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::OsVfs;
use dataset_rt::types::Io;
use dataset_rt::writer::{AppendRequest, CacheWriter, WriteRequest};

use crate::support::caches::{Forge, Layout, copy, samples, write_here};
use crate::support::generations::{
    append_here, appending, contents, push, validated, with_ids, writer_options,
};
use crate::support::naive::{Cell, Sample};
use crate::support::reading::deliver;
use crate::support::scenario::load;

fn cache(folder: &Path, layout: Layout, count: usize) -> PathBuf {
    write_here(folder, "train", layout, &samples(count, 40))
}

fn newest(path: &Path) -> Vec<(u64, Sample)> {
    contents(path, Wanted::Newest).unwrap()
}

fn files(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    load(path)
}

/// An append with these declarations, and the error it begins with.
fn refused(path: &Path, schema: Option<Schema>, payload: Option<PayloadSchema>) -> CacheError {
    let before = files(path);
    let request = AppendRequest {
        vfs: Arc::new(OsVfs),
        path,
        options: writer_options(Layout::none(1000)),
        schema,
        payload,
        profile: Arc::default(),
    };
    let error = CacheWriter::append(request).err().unwrap();
    assert_eq!(files(path), before);
    error
}

#[test]
fn appended_samples_follow_and_all_others_keep_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 50);
    let all = samples(90, 40);
    let before = validated(&path, Wanted::Newest, Io::Auto).unwrap();
    delete(Arc::new(OsVfs), &path, vec![0, 49]).unwrap();
    let first = append_here(&path, Layout::none(700), &all[50..70]);
    assert_eq!((first.manifest.number(), first.previous), (2, Some(1)));
    assert_eq!((first.manifest.sample_count, first.added), (68, 20));
    // The last id is not given again, although its sample is gone.
    delete(Arc::new(OsVfs), &path, vec![69]).unwrap();
    let second = append_here(&path, Layout::none(700), &all[70..]);
    assert_eq!((second.manifest.number(), second.previous), (4, Some(3)));
    assert_eq!(second.manifest.sample_ids(), 90);

    let mut expected = with_ids(&all);
    expected.retain(|(id, _)| ![0, 49, 69].contains(id));
    for io in [Io::Mmap, Io::Pread] {
        let dataset = validated(&path, Wanted::Newest, io).unwrap();
        let delivered = deliver(&dataset);
        let ids: Vec<u64> = delivered.references.iter().map(|r| r.sample).collect();
        assert!(ids.iter().eq(expected.iter().map(|(id, _)| id)));
        assert!(delivered.samples.iter().eq(expected.iter().map(|(_, s)| s)));
    }
    assert_eq!(deliver(&before).samples, all[..50]);
    assert_eq!(contents(&path, Wanted::Number(2)).unwrap().len(), 68);
}

#[test]
fn only_new_records_and_the_tables_of_all_ids_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 50);
    let before = files(&path);
    let summary = append_here(&path, Layout::none(1 << 20), &samples(60, 40)[50..]);
    let mut after = files(&path);
    let generation = Path::new(GENERATIONS).join("000001");
    let own: Vec<_> = after
        .keys()
        .filter(|file| file.starts_with(&generation))
        .map(|file| file.strip_prefix(&generation).unwrap().to_owned())
        .collect();
    let expected = [
        "",
        CHECKSUMS,
        INDEX,
        MANIFEST,
        METADATA,
        "shards",
        "shards/000000.bin",
    ];
    assert!(own.iter().eq(expected.map(Path::new)), "{own:?}");
    for (file, row_bytes) in [(INDEX, 24), (CHECKSUMS, 4)] {
        let old = before[Path::new(file)].as_ref().unwrap();
        let new = after[&generation.join(file)].as_ref().unwrap();
        assert!(new.starts_with(old), "{file}");
        assert_eq!(new.len(), 60 * row_bytes, "{file}");
    }
    let bytes = after
        .iter()
        .filter(|(file, _)| file.starts_with(&generation) && !file.ends_with(MANIFEST))
        .map(|(_, bytes)| bytes.as_ref().map_or(0, Vec::len) as u64);
    assert_eq!(summary.bytes_written, bytes.sum::<u64>());
    // Nothing else is touched, but for the version in the first manifest.
    after.retain(|file, _| !file.starts_with(GENERATIONS));
    for (file, bytes) in before {
        let is_same = after[&file] == bytes;
        assert_eq!(is_same, file != Path::new(MANIFEST), "{}", file.display());
    }
}

#[test]
fn appending_in_parts_or_at_once_gives_the_same_samples_whatever_the_compression() {
    let all = samples(80, 60);
    let layouts = [
        Layout::none(900),
        Layout::lz4(900),
        Layout::zstd(900),
        Layout::none(1 << 20),
    ];
    for first in layouts {
        let folder = tempfile::tempdir().unwrap();
        let path = write_here(folder.path(), "train", first, &all[..20]);
        for (part, layout) in layouts.into_iter().enumerate() {
            append_here(&path, layout, &all[20 + 15 * part..][..15]);
        }
        assert_eq!(newest(&path), with_ids(&all));
    }
}

#[test]
fn a_dictionary_of_the_cache_serves_what_is_appended_and_no_other_can_come() {
    let folder = tempfile::tempdir().unwrap();
    let all = samples(90, 60);
    let trained = write_here(folder.path(), "train", Layout::trained(1 << 20), &all[..60]);
    assert!(trained.join(DICTIONARY).exists());
    append_here(&trained, Layout::zstd(1 << 20), &all[60..70]);
    // The options that the cache was written with do as well.
    let summary = append_here(&trained, Layout::trained(1 << 20), &all[70..80]);
    assert_eq!(summary.manifest.generation.unwrap().dictionary, 0);
    append_here(&trained, Layout::lz4(1 << 20), &all[80..]);
    assert_eq!(newest(&trained), with_ids(&all));
    let added = trained.join(GENERATIONS).join("000002");
    assert!(!added.join(DICTIONARY).exists());

    let plain = write_here(folder.path(), "plain", Layout::zstd(1 << 20), &all[..60]);
    let before = files(&plain);
    let error = appending(Arc::new(OsVfs), &plain, Layout::trained(1 << 20));
    let CacheError::Option { option, found, .. } = error.err().unwrap() else {
        panic!("not an option");
    };
    assert_eq!(option, "shard_compression.dictionary_bytes");
    assert_eq!(found, "1024");
    assert_eq!(files(&plain), before);

    // Damage is noticed before it is compressed with.
    let mut bytes = fs::read(trained.join(DICTIONARY)).unwrap();
    bytes[100] ^= 1;
    fs::write(trained.join(DICTIONARY), bytes).unwrap();
    let error = appending(Arc::new(OsVfs), &trained, Layout::zstd(1 << 20));
    assert!(matches!(error.err(), Some(CacheError::DamagedFile { .. })));
}

#[test]
fn a_column_without_nulls_may_get_some_and_older_rows_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 5);
    let mut added = samples(9, 40).split_off(5);
    added[2].1 = vec![Cell::Null; 4];
    added[3].1[2] = Cell::Float(f64::NAN.to_bits());
    let summary = append_here(&path, Layout::none(1000), &added);
    let columns = summary.manifest.metadata_schema.columns().iter();
    assert!(columns.clone().all(|column| column.nullable));
    let expected: Vec<Sample> = samples(5, 40).into_iter().chain(added).collect();
    assert_eq!(newest(&path), with_ids(&expected));
    assert_eq!(contents(&path, Wanted::Number(0)).unwrap().len(), 5);
    // And it stays so for those who bring none.
    append_here(&path, Layout::none(1000), &samples(12, 40)[9..]);
    assert_eq!(newest(&path).len(), 12);
}

fn declared(columns: &[(&str, Kind, bool)]) -> Option<Schema> {
    let column = |(name, kind, nullable): &(&str, Kind, bool)| ColumnSpec {
        name: (*name).to_owned(),
        kind: *kind,
        nullable: *nullable,
    };
    Some(Schema::new(columns.iter().map(column).collect()).unwrap())
}

fn fields(fields: &[(&str, Dtype, &[Option<u64>])]) -> Option<PayloadSchema> {
    let field = |(name, dtype, shape): &(&str, Dtype, &[Option<u64>])| FieldSpec {
        name: (*name).to_owned(),
        dtype: *dtype,
        shape: shape.to_vec(),
    };
    Some(PayloadSchema::new(fields.iter().map(field).collect()).unwrap())
}

#[test]
fn a_source_that_declares_something_else_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 5);
    let (good, id) = (("good", Kind::Bool, false), ("id", Kind::Int, false));
    let (ratio, text) = (("ratio", Kind::Float, false), ("text", Kind::String, false));
    for (schema, column, found) in [
        (vec![good, id, ratio], "text", "no column"),
        (
            vec![good, id, ratio, text, ("x", Kind::Int, true)],
            "x",
            "int or null",
        ),
        (
            vec![good, ("id", Kind::Float, false), ratio, text],
            "id",
            "float",
        ),
    ] {
        let error = refused(&path, declared(&schema), None);
        let CacheError::Misfit {
            subject: "metadata column",
            column: named,
            found: told,
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!((named.as_str(), told.as_str()), (column, found));
    }
    let error = refused(&path, None, fields(&[("x", Dtype::Int8, &[])]));
    let told = error.to_string();
    assert!(
        told.contains("payload field `x` is plain bytes in the cache"),
        "{told}"
    );

    let typed = folder.path().join("typed");
    let mut writer = CacheWriter::create(WriteRequest {
        vfs: Arc::new(OsVfs),
        base: folder.path(),
        name: "typed",
        options: writer_options(Layout::none(1000)),
        schema: None,
        payload: fields(&[("x", Dtype::Int8, &[Some(2)]), ("y", Dtype::Bytes, &[None])]),
        source_version: None,
        lock: CacheLock::without_locking(folder.path(), "typed"),
        profile: Arc::default(),
    })
    .unwrap();
    writer
        .push_named(&[1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 9], &[])
        .unwrap();
    writer.finish(&mut || Ok(())).unwrap();
    for (payload, named, told) in [
        (fields(&[("x", Dtype::Int8, &[Some(2)])]), "y", "no field"),
        (
            fields(&[("x", Dtype::Int8, &[Some(3)]), ("y", Dtype::Bytes, &[None])]),
            "x",
            "int8",
        ),
    ] {
        let error = refused(&typed, None, payload);
        let CacheError::Misfit { column, found, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(column == named && found.contains(told), "{error}");
    }
}

#[test]
fn a_sample_that_does_not_fit_is_named_by_its_row_in_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 5);
    let before = files(&path);
    let attempt = |cells: Vec<Cell>| -> Result<()> {
        let mut writer = appending(Arc::new(OsVfs), &path, Layout::none(1000))?;
        push(&mut writer, b"good", &samples(1, 0)[0].1)?;
        push(&mut writer, b"bad", &cells)
    };
    let mut cells = samples(1, 0)[0].1.clone();
    cells[1] = Cell::Str("7".to_owned());
    let error = attempt(cells).unwrap_err();
    assert_eq!(
        error.to_string(),
        "sample 1: metadata column `id`: expected int or null, found string \"7\""
    );
    let error = attempt(samples(1, 0)[0].1[..3].to_vec()).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("sample 1: metadata key `text` is missing"),
        "{told}"
    );
    assert!(told.contains("metadata columns of the cache"), "{told}");
    let mut writer = appending(Arc::new(OsVfs), &path, Layout::none(1000)).unwrap();
    let error = writer.set_payload(fields(&[("x", Dtype::Int8, &[])]).unwrap());
    assert!(error.unwrap_err().to_string().contains("`x`"));
    drop(writer);
    let mut after = files(&path);
    after.remove(Path::new(GENERATIONS));
    assert_eq!(after, before);
}

#[test]
fn nothing_appended_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 5);
    let summary = append_here(&path, Layout::none(1000), &[]);
    assert_eq!((summary.manifest.number(), summary.previous), (0, Some(0)));
    assert_eq!((summary.added, summary.bytes_written), (0, 0));
    assert_eq!(fs::read_dir(path.join(GENERATIONS)).unwrap().count(), 0);
    assert_eq!(newest(&path), with_ids(&samples(5, 40)));
}

#[test]
fn a_damaged_index_or_checksum_is_not_carried_on() {
    for file in [INDEX, CHECKSUMS] {
        let folder = tempfile::tempdir().unwrap();
        let path = cache(folder.path(), Layout::none(1000), 50);
        let mut bytes = fs::read(path.join(file)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path.join(file), bytes).unwrap();
        let mut writer = appending(Arc::new(OsVfs), &path, Layout::none(1000)).unwrap();
        let pushed = samples(51, 40)[50..]
            .iter()
            .try_for_each(|(payload, cells)| push(&mut writer, payload, cells));
        let outcome = pushed.and_then(|()| writer.finish(&mut || Ok(())).map(drop));
        let error = outcome.unwrap_err();
        let CacheError::DamagedFile { path: found, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(found.ends_with(file), "{error}");
        assert_eq!(fs::read_dir(path.join(GENERATIONS)).unwrap().count(), 0);
    }
}

#[test]
fn the_cache_is_locked_from_the_first_sample_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = cache(folder.path(), Layout::none(1000), 5);
    let first = appending(Arc::new(OsVfs), &path, Layout::none(1000)).unwrap();
    let second = appending(Arc::new(OsVfs), &path, Layout::none(1000));
    assert!(matches!(second.err(), Some(CacheError::Locked { .. })));
    let deleted = delete(Arc::new(OsVfs), &path, vec![1]);
    assert!(matches!(deleted.err(), Some(CacheError::Locked { .. })));
    drop(first);
    append_here(&path, Layout::none(1000), &samples(6, 40)[5..]);
    assert!(!folder.path().join(".train.lock").exists());
    let missing = appending(Arc::new(OsVfs), &folder.path().join("x"), Layout::none(1));
    assert!(matches!(missing.err(), Some(CacheError::NotFound { .. })));
}

/// A cache as published releases wrote it: without record checksums.
#[test]
fn a_cache_without_record_checksums_stays_without_and_is_checked_by_file() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published");
    let folder = tempfile::tempdir().unwrap();
    for release in ["0.2.0", "0.4.8"] {
        let path = folder.path().join(release);
        copy(&published.join(release).join("fixed-none"), &path);
        let before = newest(&path);
        let dataset = validated(&path, Wanted::Newest, Io::Auto).unwrap();
        let names: Vec<String> = dataset
            .schema()
            .unwrap()
            .columns()
            .iter()
            .map(|c| c.name.clone())
            .collect();
        let mut writer = appending(Arc::new(OsVfs), &path, Layout::none(1000)).unwrap();
        for (payload, cells) in before.iter().map(|(_, sample)| sample) {
            let values: Vec<_> = names
                .iter()
                .map(String::as_str)
                .zip(cells.iter().map(Cell::value))
                .collect();
            if writer.push_named(payload, &values).unwrap() {
                writer.submit(&mut || Ok(())).unwrap();
            }
        }
        let summary = writer.finish(&mut || Ok(())).unwrap();
        assert!(summary.manifest.record_checksums.is_none());
        let generation = path.join(GENERATIONS).join("000001");
        assert!(generation.join(INDEX).exists() && !generation.join(CHECKSUMS).exists());
        let twice = before
            .iter()
            .chain(&before)
            .map(|(_, sample)| sample.clone());
        assert_eq!(newest(&path), with_ids(&twice.collect::<Vec<_>>()));
        // A flipped byte of a new record is noticed by the hash of its shard.
        let shard = generation.join("shards/000000.bin");
        let mut bytes = fs::read(&shard).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&shard, bytes).unwrap();
        assert!(contents(&path, Wanted::Newest).is_err());
    }
}

#[test]
fn records_that_compressed_without_the_dictionary_would_misread_are_none() {
    // A forged cache whose only shard is plain: what is appended is compressed, each shard says how.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged");
    Forge::sound(Algorithm::None, &[b"one", b"two"]).write(&path);
    let mut writer = appending(Arc::new(OsVfs), &path, Layout::zstd(1000)).unwrap();
    let payload = vec![7; 500];
    let value = Cell::Int(2);
    writer
        .push_named(&payload, &[("id", value.value())])
        .unwrap();
    let manifest = writer.finish(&mut || Ok(())).unwrap().manifest;
    let algorithms: Vec<Algorithm> = manifest.shards.iter().map(|s| s.compression.algo).collect();
    assert_eq!(algorithms, [Algorithm::None, Algorithm::Zstd]);
    let found = newest(&path);
    assert_eq!(found[2], (2, (payload, vec![value])));
    assert!(!path.join(GENERATIONS).join("000001").join(DELETED).exists());
}
