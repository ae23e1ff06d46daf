//! Caches written under every option, and samples to write into them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dataset_rt::error::Result;
use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::manifest::Compression;
use dataset_rt::format::schema::Schema;
use dataset_rt::store::lock::CacheLock;
use dataset_rt::store::vfs::{OsVfs, Vfs};
use dataset_rt::writer::profiler::Profile;
use dataset_rt::writer::{CacheWriter, WriteRequest, WriteSummary, WriterOptions};

use super::naive::{Cell, Sample};

/// Columns of [`mixed`].
pub const NAMES: [&str; 4] = ["b", "f", "i", "s"];

/// Every algorithm.
pub const ALGORITHMS: [Algorithm; 3] = [Algorithm::None, Algorithm::Lz4, Algorithm::Zstd];

/// Everything a write depends on but its samples.
pub struct Setup {
    pub prefetch: u64,
    pub threads: u64,
    pub shard_bytes: u64,
    pub algorithm: Algorithm,
    pub level: Option<i64>,
    pub dictionary_bytes: u64,
    pub schema: Option<Schema>,
    pub version: Option<String>,
    pub vfs: Arc<dyn Vfs>,
    pub locked: bool,
    pub profile: Arc<Profile>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            prefetch: 64,
            threads: 4,
            shard_bytes: 64 << 20,
            algorithm: Algorithm::None,
            level: None,
            dictionary_bytes: 0,
            schema: None,
            version: None,
            vfs: Arc::new(OsVfs),
            locked: false,
            profile: Arc::default(),
        }
    }
}

impl Setup {
    /// Starts to write the cache `base/train`.
    pub fn begin(&self, base: &Path) -> Result<CacheWriter> {
        let compression = Compression {
            algo: self.algorithm,
            ratio: 1.0,
        };
        CacheWriter::create(WriteRequest {
            vfs: Arc::clone(&self.vfs),
            base,
            name: "train",
            options: WriterOptions::new(
                self.prefetch,
                self.threads,
                self.shard_bytes,
                compression,
            )?
            .with_level(self.level, self.dictionary_bytes)?,
            schema: self.schema.clone(),
            payload: None,
            source_version: self.version.clone(),
            lock: match self.locked {
                true => CacheLock::try_acquire(base, "train")?,
                false => CacheLock::without_locking(base, "train"),
            },
            profile: Arc::clone(&self.profile),
        })
    }

    /// Writes the cache `base/train`.
    pub fn write<'a>(
        &self,
        base: &Path,
        names: &[&str],
        samples: impl IntoIterator<Item = &'a Sample>,
    ) -> Result<WriteSummary> {
        let mut writer = self.begin(base)?;
        for (payload, cells) in samples {
            let values: Vec<_> = names
                .iter()
                .copied()
                .zip(cells.iter().map(Cell::value))
                .collect();
            if writer.push_named(payload, &values)? {
                writer.submit(&mut || Ok(()))?;
            }
        }
        writer.finish(&mut || Ok(()))
    }
}

/// Paths of what a directory holds.
pub fn entries(path: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(path).unwrap();
    listed.map(|entry| entry.unwrap().path()).collect()
}

/// Numbers that look random and are always the same.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Samples of every shape: empty and long payloads, text that shrinks and noise that does not, extremes in all types.
pub fn mixed(count: u64) -> Vec<Sample> {
    let texts = ["", "a", "日本語🙂", "quote\"back\\slash\n\u{0}", " lead"];
    let ints = [0, -1, i64::MIN, i64::MAX, (1 << 53) + 1];
    let floats = [0.0, -0.0, 0.1, f64::MAX, 5e-324];
    let sizes = [0, 1, 14, 15, 300, 4096, 70_000];
    (0..count)
        .map(|n| {
            let size = sizes[(n % 7) as usize];
            let payload = match n % 2 {
                0 => vec![n as u8; size],
                _ => noise(n, size),
            };
            let at = (n % 5) as usize;
            let cells = vec![
                Cell::Bool(n % 3 == 0),
                Cell::Float(floats[at].to_bits()),
                Cell::Int(ints[at]),
                Cell::Str(texts[at].to_owned()),
            ];
            (payload, cells)
        })
        .collect()
}

/// Short texts that share most of their words.
pub fn texts(count: u64) -> Vec<Sample> {
    let text = |n: u64| {
        format!(
            "sample {n}: a photo of object number {} on a table",
            n * 7919
        )
    };
    let sample = |n| (text(n).into_bytes(), vec![Cell::Int(n as i64)]);
    (0..count).map(sample).collect()
}
