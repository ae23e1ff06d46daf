//! zstd dictionaries: what short payloads have in common, kept once for all of them.

use std::fmt;

use zstd_safe::{DDict, train_from_buffer};

/// What is wrong with bytes that zstd does not take for a dictionary.
pub(super) const REFUSED: &str = "a dictionary that zstd cannot load";

/// A dictionary digested for decompression; may be shared by any number of threads.
pub struct Dictionary(DDict<'static>);

impl Dictionary {
    /// Digests the bytes of a dictionary.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn digest(bytes: &[u8]) -> Result<Self, String> {
        Ok(Self(DDict::try_create(bytes).ok_or(REFUSED)?))
    }

    pub(super) fn digested(&self) -> &DDict<'static> {
        &self.0
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary of {} bytes", self.0.sizeof())
    }
}

/// Trains a dictionary of at most `bytes` bytes on `samples`, which lie one after the other and have these lengths; none
/// if they are too few or have nothing in common.
pub fn train(samples: &[u8], lengths: &[usize], bytes: usize) -> Option<Vec<u8>> {
    let mut dictionary = Vec::with_capacity(bytes);
    train_from_buffer(&mut dictionary, samples, lengths).ok()?;
    Some(dictionary)
}

#[cfg(test)]
mod tests {
    use super::super::compression::testing::{noise, text};
    use super::super::zstd::Parameters;
    use super::super::zstd::tests::{restored, stored};
    use super::*;
    use crate::limits::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};

    /// 300 short texts, one after the other, and their lengths.
    fn lesson() -> (Vec<u8>, Vec<usize>) {
        let texts: Vec<Vec<u8>> = (0..300).map(|seed| text(seed, 200)).collect();
        (texts.concat(), texts.iter().map(Vec::len).collect())
    }

    #[test]
    fn a_dictionary_shrinks_what_resembles_its_lesson_and_is_needed_to_restore_it() {
        let (samples, lengths) = lesson();
        let bytes = train(&samples, &lengths, 4096).unwrap();
        assert!((256..=4096).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(train(&samples, &lengths, 4096).unwrap(), bytes);
        let dictionary = Dictionary::digest(&bytes).unwrap();
        for level in [ZSTD_LEVEL_MIN, 1, 3, ZSTD_LEVEL_MAX] {
            let with = Parameters::new(level, Some(&bytes)).unwrap();
            let without = Parameters::new(level, None).unwrap();
            for payload in [text(777, 200), noise(50), vec![], text(5, 300_000)] {
                let shorter = stored(&with, &payload);
                assert_eq!(restored(&shorter, Some(&dictionary)), Ok(payload.clone()));
                if payload.len() == 200 {
                    let longer = stored(&without, &payload);
                    assert!(shorter.len() < longer.len(), "level {level}");
                    assert_ne!(restored(&shorter, None), Ok(payload.clone()));
                }
                // Frames that were made without the dictionary are read with it too.
                let longer = stored(&without, &payload);
                assert_eq!(restored(&longer, Some(&dictionary)), Ok(payload));
            }
        }
    }

    #[test]
    fn too_few_samples_give_no_dictionary() {
        assert_eq!(train(&[], &[], 4096), None);
        assert_eq!(train(b"abc", &[3], 4096), None);
        assert_eq!(train(&[7; 1000], &[1000], 4096), None);
    }

    #[test]
    fn what_only_begins_like_a_dictionary_is_refused() {
        let (samples, lengths) = lesson();
        let sound = train(&samples, &lengths, 4096).unwrap();
        for bytes in [&sound[..50], &[&sound[..8], &noise(500)[..]].concat()] {
            assert!(Dictionary::digest(bytes).is_err());
            assert!(Parameters::new(3, Some(bytes)).is_err());
        }
    }
}
