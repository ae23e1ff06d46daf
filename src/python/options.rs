//! `ReaderConfig` as it crosses into Rust: once, as JSON, checked field by field against its twin here.

use pyo3::prelude::*;
use serde::Deserialize;

use super::errors::to_pyerr;
use crate::dataset::{DatasetOptions, OrderOptions};
use crate::error::CacheError;
use crate::sampling::order::Mode;
use crate::types::{Io, Verify};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReaderConfig {
    seed: u64,
    prefetch_size: usize,
    num_workers: usize,
    shuffle: bool,
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
            mode: if config.shuffle {
                Mode::WithReplacement
            } else {
                Mode::Physical
            },
            seed: config.seed,
            epoch_length: None,
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
