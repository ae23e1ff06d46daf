//! Samples in, a published generation out.
//!
//! A [`CacheWriter`] makes a new cache, or appends to one: then the index and the record checksums of the generation before
//! are copied in front, the samples get the ids that follow, and everything else of the cache stays where it is.
//!
//! It takes samples in the caller's thread and collects them in chunks; threads encode the chunks,
//! commit them in order into shards, index, checksums and metadata table, and write and hash these files block by
//! block. The bytes of a cache depend on its samples and options alone.
//!
//! **Memory.** At most `prefetch_size` samples are on their way from the source to the write blocks, in at most
//! `min(num_threads, cores) + 2` chunks; a chunk is closed at 512 KiB, so it holds at most 512 KiB and one sample. With
//! compression, each worker holds the stored form of one chunk besides. While a dictionary is trained, the first samples
//! are held back, 16 MiB and one sample at most, and a copy of them. To this come eight write blocks of 4 MiB, and
//! the metadata of at most 65,536 rows (or, with long texts, 256 MiB of text) until its batch is written. Neither the
//! number of samples nor the size of shards matters.
//!
//! Tables and arrays ([`Feed`]) are read where they lie: a chunk of theirs holds no payload but knows its rows, at most
//! 1,024 of them, so that `prefetch_size` has nothing to bound. Only compression copies the payloads of one chunk per
//! worker.

mod arrow_rows;
mod before;
mod begin;
mod block;
mod cache_writer;
mod chunk;
mod commit;
mod encode;
mod feed;
mod known;
mod layout;
mod manifest;
mod options;
mod outlet;
mod pipeline;
pub mod profiler;
pub mod progress;
mod rows;
mod table;
mod target;
mod training;
mod turn;

pub use begin::{AppendRequest, WriteRequest};
pub use cache_writer::CacheWriter;
pub use chunk::Row;
pub use feed::{Batches, Feed, Rule};
pub use known::PayloadOrigin;
pub use options::WriterOptions;
pub use rows::{FieldRows, Offsets};
pub use target::WriteSummary;
