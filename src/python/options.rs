//! `ReaderConfig` as it crosses into Rust: once, as JSON, checked field by field against its twin here.

use std::ops::RangeInclusive;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use serde::Deserialize;

use super::errors::to_pyerr;
use crate::dataset::{DatasetOptions, OrderOptions, Ranks};
use crate::error::CacheError;
use crate::sampling::order::Mode;
use crate::sampling::position::Remainder;
use crate::store::generations::Wanted;
use crate::types::{Io, OnCorrupt, Verify};

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
    populate_bytes: u64,
    fall_back: bool,
    on_corrupt: OnCorruptName,
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

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnCorruptName {
    Raise,
    Skip,
    Substitute,
}

/// Options from the JSON form of a `ReaderConfig`, and which generation is opened where none is named.
pub fn parse(json: &str) -> PyResult<(DatasetOptions, Wanted)> {
    let config: ReaderConfig = serde_json::from_str(json).map_err(|error| {
        to_pyerr(CacheError::option(
            "reader_config",
            "the fields of ReaderConfig",
            error,
        ))
    })?;
    let options = DatasetOptions {
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
        populate_bytes: config.populate_bytes,
        validate_cache: config.validate_cache,
        on_corrupt: match config.on_corrupt {
            OnCorruptName::Raise => OnCorrupt::Raise,
            OnCorruptName::Skip => OnCorrupt::Skip,
            OnCorruptName::Substitute => OnCorrupt::Substitute,
        },
    };
    let wanted = match config.fall_back {
        true => Wanted::LastGood,
        false => Wanted::Newest,
    };
    Ok((options, wanted))
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

/// A whole number of any size, cut to what 128 bits hold: further away is out of every range alike.
pub fn whole(value: &Bound<'_, PyAny>) -> PyResult<i128> {
    // Numbers of 128 bits take several calls into the interpreter.
    if let Ok(number) = value.extract::<i64>() {
        return Ok(number.into());
    }
    value.extract::<i128>().or_else(|error| {
        if !error.is_instance_of::<PyOverflowError>(value.py()) {
            return Err(error);
        }
        Ok(if value.lt(0)? { i128::MIN } else { i128::MAX })
    })
}

/// A whole number of `range`.
///
/// # Errors
/// `ConfigError` naming the option, its range and the value.
pub fn natural(
    option: &str,
    value: &Bound<'_, PyAny>,
    range: RangeInclusive<u64>,
) -> PyResult<u64> {
    let number = u64::try_from(whole(value)?).ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let expected = match (range.start(), range.end()) {
                (least, &u64::MAX) => format!("at least {least}"),
                (least, most) => format!("{least} to {most}"),
            };
            to_pyerr(CacheError::option(option, expected, value))
        })
}

/// The number of an epoch.
pub fn epoch(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    let number = natural("epoch", value, 0..=u64::from(u32::MAX) - 1)?;
    u32::try_from(number).map_err(|_| to_pyerr(CacheError::internal("an epoch beyond its range")))
}

/// An epoch and a range of its positions, as far as numbers of 64 bits reach; `len` is asked only for an error.
///
/// # Errors
/// `RowIndexError` naming a bound that no epoch has.
pub fn positions(
    epoch_value: &Bound<'_, PyAny>,
    start: &Bound<'_, PyAny>,
    stop: Option<&Bound<'_, PyAny>>,
    len: impl Fn() -> crate::error::Result<u64>,
) -> PyResult<(u32, u64, Option<u64>)> {
    let bound = |value: &Bound<'_, PyAny>| {
        let index = whole(value)?;
        u64::try_from(index).map_err(|_| match len() {
            Ok(len) => to_pyerr(CacheError::OutOfRange { index, len }),
            Err(error) => to_pyerr(error),
        })
    };
    Ok((
        epoch(epoch_value)?,
        bound(start)?,
        stop.map(bound).transpose()?,
    ))
}
