//! Caches made to deceive: every checksum fits, and what they say is false. Right bytes or a typed error, and no hang,
//! panic or huge allocation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use dataset_rt::dataset::{Caches, Dataset};
use dataset_rt::error::{CacheError, Result};
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::envelope;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::metadata::{arrow_schema, writer};
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::format::schema::Schema;
use dataset_rt::limits::METADATA_JSON_BYTES_MAX;
use dataset_rt::reader::{Chunk, Loader};
use dataset_rt::store::generations::Wanted;
use dataset_rt::types::{Io, SampleRef, Verify};

use crate::support::caches::{Forge, Layout, copy, record, samples, write_here};
use crate::support::reading::{Reading, deliver, open_error, options, returns, typed};

const ENGINES: [Io; 2] = [Io::Auto, Io::Pread];
const PAYLOADS: [&[u8]; 3] = [b"first", b"", b"the third of the payloads"];

/// What both engines make of a forged cache.
fn read(forge: &Forge) -> Reading {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    forge.write(&path);
    returns("reading", move || {
        let [mapped, read] =
            ENGINES.map(|io| Reading::of(std::slice::from_ref(&path), options(io)));
        assert_eq!(mapped, read);
        drop(folder);
        mapped
    })
}

/// What is wrong with sample `at` of a forged cache; the samples before it are right.
fn fault_of(forge: &Forge, at: usize) -> String {
    let delivered = read(forge).delivered;
    let payloads: Vec<&[u8]> = delivered.samples.iter().map(|(p, _)| &p[..]).collect();
    assert_eq!(payloads, PAYLOADS[..at]);
    delivered.failure.unwrap()
}

/// A sound cache of which one shard holds one record more, which no row points at.
fn with_record(algorithm: Algorithm, extra: &[u8]) -> (Forge, IndexRow) {
    let mut forge = Forge::sound(algorithm, &PAYLOADS);
    let row = IndexRow {
        shard: 0,
        offset: forge.shards[0].len() as u64,
        byte_len: extra.len() as u64,
    };
    forge.shards[0].extend_from_slice(extra);
    forge.manifest.shards[0].byte_len += row.byte_len;
    (forge, row)
}

#[test]
fn a_sound_forgery_reads() {
    for algorithm in [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd] {
        let reading = read(&Forge::sound(algorithm, &PAYLOADS));
        assert!(reading.is_sound(), "{reading:?}");
        let payloads: Vec<_> = reading
            .delivered
            .samples
            .into_iter()
            .map(|(p, _)| p)
            .collect();
        assert_eq!(payloads, PAYLOADS);
        assert!(read(&with_record(algorithm, b"anything").0).is_sound());
    }
}

#[test]
fn an_index_row_that_points_at_another_sample_is_refused() {
    for (from, to) in [(0, 2), (2, 0), (1, 0)] {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.checksums = Some(forge.truthful());
        forge.index[from] = forge.index[to];
        let fault = fault_of(&forge, from);
        assert!(fault.contains("checksum of the record"), "{fault}");
        // Not even together with its checksum, which covers the sample id.
        let mut checksums = forge.checksums.clone().unwrap();
        checksums[from] = checksums[to];
        forge.checksums = Some(checksums);
        let fault = fault_of(&forge, from);
        assert!(fault.contains("checksum of the record"), "{fault}");
    }
    // The same bytes twice, under a different row each: refused for one of them.
    let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
    forge.index.swap(0, 2);
    forge.checksums = Some(Forge::sound(Algorithm::None, &PAYLOADS).truthful());
    assert!(fault_of(&forge, 0).contains("checksum of the record"));
}

