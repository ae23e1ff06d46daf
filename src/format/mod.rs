//! The files of a cache as bytes and values: no file is opened here and no thread started.
//!
//! A cache directory holds `manifest.json`, `metadata.arrow`, `index.bin`, `checksums.bin` and `shards/*.bin`; the
//! normative description is `docs/storage-format.md`.

pub mod arrow_values;
pub mod checksum;
pub mod columns;
pub mod compression;
mod dictionary;
pub mod envelope;
pub mod generation;
pub mod index;
mod lz4;
pub mod manifest;
pub mod metadata;
pub mod names;
pub mod payload;
pub mod row;
pub mod schema;
mod zstd;

/// Oldest format version this build reads.
pub const FORMAT_VERSION_OLDEST: u32 = 2;
/// Newest format version this build reads and writes.
pub const FORMAT_VERSION_NEWEST: u32 = 4;
