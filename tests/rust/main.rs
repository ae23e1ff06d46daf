//! All integration tests of the core, in one binary so that it links once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

mod append;
mod cache_crash;
mod care_crash;
mod compact;
mod copy;
mod corruption;
mod crash;
mod damaged_or_raised;
mod damaged_positions;
mod damaged_rows;
mod engines;
mod generation_crash;
mod generation_model;
mod generations;
mod golden;
mod hostile_dictionaries;
mod hostile_files;
mod hostile_manifests;
mod hostile_records;
mod layers;
mod order;
mod reader;
mod reader_threads;
mod repair;
mod summary;
mod support;
mod tables;
mod vacuum;
mod value_stability;
mod verify_files;
mod verify_generations;
mod verify_records;
mod views;
mod write_dictionaries;
mod write_failures;
mod write_metadata;
mod write_roundtrip;
mod writers;
