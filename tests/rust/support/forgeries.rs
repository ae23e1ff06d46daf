//! Forged caches, and what both engines make of them.

use dataset_rt::format::compression::Algorithm;
use dataset_rt::format::index::IndexRow;
use dataset_rt::types::Io;

use super::caches::Forge;
use super::reading::{Reading, options, returns};

/// Both ways to read a file.
pub const ENGINES: [Io; 2] = [Io::Auto, Io::Pread];

/// Payloads of most forged caches.
pub const PAYLOADS: [&[u8]; 3] = [b"first", b"", b"the third of the payloads"];

/// What both engines make of a forged cache.
pub fn read(forge: &Forge) -> Reading {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    forge.write(&path);
    returns("reading", move || {
        let [mapped, read] =
            ENGINES.map(|io| Reading::of(std::slice::from_ref(&path), options(io)));
        assert_eq!(mapped, read);
        drop(folder);
        mapped
    })
}

/// What is wrong with sample `at` of a forged cache; the samples before it are right.
pub fn fault_of(forge: &Forge, at: usize) -> String {
    let delivered = read(forge).delivered;
    let payloads: Vec<&[u8]> = delivered.samples.iter().map(|(p, _)| &p[..]).collect();
    assert_eq!(payloads, PAYLOADS[..at]);
    delivered.failure.unwrap()
}

/// A sound cache of which one shard holds one record more, which no row points at.
pub fn with_record(algorithm: Algorithm, extra: &[u8]) -> (Forge, IndexRow) {
    let mut forge = Forge::sound(algorithm, &PAYLOADS);
    let row = IndexRow {
        shard: 0,
        offset: forge.shards[0].len() as u64,
        byte_len: extra.len() as u64,
    };
    forge.shards[0].extend_from_slice(extra);
    forge.manifest.shards[0].byte_len += row.byte_len;
    (forge, row)
}
