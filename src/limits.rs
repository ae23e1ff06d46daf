//! Every bound of the system, each with its reason. A length from outside is compared with one of these before
//! anything is allocated for it.

/// Largest manifest read, in bytes. A shard entry takes about 250 bytes, so this is some 250,000 shards (16 TiB at the
/// default size).
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Most bytes of a lease that are read: it names a generation, a time and a process.
pub const LEASE_BYTES_MAX: u64 = 64 << 10;

/// Largest payload of one sample, in bytes: the length prefix of an lz4 or zstd payload has 32 bits.
pub const PAYLOAD_BYTES_MAX: u64 = u32::MAX as u64;

/// Fastest zstd level offered: below it payloads hardly shrink.
pub const ZSTD_LEVEL_MIN: i32 = -7;

/// Strongest zstd level offered: those above take hundreds of MiB in each thread and gain little on records.
pub const ZSTD_LEVEL_MAX: i32 = 19;

/// The zstd level of those who choose none: where zstd itself begins.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;

/// Fastest lz4 level, and that of those who choose none.
pub const LZ4_LEVEL_MIN: i32 = 1;

/// Strongest lz4 level: the last that LZ4 has.
pub const LZ4_LEVEL_MAX: i32 = 12;

/// Smallest zstd dictionary that is trained, in bytes: the tables in it alone take some hundred.
pub const DICTIONARY_BYTES_MIN: u64 = 1 << 10;

/// Largest zstd dictionary, in bytes. Each reader of a cache holds it twice, as it is and digested.
pub const DICTIONARY_BYTES_MAX: u64 = 1 << 20;

/// Bytes of samples that a dictionary is trained on, for each of its own: what zstd advises.
pub const DICTIONARY_SAMPLE_FACTOR: usize = 100;

/// Most bytes of samples that a dictionary is trained on; they are held in memory, twice.
pub const DICTIONARY_SAMPLE_BYTES_MAX: usize = 16 << 20;

/// Most samples that a dictionary is trained on: with metadata, they are held in memory too.
pub const DICTIONARY_SAMPLES_MAX: usize = 65_536;

/// Largest embedded metadata of one sample, in bytes. Metadata is for values one filters and weighs by; documents
/// belong in the payload.
pub const METADATA_JSON_BYTES_MAX: u64 = 16 << 20;

/// Most metadata columns of a cache: a manifest stays small and one Arrow batch stays in memory.
pub const METADATA_COLUMNS_MAX: usize = 4096;

/// Longest source name, in bytes: file systems allow 255, and a staging directory adds up to 40.
pub const SOURCE_NAME_BYTES_MAX: usize = 200;

/// Most fields of a typed payload: a batch has an array for each.
pub const PAYLOAD_FIELDS_MAX: usize = 1024;

/// Most axes of a payload field: NumPy allows as many.
pub const PAYLOAD_AXES_MAX: usize = 64;

/// Rows of one Arrow record batch in `metadata.arrow`; part of the file format.
pub const METADATA_BATCH_ROWS: usize = 65_536;

/// Most samples of one cache: index offsets stay below 2^63 bytes and row arithmetic in u64 never overflows.
pub const CACHE_SAMPLES_MAX: u64 = 1 << 48;

/// Most rows that distinct weights can be drawn over: the alias table stores row numbers in 32 bits.
pub const WEIGHTED_ROWS_MAX: u64 = u32::MAX as u64;

/// Length of a shard after which the next one is begun, in bytes, for those who choose none.
pub const SHARD_BYTES_DEFAULT: u64 = 64 << 20;

/// Bytes that travel together from the committer to a file and its hash: large, so that handing them over costs nothing.
pub const WRITE_BLOCK_BYTES: usize = 4 << 20;

/// Most samples one reader task carries: enough to hide the cost of a channel, few enough to keep memory in cache.
pub const CHUNK_SAMPLES_MAX: usize = 64;

/// Runs of a reader that may be out at once, unless runs of [`CHUNK_SAMPLES_MAX`] samples leave the window unfilled:
/// the queues take memory for each. Where runs are shorter, their samples are large.
pub const RUNS_MAX: usize = 1024;

/// Payload bytes after which a reader task or a writer chunk is closed early.
pub const CHUNK_BYTES_TARGET: usize = 512 << 10;

/// Most threads of one pool; more than this is a typing error, not a wish.
pub const THREADS_MAX: usize = 1024;

/// Most samples in flight in one pipeline.
pub const PREFETCH_MAX: usize = 1 << 20;

/// Memory of dropped batches that is kept for later ones, in bytes: a few large batches, a hundred ordinary ones.
pub const SLOT_BYTES_KEPT_MAX: usize = 512 << 20;

/// Bytes of batches that are loaded ahead or on their way: enough for any consumer, far below what a machine has.
pub const BATCH_BYTES_AHEAD_MAX: u64 = 1 << 30;

/// Samples that are drawn in the place of a damaged one before that is given up: where a tenth of a cache is damaged it
/// never happens, and where all of it is, it is told soon.
pub const SUBSTITUTES_MAX: u32 = 128;

/// Most damaged samples of a dataset that a process remembers, at some hundred bytes each.
pub const CORRUPT_SAMPLES_MAX: usize = 100_000;

/// Most findings of a check of a cache that are kept; the others are counted. More than anybody reads, few enough to hold
/// and hand over.
pub const FINDINGS_MAX: usize = 10_000;
