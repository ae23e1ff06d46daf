//! A record: u64 little-endian metadata length, metadata JSON, stored payload.

use crate::limits::METADATA_JSON_BYTES_MAX;

/// Bytes before the metadata.
pub const LENGTH_PREFIX: usize = 8;

/// Opens a record at the end of `out`: reserves the length, lets `metadata` append the JSON, and fills the length in.
/// The caller appends the stored payload after it.
pub fn begin(out: &mut Vec<u8>, metadata: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_PREFIX]);
    let json_start = out.len();
    metadata(out);
    let json_len = (out.len() - json_start) as u64;
    if let Some(slot) = out.get_mut(start..json_start) {
        slot.copy_from_slice(&json_len.to_le_bytes());
    }
}

/// Splits a record into metadata JSON and stored payload, or says what is wrong.
pub fn split(record: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let Some((prefix, rest)) = record.split_first_chunk::<LENGTH_PREFIX>() else {
        return Err(format!(
            "a record of {} bytes, shorter than its 8-byte length prefix",
            record.len()
        ));
    };
    let json_len = u64::from_le_bytes(*prefix);
    if json_len > METADATA_JSON_BYTES_MAX {
        return Err(format!(
            "metadata of {json_len} bytes, more than the limit of {METADATA_JSON_BYTES_MAX}"
        ));
    }
    usize::try_from(json_len)
        .ok()
        .and_then(|len| rest.split_at_checked(len))
        .ok_or_else(|| {
            format!(
                "metadata of {json_len} bytes in a record with room for {}",
                rest.len()
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_splits_into_what_it_was_made_of() {
        let mut out = b"earlier".to_vec();
        begin(&mut out, |out| out.extend_from_slice(b"{}"));
        out.extend_from_slice(b"payload");
        assert_eq!(
            split(&out[7..]),
            Ok((b"{}".as_slice(), b"payload".as_slice()))
        );
    }

    #[test]
    fn every_cut_of_the_head_is_refused() {
        let mut out = Vec::new();
        begin(&mut out, |out| out.extend_from_slice(b"{\"a\":1}"));
        for len in 0..out.len() {
            assert!(split(&out[..len]).is_err(), "{len}");
        }
        assert!(split(&u64::MAX.to_le_bytes()).is_err());
    }
}
