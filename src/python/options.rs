//! `ReaderConfig` as it crosses into Rust: once, as JSON, checked field by field against its twin here.

use pyo3::prelude::*;
use serde::Deserialize;

use super::errors::to_pyerr;
use crate::dataset::{DatasetOptions, OrderOptions, Ranks};
use crate::error::CacheError;
use crate::sampling::order::Mode;
use crate::sampling::position::Remainder;
use crate::types::{Io, Verify};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReaderConfig {
    seed: u64,
    prefetch_size: usize,
    num_workers: usize,
    shuffle: bool,
    replacement: bool,
    epoch_length: Option<u64>,
    rank: u64,
    world_size: u64,
    validate_cache: bool,
    verify: VerifyName,
    io: IoName,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerifyName {
    First,
    Always,
    Never,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum IoName {
    Auto,
    Mmap,
    Pread,
}

/// Options from the JSON form of a `ReaderConfig`.
pub fn parse(json: &str) -> PyResult<DatasetOptions> {
    let config: ReaderConfig = serde_json::from_str(json).map_err(|error| {
        to_pyerr(CacheError::option(
            "reader_config",
            "the fields of ReaderConfig",
            error,
        ))
    })?;
    Ok(DatasetOptions {
        order: OrderOptions {
            mode: match (config.shuffle, config.replacement) {
                (false, _) => Mode::Physical,
                (true, true) => Mode::WithReplacement,
                (true, false) => Mode::WithoutReplacement,
            },
            seed: config.seed,
            epoch_length: config.epoch_length,
        },
        ranks: Ranks {
            rank: config.rank,
            world_size: config.world_size,
        },
        prefetch_size: config.prefetch_size,
        num_workers: config.num_workers,
        verify: match config.verify {
            VerifyName::First => Verify::First,
            VerifyName::Always => Verify::Always,
            VerifyName::Never => Verify::Never,
        },
        io: match config.io {
            IoName::Auto => Io::Auto,
            IoName::Mmap => Io::Mmap,
            IoName::Pread => Io::Pread,
        },
        validate_cache: config.validate_cache,
    })
}

/// What to do with positions that do not fill a global batch, by its name.
pub fn remainder(name: &str) -> PyResult<Remainder> {
    match name {
        "keep" => Ok(Remainder::Keep),
        "drop" => Ok(Remainder::Drop),
        "pad" => Ok(Remainder::Pad),
        _ => Err(to_pyerr(CacheError::option(
            "remainder",
            "\"keep\", \"drop\" or \"pad\"",
            format!("{name:?}"),
        ))),
    }
}
