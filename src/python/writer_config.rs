//! `WriterConfig` as it crosses into Rust: once, as JSON.

use std::path::PathBuf;

use serde::Deserialize;

use crate::error::{CacheError, Result};
use crate::format::compression::Algorithm;
use crate::format::manifest::Compression;
use crate::writer::WriterOptions;

/// A checked configuration.
pub struct Config {
    /// How each cache is written.
    pub options: WriterOptions,
    /// Whether progress is drawn.
    pub show_progress: bool,
    /// Whether a cache that is reused is checked in full.
    pub validate_cache: bool,
    /// Where the timings go, if anybody wants them.
    pub profile_path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    prefetch_size: u64,
    num_threads: u64,
    max_shard_bytes: u64,
    shard_compression: CompressionJson,
    show_progress: bool,
    validate_cache: bool,
    profiler: ProfilerJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompressionJson {
    algo: Algorithm,
    ratio: f64,
    level: Option<i64>,
    dictionary_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilerJson {
    enabled: bool,
    path: PathBuf,
}

/// Reads the JSON form of a `WriterConfig`.
///
/// # Errors
/// [`CacheError::Option`] for a field that is missing, unknown or outside its range.
pub fn parse(json: &str) -> Result<Config> {
    let json: Json = serde_json::from_str(json).map_err(|error| {
        CacheError::option("writer_config", "the fields of WriterConfig", error)
    })?;
    Ok(Config {
        options: WriterOptions::new(
            json.prefetch_size,
            json.num_threads,
            json.max_shard_bytes,
            Compression {
                algo: json.shard_compression.algo,
                ratio: json.shard_compression.ratio,
            },
        )?
        .with_level(
            json.shard_compression.level,
            json.shard_compression.dictionary_bytes,
        )?,
        show_progress: json.show_progress,
        validate_cache: json.validate_cache,
        profile_path: json.profiler.enabled.then_some(json.profiler.path),
    })
}