#[test]
fn index_rows_that_overlap_or_leave_their_shard_are_refused() {
    let sound = Forge::sound(Algorithm::None, &PAYLOADS);
    let len = sound.shards[0].len() as u64;
    let IndexRow {
        offset, byte_len, ..
    } = sound.index[1];
    let bad = [
        (0, offset - 1, byte_len),
        (0, offset + 1, byte_len),
        (0, offset, byte_len + 1),
        (0, offset, byte_len - 1),
        (0, offset, 0),
        (0, offset, 7),
        (0, 0, len),
        (0, 0, len + 1),
        (0, len, 0),
        (0, len, 1),
        (0, len + 1, 0),
        (0, u64::MAX, 0),
        (0, u64::MAX, 1),
        (0, 1, u64::MAX),
        (0, u64::MAX, u64::MAX),
        (0, 1 << 63, 1 << 63),
        (0, (1 << 32) + offset, byte_len),
        (0, offset, (1 << 32) + byte_len),
        (1, offset, byte_len),
        (1 << 32, offset, byte_len),
        (u64::MAX, offset, byte_len),
    ];
    for (shard, offset, byte_len) in bad {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.checksums = Some(forge.truthful());
        forge.index[1] = IndexRow {
            shard,
            offset,
            byte_len,
        };
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1 "), "{fault}");
        // With a checksum of what the row points at, a row may hold any record, but nothing outside its shard.
        forge.checksums = None;
        let outside = shard > 0 || offset.checked_add(byte_len).is_none_or(|end| end > len);
        let failure = read(&forge).delivered.failure;
        assert!(!outside || failure.is_some());
    }
}

#[test]
fn records_that_lie_about_lengths_are_refused() {
    let sound = record(Algorithm::None, 1, b"payload");
    let with_len = |len: u64| [&len.to_le_bytes(), &sound[8..]].concat();
    let json_len = 8;
    let bad = [
        with_len(u64::MAX),
        with_len(1 << 63),
        with_len(1 << 32),
        with_len((1 << 32) + json_len),
        with_len(16 << 20),
        with_len((16 << 20) + 1),
        with_len(json_len + 8),
        with_len(json_len - 1),
        with_len(json_len + 1),
        with_len(0),
        sound[..7].to_vec(),
        sound[..8 + 7].to_vec(),
        vec![],
    ];
    for bytes in bad {
        let (mut forge, row) = with_record(Algorithm::None, &bytes);
        forge.index[1] = row;
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1"), "{fault}");
    }
    let (mut forge, row) = with_record(Algorithm::None, &sound);
    forge.index[1] = row;
    assert!(read(&forge).is_sound());
    let long = |len: u64| [&len.to_le_bytes()[..], &vec![b' '; len as usize]].concat();
    assert!(envelope::split(&long(METADATA_JSON_BYTES_MAX)).is_ok());
    assert!(envelope::split(&long(METADATA_JSON_BYTES_MAX + 1)).is_err());
}

#[test]
fn compressed_payloads_that_lie_about_lengths_are_refused() {
    for algorithm in [Algorithm::Lz4, Algorithm::Zstd] {
        payloads_that_lie_about_lengths_are_refused(algorithm);
    }
}

fn payloads_that_lie_about_lengths_are_refused(algorithm: Algorithm) {
    let head = record(Algorithm::None, 1, b"");
    let mut bad: Vec<Vec<u8>> = Vec::new();
    let noise: Vec<u8> = (0..100_u32)
        .map(|at| (at * at * 7 + at / 3) as u8)
        .collect();
    for payload in [&noise[..], &[7; 5000], b"x", b""] {
        let stored = record(algorithm, 1, payload)[head.len()..].to_vec();
        for claimed in [
            0,
            1,
            payload.len() as u32 - u32::from(!payload.is_empty()),
            payload.len() as u32 + 1,
            u32::MAX,
            1 << 31,
        ] {
            if claimed != payload.len() as u32 {
                bad.push([&claimed.to_le_bytes(), &stored[4..]].concat());
            }
        }
        bad.extend(
            (0..stored.len())
                .step_by(5)
                .map(|len| stored[..len].to_vec()),
        );
        // Bytes after the end of the block.
        bad.push([&stored[..], b"\0more"].concat());
    }
    // A match that reaches back before the payload begins, and one of the distance 0.
    bad.push([&20_u32.to_le_bytes()[..], &[0x10, b'a', 9, 0, 0x10, b'b']].concat());
    bad.push([&20_u32.to_le_bytes()[..], &[0x10, b'a', 0, 0, 0x10, b'b']].concat());
    for stored in bad {
        let (mut forge, row) = with_record(algorithm, &[&head[..], &stored].concat());
        forge.index[1] = row;
        let fault = fault_of(&forge, 1);
        assert!(fault.contains("sample 1"), "{fault}: {stored:?}");
    }
}

/// Payloads that zstd shrinks.
const LONG: [&[u8]; 2] = [&[7; 300], &[9; 200]];

