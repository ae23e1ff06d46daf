//! Small caches made by the real writer, and forged ones in which any file may say anything, under valid checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::error::Result;
use dataset_rt::format::checksum::{Crc32c, Sha256Digest};
use dataset_rt::format::columns::{Column, Value};
use dataset_rt::format::compression::{Algorithm, Encoder, Recipe, ZstdParameters};
use dataset_rt::format::envelope;
use dataset_rt::format::index::IndexRow;
use dataset_rt::format::manifest::{
    ChecksumAlgorithm, Compression, DictionaryEntry, Manifest, RecordChecksums, ShardEntry,
};
use dataset_rt::format::metadata;
use dataset_rt::format::names::{CHECKSUMS, DICTIONARY, INDEX, MANIFEST, METADATA, SHARDS, shard};
use dataset_rt::format::schema::{ColumnSpec, Kind, Schema};
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::Vfs;
use dataset_rt::writer::{CacheWriter, WriteRequest, WriterOptions};

use super::naive::{Cell, Sample};

/// Columns of [`samples`], in name order.
pub const COLUMNS: [&str; 4] = ["good", "id", "ratio", "text"];

/// How a cache is written.
#[derive(Clone, Copy)]
pub struct Layout {
    pub algorithm: Algorithm,
    pub shard_bytes: u64,
    /// Most bytes of a zstd dictionary; 0 for none.
    pub dictionary_bytes: u64,
}

impl Layout {
    pub fn of(algorithm: Algorithm, shard_bytes: u64) -> Self {
        Self {
            algorithm,
            shard_bytes,
            dictionary_bytes: 0,
        }
    }

    pub fn none(shard_bytes: u64) -> Self {
        Self::of(Algorithm::None, shard_bytes)
    }

    pub fn lz4(shard_bytes: u64) -> Self {
        Self::of(Algorithm::Lz4, shard_bytes)
    }

    pub fn zstd(shard_bytes: u64) -> Self {
        Self::of(Algorithm::Zstd, shard_bytes)
    }

    /// With the smallest dictionary there is.
    pub fn trained(shard_bytes: u64) -> Self {
        Self {
            dictionary_bytes: 1024,
            ..Self::zstd(shard_bytes)
        }
    }
}

/// Samples that differ in everything; every third payload is empty, and no two records are equal.
pub fn samples(count: usize, payload_bytes: usize) -> Vec<Sample> {
    let row = |at: usize| {
        let len = if at % 3 == 1 { 0 } else { payload_bytes + at };
        let payload = (0..len).map(|byte| (byte / 5 * 3 + at) as u8).collect();
        let cells = vec![
            Cell::Bool(at.is_multiple_of(2)),
            Cell::Int(at as i64 - 2),
            Cell::Float((at as f64 / 3.0).to_bits()),
            Cell::Str(["", "é", "a text of more than twelve bytes"][at % 3].to_owned()),
        ];
        (payload, cells)
    };
    (0..count).map(row).collect()
}

