//! Small validated values that every layer speaks in.

/// One physical sample: which cache of the dataset, and which row of that cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleRef {
    /// Position of the cache in the list given to the dataset.
    pub cache: u32,
    /// Row in that cache.
    pub sample: u64,
}

/// How much of what is read is compared with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Each record the first time this process reads it.
    First,
    /// Each record every time.
    Always,
    /// Nothing; for media that check themselves.
    Never,
}

/// What becomes of a sample whose record is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// It is an error.
    Raise,
    /// It is left out: of a batch its values, of single samples it altogether.
    Skip,
    /// Another sample takes its place, always the same one.
    Substitute,
}

/// How file bytes reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Mapping on local file systems, positional reads on network ones.
    Auto,
    /// Memory mapping.
    Mmap,
    /// Positional reads.
    Pread,
}
