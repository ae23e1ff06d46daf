//! Samples in, records out: everything about a chunk that needs no knowledge of other chunks.

use std::convert::Infallible;

use super::chunk::{Chunk, Stored, metadata_too_large};
use super::profiler::{Profile, Stage};
use crate::error::{CacheError, Result};
use crate::format::checksum::{Crc32c, Crc32cHasher};
use crate::format::compression::Encoder;
use crate::format::envelope;
use crate::limits::METADATA_JSON_BYTES_MAX;

/// Fills in the encoded parts of a chunk; the first row of the source has the sample id `first_id`.
///
/// # Errors
/// [`CacheError::Sample`] for metadata that is too large as JSON, or a payload that there is no memory to compress.
pub(super) fn encode(
    chunk: &mut Chunk,
    first_id: u64,
    encoder: &mut Encoder<'_>,
    profile: &Profile,
) -> Result<()> {
    profile.time(Stage::Encode, || heads(chunk))?;
    if !encoder.is_plain() {
        profile.time(Stage::Compress, || compress(chunk, encoder))?;
    }
    profile.time(Stage::Checksum, || checksums(chunk, first_id));
    Ok(())
}

fn heads(chunk: &mut Chunk) -> Result<()> {
    let layout = chunk
        .layout
        .clone()
        .ok_or_else(|| CacheError::internal("a chunk without a layout"))?;
    for row in 0..chunk.len() {
        let before = chunk.heads.byte_len();
        let columns = &chunk.columns;
        chunk.heads.push_with(|out| {
            envelope::begin(out, |out| layout.encoder.append(columns, row, out));
        });
        let len = chunk.heads.byte_len() - before;
        let json_len = (len as u64).saturating_sub(envelope::LENGTH_PREFIX as u64);
        if json_len > METADATA_JSON_BYTES_MAX {
            let row = chunk.first_row.saturating_add(row as u64);
            return Err(metadata_too_large(row, json_len));
        }
    }
    Ok(())
}

fn compress(chunk: &mut Chunk, encoder: &mut Encoder<'_>) -> Result<()> {
    chunk.gather();
    let mut stored = chunk.stored.take().unwrap_or_default();
    stored.clear();
    for (payload, row) in chunk.payloads.iter().zip(chunk.first_row..) {
        let mut outcome = Ok(());
        stored.push_with(|out| outcome = encoder.store(payload, out));
        outcome.map_err(|fault| CacheError::Sample { row, fault })?;
    }
    chunk.stored = Some(stored);
    Ok(())
}

fn checksums(chunk: &mut Chunk, first_id: u64) {
    let first_id = first_id.saturating_add(chunk.first_row);
    let mut checksums = std::mem::take(&mut chunk.checksums);
    let records = chunk.heads.iter().zip(chunk.stored());
    checksums.extend(records.zip(first_id..).map(|((head, stored), id)| {
        let mut hasher = Crc32cHasher::default();
        hasher.update(head);
        let hashed = stored.parts(|part| {
            hasher.update(part);
            Ok::<_, Infallible>(())
        });
        hashed.unwrap_or_default();
        hasher.update(&id.to_le_bytes());
        hasher.finish()
    }));
    chunk.checksums = checksums;
}

impl Chunk {
    /// The two parts of each encoded record and its checksum.
    pub fn records(&self) -> impl Iterator<Item = (&[u8], Stored<'_>, Crc32c)> {
        let records = self.heads.iter().zip(self.stored());
        records
            .zip(&self.checksums)
            .map(|((head, stored), &checksum)| (head, stored, checksum))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::columns::Value;
    use crate::format::compression::{Algorithm, Decoder, Recipe, ZstdParameters, payload_len};
    use crate::writer::layout::{Layout, Learned};

    #[test]
    fn records_split_into_what_went_in_and_carry_their_checksum() {
        let zstd = Recipe::Zstd(ZstdParameters::new(3, None).unwrap());
        for (algorithm, recipe) in [
            (Algorithm::None, Recipe::None),
            (Algorithm::Lz4, Recipe::Lz4(1)),
            (Algorithm::Zstd, zstd),
        ] {
            let mut encoder = Encoder::new(&recipe).unwrap();
            let layout = Arc::new(Layout::inferred(vec!["n".to_owned()]).unwrap());
            let mut learned = Learned::new(&layout);
            let mut chunk = Chunk {
                first_row: 40,
                ..Chunk::default()
            };
            let payloads = [vec![7; 1000], Vec::new(), b"abc".to_vec()];
            // Twice: the second time all buffers have been used before.
            for _ in 0..2 {
                chunk.clear();
                for (n, payload) in payloads.iter().enumerate() {
                    let mut row = chunk.push(payload, &layout, &mut learned);
                    row.set(Value::Int(n as i64)).unwrap();
                }
                encode(&mut chunk, 500, &mut encoder, &Profile::default()).unwrap();
                assert_eq!(chunk.records().count(), 3);
                for (n, (head, stored, checksum)) in chunk.records().enumerate() {
                    let Stored::Own(stored) = stored else {
                        panic!("a payload of our own was lent");
                    };
                    let record = [head, stored].concat();
                    assert_eq!(checksum, Crc32c::of_record(&record, 540 + n as u64));
                    let (json, stored) = envelope::split(&record).unwrap();
                    assert_eq!(json, format!("{{\"n\":{n}}}").as_bytes());
                    let len = payload_len(algorithm, stored).unwrap();
                    let mut payload = vec![0; len];
                    let mut decoder = Decoder::default();
                    decoder
                        .restore_into(algorithm, None, stored, &mut payload)
                        .unwrap();
                    assert_eq!(payload, payloads[n]);
                }
            }
        }
    }

    #[test]
    fn metadata_that_only_json_makes_too_large_is_refused_with_its_row() {
        let layout = Arc::new(Layout::inferred(vec!["t".to_owned()]).unwrap());
        let mut learned = Learned::new(&layout);
        let mut chunk = Chunk {
            first_row: 5,
            ..Chunk::default()
        };
        let text = "\"".repeat(METADATA_JSON_BYTES_MAX as usize / 2 + 1);
        for value in ["", &text] {
            let mut row = chunk.push(b"", &layout, &mut learned);
            row.set(Value::Str(value)).unwrap();
        }
        let mut encoder = Encoder::new(&Recipe::None).unwrap();
        let error = encode(&mut chunk, 500, &mut encoder, &Profile::default()).unwrap_err();
        assert!(
            matches!(error, CacheError::Sample { row: 6, .. }),
            "{error}"
        );
    }
}