/// Writes `base/name` with the real writer, and returns its path.
pub fn write(
    vfs: Arc<dyn Vfs>,
    base: &Path,
    name: &str,
    lock: CacheLock,
    layout: Layout,
    samples: &[Sample],
) -> Result<PathBuf> {
    let compression = Compression {
        algo: layout.algorithm,
        ratio: 1.0,
    };
    let mut writer = CacheWriter::create(WriteRequest {
        vfs,
        base,
        name,
        options: WriterOptions::new(8, 1, layout.shard_bytes, compression)?
            .with_level(None, layout.dictionary_bytes)?,
        schema: None,
        payload: None,
        source_version: None,
        lock,
        profile: Arc::default(),
    })?;
    for (payload, cells) in samples {
        let values: Vec<(&str, Value<'_>)> = COLUMNS
            .into_iter()
            .zip(cells.iter().map(Cell::value))
            .collect();
        if writer.push_named(payload, &values)? {
            writer.submit(&mut || Ok(()))?;
        }
    }
    Ok(writer.finish(&mut || Ok(()))?.path)
}

/// Writes `base/name` on the real disk.
pub fn write_here(base: &Path, name: &str, layout: Layout, samples: &[Sample]) -> PathBuf {
    let vfs = Arc::new(dataset_rt::store::vfs::OsVfs);
    let lock = CacheLock::without_locking(base, name);
    write(vfs, base, name, lock, layout, samples).unwrap()
}

/// Copies a directory and all below it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A cache in the making whose parts may contradict each other; whole-file and record checksums always fit the parts.
pub struct Forge {
    pub manifest: Manifest,
    pub index: Vec<IndexRow>,
    /// Bytes of `metadata.arrow`.
    pub table: Vec<u8>,
    pub shards: Vec<Vec<u8>>,
    /// Bytes of `dictionary.zstd`, if there is one.
    pub dictionary: Option<Vec<u8>>,
    /// Checksums of the records, one a row; computed from index and shards where absent.
    pub checksums: Option<Vec<Crc32c>>,
}

impl Forge {
    /// A sound cache with one int column `id`, whose values count up, and one shard.
    pub fn sound(algorithm: Algorithm, payloads: &[&[u8]]) -> Self {
        Self::with_column("id", algorithm, payloads)
    }

    /// As [`Forge::sound`], with another name for the column.
    pub fn with_column(name: &str, algorithm: Algorithm, payloads: &[&[u8]]) -> Self {
        let schema = Schema::new(vec![ColumnSpec {
            name: name.to_owned(),
            kind: Kind::Int,
            nullable: false,
        }])
        .unwrap();
        let (mut shard_bytes, mut index) = (Vec::new(), Vec::new());
        let mut column = Column::new(Some(Kind::Int));
        for (id, payload) in (0..).zip(payloads) {
            let offset = shard_bytes.len() as u64;
            shard_bytes.extend_from_slice(&named_record(name, algorithm, id, payload));
            let byte_len = shard_bytes.len() as u64 - offset;
            index.push(IndexRow {
                shard: 0,
                offset,
                byte_len,
            });
            column.push(Value::Int(id)).unwrap();
        }
        let batch = metadata::to_batch(&[column], &schema, payloads.len()).unwrap();
        let mut table = metadata::writer(Vec::new(), &schema).unwrap();
        table.write(&batch).unwrap();
        table.finish().unwrap();
        let manifest = Manifest {
            format_version: if algorithm == Algorithm::Zstd { 4 } else { 2 },
            cache_id: None,
            source_name: "forged".to_owned(),
            sample_count: payloads.len() as u64,
            metadata_schema: schema,
            metadata_sha256: Sha256Digest([0; 32]),
            index_sha256: Sha256Digest([0; 32]),
            shards: vec![ShardEntry {
                name: shard(0),
                uncompressed_byte_len: payloads.iter().map(|p| p.len() as u64).sum(),
                byte_len: shard_bytes.len() as u64,
                compression: Compression {
                    algo: algorithm,
                    ratio: 1.0,
                },
                sha256: Sha256Digest([0; 32]),
                generation: 0,
            }],
            payload: None,
            record_checksums: Some(RecordChecksums {
                algo: ChecksumAlgorithm::Crc32c,
                sha256: Sha256Digest([0; 32]),
            }),
            metadata_crc32c: None,
            dictionary: None,
            source_version: None,
            created_by: None,
            generation: None,
            removed: false,
        };
        Self {
            manifest,
            index,
            table: table.into_inner().unwrap(),
            shards: vec![shard_bytes],
            dictionary: None,
            checksums: None,
        }
    }

    /// Writes the cache to a new directory; the manifest keeps what was set in it, but for the hashes.
    pub fn write(&self, path: &Path) {
        let mut manifest = self.manifest.clone();
        fs::create_dir_all(path.join(SHARDS)).unwrap();
        for (entry, bytes) in manifest.shards.iter_mut().zip(&self.shards) {
            entry.sha256 = Sha256Digest::of(bytes);
            fs::write(path.join(SHARDS).join(&entry.name), bytes).unwrap();
        }
        let index: Vec<u8> = self.index.iter().flat_map(|row| row.to_bytes()).collect();
        manifest.index_sha256 = Sha256Digest::of(&index);
        fs::write(path.join(INDEX), index).unwrap();
        manifest.metadata_sha256 = Sha256Digest::of(&self.table);
        manifest.metadata_crc32c = Some(Crc32c::of(&self.table));
        fs::write(path.join(METADATA), &self.table).unwrap();
        if let Some(entry) = &mut manifest.record_checksums {
            let checksums = self.checksums.clone().unwrap_or_else(|| self.truthful());
            let bytes: Vec<u8> = checksums.iter().flat_map(|c| c.0.to_le_bytes()).collect();
            entry.sha256 = Sha256Digest::of(&bytes);
            fs::write(path.join(CHECKSUMS), bytes).unwrap();
        }
        if let Some(bytes) = &self.dictionary {
            manifest.dictionary = Some(DictionaryEntry {
                byte_len: bytes.len() as u64,
                sha256: Sha256Digest::of(bytes),
            });
            fs::write(path.join(DICTIONARY), bytes).unwrap();
        }
        fs::write(path.join(MANIFEST), manifest.to_bytes().unwrap()).unwrap();
    }

    /// Checksums of what the index points at, as far as that exists.
    pub fn truthful(&self) -> Vec<Crc32c> {
        let record = |row: &IndexRow| {
            let start = usize::try_from(row.offset).ok()?;
            let end = start.checked_add(usize::try_from(row.byte_len).ok()?)?;
            self.shards
                .get(usize::try_from(row.shard).ok()?)?
                .get(start..end)
        };
        let checksum = |(row, id)| Crc32c::of_record(record(row).unwrap_or_default(), id);
        self.index.iter().zip(0..).map(checksum).collect()
    }
}

/// A record of a [`Forge`].
pub fn record(algorithm: Algorithm, id: i64, payload: &[u8]) -> Vec<u8> {
    named_record("id", algorithm, id, payload)
}

fn named_record(name: &str, algorithm: Algorithm, id: i64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    envelope::begin(&mut out, |out| {
        out.extend_from_slice(format!(r#"{{"{name}":{id}}}"#).as_bytes());
    });
    store(algorithm, payload, &mut out);
    out
}

/// Appends the stored form of a payload.
pub fn store(algorithm: Algorithm, payload: &[u8], out: &mut Vec<u8>) {
    let recipe = match algorithm {
        Algorithm::None => Recipe::None,
        Algorithm::Lz4 => Recipe::Lz4(1),
        Algorithm::Zstd => Recipe::Zstd(ZstdParameters::new(3, None).unwrap()),
    };
    Encoder::new(&recipe).unwrap().store(payload, out).unwrap();
}