/// What a cache with this dictionary delivers, if no record of it was compressed with it.
fn read_with_dictionary(dictionary: &[u8]) -> std::result::Result<(), String> {
    let mut forge = Forge::sound(Algorithm::Zstd, &LONG);
    forge.dictionary = Some(dictionary.to_vec());
    let delivered = read(&forge).delivered;
    match delivered.failure {
        Some(failure) => {
            assert!(delivered.samples.is_empty());
            Err(failure)
        }
        None => {
            let payloads = delivered.samples.iter().map(|(payload, _)| &payload[..]);
            assert!(payloads.eq(LONG));
            Ok(())
        }
    }
}

#[test]
fn a_dictionary_that_is_none_is_refused_before_anything_is_restored_with_it() {
    let magic = [0x37, 0xa4, 0x30, 0xec];
    let noise: Vec<u8> = (0..500_u32).map(|at| (at * at / 7) as u8).collect();
    for len in [4, 100, noise.len()] {
        let bad = [&magic[..], &noise[..len]].concat();
        let fault = read_with_dictionary(&bad).unwrap_err();
        assert!(
            fault.contains("a dictionary that zstd cannot load"),
            "{fault}"
        );
    }
    // Without the magic number it is content to refer to, which these records do not.
    for harmless in [&[][..], &magic, &noise] {
        assert_eq!(read_with_dictionary(harmless), Ok(()));
    }
}

#[test]
fn caches_that_differ_only_in_their_dictionary_have_other_contents() {
    let contents = |dictionary: Option<&[u8]>| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let mut forge = Forge::sound(Algorithm::Zstd, &LONG);
        forge.dictionary = dictionary.map(<[u8]>::to_vec);
        forge.write(&path);
        let caches = Caches::open(&[path], Io::Auto, false).unwrap();
        caches.contents().clone()
    };
    assert_eq!(contents(Some(b"one")), contents(Some(b"one")));
    assert_ne!(contents(Some(b"one")), contents(Some(b"two")));
    assert_ne!(contents(Some(b"one")), contents(None));
}

#[test]
fn another_dictionary_than_the_one_described_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let cache = write_here(
        folder.path(),
        "train",
        Layout::trained(1 << 20),
        &samples(20, 60),
    );
    let sound = fs::read(cache.join(DICTIONARY)).unwrap();
    assert!(Reading::of(std::slice::from_ref(&cache), options(Io::Auto)).is_sound());
    let mut altered = sound.clone();
    *altered.last_mut().unwrap() ^= 1;
    for (bytes, at_open) in [
        (Some(&altered[..]), false),
        (Some(&sound[1..]), true),
        (Some(&[]), true),
        (None, true),
    ] {
        copy(&cache, &path);
        match bytes {
            Some(bytes) => fs::write(path.join(DICTIONARY), bytes).unwrap(),
            None => fs::remove_file(path.join(DICTIONARY)).unwrap(),
        }
        for io in ENGINES {
            let error = open_error(&path, io);
            assert_eq!(error.is_some(), at_open, "{error:?}");
            let failure = match error {
                Some(error) => error,
                None => {
                    let paths = std::slice::from_ref(&path);
                    Reading::of(paths, options(io)).delivered.failure.unwrap()
                }
            };
            assert!(failure.contains(DICTIONARY), "{failure}");
        }
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn manifests_that_lie_about_counts_and_lengths_are_refused() {
    let attacks: [fn(&mut Forge); 9] = [
        |forge| forge.manifest.sample_count = 2,
        |forge| forge.manifest.sample_count = 4,
        |forge| forge.manifest.sample_count = 0,
        |forge| forge.manifest.sample_count = 1 << 48,
        |forge| forge.manifest.sample_count = u64::MAX / 24,
        |forge| forge.manifest.shards[0].byte_len += 1,
        |forge| forge.manifest.shards[0].byte_len = i64::MAX as u64,
        |forge| forge.index.truncate(2),
        |forge| forge.index.push(forge.index[2]),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        attack(&mut forge);
        let reading = read(&forge);
        assert!(reading.delivered.samples.is_empty(), "attack {number}");
        assert!(
            reading.delivered.failure.is_some() && reading.table.is_err(),
            "attack {number}"
        );
    }
    // Fewer samples than the table has rows, or more, even if the index agrees.
    for count in [2, 4] {
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.manifest.sample_count = count;
        forge.index.resize(count as usize, forge.index[2]);
        assert!(read(&forge).table.unwrap_err().contains("3 rows"));
    }
}

#[test]
fn columns_named_like_those_of_the_table_are_read_and_refused_the_table() {
    for column in ["cache_id", "sample_id", "weight"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        Forge::with_column(column, Algorithm::None, &PAYLOADS).write(&path);
        let dataset = Dataset::open(&[path], options(Io::Auto)).unwrap();
        let delivered = deliver(&dataset);
        assert_eq!(delivered.failure, None);
        assert_eq!(delivered.samples.len(), PAYLOADS.len());
        let table = dataset.samples_metadata().map(drop);
        let view = dataset.select([]).map(drop);
        for outcome in [table, view] {
            let Err(error @ CacheError::Manifest { .. }) = outcome else {
                panic!("{outcome:?}")
            };
            let expected = format!("metadata column `{column}` has a name that");
            assert!(error.to_string().contains(&expected), "{error}");
        }
    }
}

/// A forged cache, opened and validated in full.
fn validated(forge: &Forge, interrupt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    forge.write(&path);
    Caches::open_stoppable(&[(path, Wanted::Newest)], Io::Auto, true, interrupt).map(drop)
}

#[test]
fn validation_compares_the_payload_bytes_of_a_shard() {
    for algorithm in [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd] {
        let mut forge = Forge::sound(algorithm, &PAYLOADS);
        validated(&forge, &mut || Ok(())).unwrap();
        forge.manifest.shards[0].uncompressed_byte_len += 1;
        let error = validated(&forge, &mut || Ok(())).unwrap_err().to_string();
        assert!(error.contains("payload bytes of the shard"), "{error}");
    }
}

#[test]
fn validation_ends_when_the_caller_says_so() {
    let forge = Forge::sound(Algorithm::None, &PAYLOADS);
    let outcome = validated(&forge, &mut || Err(CacheError::Interrupted));
    assert!(
        matches!(outcome, Err(CacheError::Interrupted)),
        "{outcome:?}"
    );
}

#[test]
fn a_sample_that_cannot_be_loaded_leaves_no_trace_in_its_chunk() {
    let head = record(Algorithm::None, 1, b"");
    let mut cut = record(Algorithm::Lz4, 1, &[7; 500]);
    cut.truncate(cut.len() - 1);
    let bad_column = [&13_u64.to_le_bytes()[..], br#"{"id":"text"}"#, b"payload"].concat();
    assert!(head.len() < cut.len());
    let mut short = record(Algorithm::Zstd, 1, &[7; 500]);
    short.truncate(short.len() - 1);
    for (algorithm, bytes) in [
        (Algorithm::Lz4, cut),
        (Algorithm::Zstd, short),
        (Algorithm::None, bad_column),
    ] {
        let (mut forge, row) = with_record(algorithm, &bytes);
        forge.index[1] = row;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        forge.write(&path);
        let caches = Caches::open(&[path], Io::Auto, false).unwrap();
        let list = Arc::clone(caches.list());
        let mut loader = Loader::new(list, caches.io(), Verify::First);
        let mut chunk = Chunk::default();
        let mut load =
            |sample, chunk: &mut Chunk| loader.append(SampleRef { cache: 0, sample }, chunk);
        load(0, &mut chunk).unwrap();
        assert!(load(1, &mut chunk).is_err());
        load(2, &mut chunk).unwrap();
        assert_eq!(chunk.len(), 2);
        assert_eq!(chunk.get(1).unwrap().payload, PAYLOADS[2]);
    }
}

#[test]
fn row_counts_of_a_table_are_not_believed() {
    // Without columns, a batch may claim any number of rows; these add up to 3 if the sum wraps.
    let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
    forge.manifest.metadata_schema = Schema::default();
    let mut file = writer(Vec::new(), &Schema::default()).unwrap();
    for rows in [1 << 62, 1 << 62, 1 << 62, (1 << 62) + 3] {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = arrow_schema(&Schema::default());
        let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
        file.write(&batch).unwrap();
    }
    file.finish().unwrap();
    forge.table = file.into_inner().unwrap();
    let fault = read(&forge).table.unwrap_err();
    assert!(fault.contains("rows"), "{fault}");
}

/// A small cache of several shards and the files it consists of.
fn sound_cache(folder: &Path) -> (PathBuf, Vec<String>) {
    let cache = write_here(folder, "train", Layout::none(150), &samples(5, 9));
    let files = [MANIFEST, METADATA, INDEX, CHECKSUMS].map(str::to_owned);
    let shards = [0, 1].map(|id| format!("{SHARDS}/{}", shard(id)));
    (cache, files.into_iter().chain(shards).collect())
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    type Place = fn(&Path);
    let places: [(&str, Place); 5] = [
        ("a pipe", |path| make_pipe(path)),
        ("a directory", |path| fs::create_dir(path).unwrap()),
        ("an endless device", |path| {
            symlink("/dev/zero", path).unwrap()
        }),
        ("a link to itself", |path| symlink(path, path).unwrap()),
        ("a link to nothing", |path| {
            symlink("/nonexistent", path).unwrap()
        }),
    ];
    for file in &files {
        for (what, place) in places {
            let copied = folder.path().join("copy");
            copy(&cache, &copied);
            fs::remove_file(copied.join(file)).unwrap();
            place(&copied.join(file));
            for io in ENGINES {
                let path = copied.clone();
                let error = returns(&format!("{file} is {what}"), move || open_error(&path, io));
                assert!(error.is_some(), "{file} is {what}");
            }
            fs::remove_dir_all(copied).unwrap();
        }
    }
}

#[test]
fn a_pipe_put_in_place_of_a_file_after_opening_does_not_hang_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    for file in files.iter().filter(|file| *file != MANIFEST) {
        for io in ENGINES {
            let copied = folder.path().join("copy");
            copy(&cache, &copied);
            let dataset = Dataset::open(std::slice::from_ref(&copied), options(io)).unwrap();
            fs::remove_file(copied.join(file)).unwrap();
            make_pipe(&copied.join(file));
            let errors = returns(&format!("{file} is a pipe"), move || {
                let sample = (0..5).find_map(|row| dataset.sample(row).err());
                [sample, dataset.samples_metadata().err()].map(|error| error.as_ref().map(typed))
            });
            assert!(
                errors
                    .iter()
                    .flatten()
                    .any(|error| error.contains("regular file")),
                "{errors:?}"
            );
            fs::remove_dir_all(copied).unwrap();
        }
    }
}

#[test]
fn no_link_leads_out_of_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, files) = sound_cache(folder.path());
    let outside = folder.path().join("outside");
    copy(&cache, &outside);
    for name in files.iter().map(String::as_str).chain([SHARDS]) {
        let copied = folder.path().join("copy");
        copy(&cache, &copied);
        if name == SHARDS {
            fs::remove_dir_all(copied.join(name)).unwrap();
        } else {
            fs::remove_file(copied.join(name)).unwrap();
        }
        symlink(outside.join(name), copied.join(name)).unwrap();
        for io in ENGINES {
            let error = open_error(&copied, io).unwrap_or_else(|| panic!("{name} is a link"));
            assert!(error.contains("symbolic link"), "{name}: {error}");
        }
        fs::remove_dir_all(copied).unwrap();
    }
    // The cache itself may be reached over a link.
    let link = folder.path().join("link");
    symlink(&cache, &link).unwrap();
    assert!(Reading::of(std::slice::from_ref(&link), options(Io::Auto)).is_sound());
    let twice = Dataset::open(&[cache, link], options(Io::Auto))
        .err()
        .unwrap();
    assert!(
        matches!(
            twice,
            CacheError::DuplicateCache {
                first: 0,
                second: 1,
                ..
            }
        ),
        "{twice}"
    );
}

#[test]
fn shard_names_that_leave_their_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "../outside.bin",
        "/etc/hostname",
        "a/b.bin",
        "a\\b.bin",
        "..",
        ".",
        "",
        "C:x",
        "x\0y",
        "NUL",
    ];
    for name in names {
        let path = folder.path().join("cache");
        let mut forge = Forge::sound(Algorithm::None, &PAYLOADS);
        forge.write(&path);
        forge.manifest.shards[0].name = name.to_owned();
        fs::write(path.join(MANIFEST), forge.manifest.to_bytes().unwrap()).unwrap();
        fs::write(folder.path().join("outside.bin"), &forge.shards[0]).unwrap();
        let error = open_error(&path, Io::Auto).unwrap();
        assert!(error.contains("plain file name"), "{name:?}: {error}");
        fs::remove_dir_all(path).unwrap();
    }
}

fn make_pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}
