//! What a caller may choose about writing, checked before anything is created.

use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Recipe, ZstdParameters};
use crate::format::manifest::Compression;
use crate::limits::{
    DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MIN, LZ4_LEVEL_MAX, LZ4_LEVEL_MIN, PREFETCH_MAX,
    THREADS_MAX, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN,
};
use crate::sync::available_threads;

/// Checked options of one write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriterOptions {
    prefetch_size: usize,
    num_threads: usize,
    max_shard_bytes: u64,
    compression: Compression,
    level: i32,
    dictionary_bytes: usize,
}

impl WriterOptions {
    /// Checks the options; see the getters for their meaning.
    ///
    /// # Errors
    /// [`CacheError::Option`] for the first one outside its range.
    pub fn new(
        prefetch_size: u64,
        num_threads: u64,
        max_shard_bytes: u64,
        compression: Compression,
    ) -> Result<Self> {
        let Compression { algo, ratio } = compression;
        if algo == Algorithm::None && ratio != 1.0 {
            return Err(CacheError::option(
                "shard_compression.ratio",
                "1.0 for the algorithm none",
                format!("{ratio:?}"),
            ));
        }
        if !(ratio.is_finite() && ratio > 0.0) {
            return Err(CacheError::option(
                "shard_compression.ratio",
                "a finite number above 0",
                format!("{ratio:?}"),
            ));
        }
        if max_shard_bytes == 0 || i64::try_from(max_shard_bytes).is_err() {
            return Err(CacheError::option(
                "max_shard_bytes",
                "1 to 2^63 - 1 bytes",
                max_shard_bytes,
            ));
        }
        Ok(Self {
            prefetch_size: in_range("prefetch_size", prefetch_size, PREFETCH_MAX)?,
            num_threads: in_range("num_threads", num_threads, THREADS_MAX)?,
            max_shard_bytes,
            compression,
            level: default_level(algo),
            dictionary_bytes: 0,
        })
    }

    /// The same at another level than the algorithm's own, and with a zstd dictionary of at most `dictionary_bytes` bytes
    /// unless that is 0.
    ///
    /// # Errors
    /// [`CacheError::Option`] for a value that the algorithm does not have.
    pub fn with_level(self, level: Option<i64>, dictionary_bytes: u64) -> Result<Self> {
        let algo = self.compression.algo;
        let level = match level {
            Some(level) => checked_level(algo, level)?,
            None => self.level,
        };
        let sizes = DICTIONARY_BYTES_MIN..=DICTIONARY_BYTES_MAX;
        let dictionary_bytes = usize::try_from(dictionary_bytes)
            .ok()
            .filter(|_| dictionary_bytes == 0 || sizes.contains(&dictionary_bytes))
            .ok_or_else(|| {
                let expected = format!("0, or {DICTIONARY_BYTES_MIN} to {DICTIONARY_BYTES_MAX}");
                let option = "shard_compression.dictionary_bytes";
                CacheError::option(option, expected, dictionary_bytes)
            })?;
        if algo != Algorithm::Zstd && dictionary_bytes > 0 {
            return Err(CacheError::option(
                "shard_compression.dictionary_bytes",
                "0 for every algorithm but zstd",
                dictionary_bytes,
            ));
        }
        Ok(Self {
            level,
            dictionary_bytes,
            ..self
        })
    }

    /// Most samples between the source and the write blocks.
    pub fn prefetch_size(&self) -> usize {
        self.prefetch_size
    }

    /// Most encode threads.
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// Length at which a shard is full, in bytes; only a single larger record makes a longer shard.
    pub fn max_shard_bytes(&self) -> u64 {
        self.max_shard_bytes
    }

    /// How payloads are stored.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Level of the algorithm.
    pub(super) fn level(&self) -> i32 {
        self.level
    }

    /// Whether compressing takes so little that any thread may do it between other things, with nothing to keep for it.
    pub(super) fn compresses_lightly(&self) -> bool {
        match self.compression.algo {
            Algorithm::None => true,
            Algorithm::Lz4 => self.level == LZ4_LEVEL_MIN,
            Algorithm::Zstd => false,
        }
    }

    /// Most bytes of the dictionary to train, if one is wanted.
    pub(super) fn dictionary_bytes(&self) -> Option<usize> {
        (self.dictionary_bytes > 0).then_some(self.dictionary_bytes)
    }

    /// How the payloads of samples are to be stored that are added to a cache with this dictionary. There can be no other.
    ///
    /// # Errors
    /// [`CacheError::Option`] if a dictionary is asked for and the cache has none, or a larger one.
    pub(super) fn recipe_with(&self, dictionary: Option<&[u8]>) -> Result<Recipe> {
        let expected = match (self.dictionary_bytes(), dictionary) {
            (Some(_), None) => "0: the cache has no dictionary, and one serves a cache from its first sample on or not at all".to_owned(),
            (Some(most), Some(found)) if found.len() > most => format!(
                "0, or at least {}: the cache has a dictionary of so many bytes, which serves what is appended too",
                found.len()
            ),
            _ => {
                return Ok(match self.compression.algo {
                    Algorithm::None => Recipe::None,
                    Algorithm::Lz4 => Recipe::Lz4(self.level),
                    Algorithm::Zstd => Recipe::Zstd(
                        ZstdParameters::new(self.level, dictionary)
                            .map_err(CacheError::internal)?,
                    ),
                });
            }
        };
        let option = "shard_compression.dictionary_bytes";
        Err(CacheError::option(option, expected, self.dictionary_bytes))
    }

    /// How payloads are to be stored; `None` as long as that depends on a dictionary to be trained.
    pub(super) fn recipe(&self) -> Result<Option<Recipe>> {
        match self.dictionary_bytes {
            0 => self.recipe_with(None).map(Some),
            _ => Ok(None),
        }
    }

    /// Encode threads to start: encoding only computes, so more than there are cores would only take turns.
    pub(super) fn workers(&self) -> usize {
        self.num_threads.min(available_threads())
    }

    /// Chunks that exist, and samples that each may hold. Their product never exceeds the prefetch size, which is what
    /// bounds the samples in flight: one chunk being filled, one per worker, and one on its way.
    pub(super) fn chunks(&self) -> (usize, usize) {
        let chunks = (self.workers() + 2).min(self.prefetch_size);
        (chunks, (self.prefetch_size / chunks.max(1)).max(1))
    }
}

impl Default for WriterOptions {
    /// 64 samples, 4 threads, shards of 64 MiB, no compression.
    fn default() -> Self {
        Self {
            prefetch_size: 64,
            num_threads: 4,
            max_shard_bytes: 64 << 20,
            compression: Compression {
                algo: Algorithm::None,
                ratio: 1.0,
            },
            level: default_level(Algorithm::None),
            dictionary_bytes: 0,
        }
    }
}

/// Level of those who choose none.
fn default_level(algo: Algorithm) -> i32 {
    match algo {
        Algorithm::None => 0,
        Algorithm::Lz4 => LZ4_LEVEL_MIN,
        Algorithm::Zstd => ZSTD_LEVEL_DEFAULT,
    }
}

/// Compares a level with those that the algorithm has.
fn checked_level(algo: Algorithm, level: i64) -> Result<i32> {
    let refused = |expected| CacheError::option("shard_compression.level", expected, level);
    let levels = match algo {
        Algorithm::None => return Err(refused("no level for the algorithm none".to_owned())),
        Algorithm::Lz4 => LZ4_LEVEL_MIN..=LZ4_LEVEL_MAX,
        Algorithm::Zstd => ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX,
    };
    let checked = i32::try_from(level).ok();
    checked
        .filter(|level| levels.contains(level))
        .ok_or_else(|| refused(format!("{} to {}", levels.start(), levels.end())))
}

fn in_range(option: &str, found: u64, most: usize) -> Result<usize> {
    usize::try_from(found)
        .ok()
        .filter(|value| (1..=most).contains(value))
        .ok_or_else(|| CacheError::option(option, format!("1 to {most}"), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Compression = Compression {
        algo: Algorithm::None,
        ratio: 1.0,
    };

    fn refused(result: Result<WriterOptions>) -> String {
        match result {
            Err(CacheError::Option { option, .. }) => option,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_option_outside_its_range_is_named() {
        assert_eq!(refused(WriterOptions::new(0, 1, 1, NONE)), "prefetch_size");
        let most = PREFETCH_MAX as u64;
        assert!(WriterOptions::new(most, 1, 1, NONE).is_ok());
        assert_eq!(
            refused(WriterOptions::new(most + 1, 1, 1, NONE)),
            "prefetch_size"
        );
        assert_eq!(refused(WriterOptions::new(1, 0, 1, NONE)), "num_threads");
        assert_eq!(
            refused(WriterOptions::new(1, u64::MAX, 1, NONE)),
            "num_threads"
        );
        assert_eq!(
            refused(WriterOptions::new(1, 1, 0, NONE)),
            "max_shard_bytes"
        );
        assert_eq!(
            refused(WriterOptions::new(1, 1, 1 << 63, NONE)),
            "max_shard_bytes"
        );
    }

    #[test]
    fn the_ratio_is_one_without_compression_and_any_positive_number_with_it() {
        let with = |algo, ratio| WriterOptions::new(1, 1, 1, Compression { algo, ratio });
        assert!(with(Algorithm::Lz4, 0.1).is_ok());
        assert!(with(Algorithm::None, 1.0).is_ok());
        for (algo, ratio) in [
            (Algorithm::None, 2.0),
            (Algorithm::None, f64::NAN),
            (Algorithm::Lz4, 0.0),
            (Algorithm::Lz4, -1.0),
            (Algorithm::Lz4, f64::NAN),
            (Algorithm::Lz4, f64::INFINITY),
        ] {
            assert_eq!(refused(with(algo, ratio)), "shard_compression.ratio");
        }
    }

    #[test]
    fn each_algorithm_has_its_levels_and_zstd_alone_a_dictionary() {
        let of = |algo| WriterOptions::new(1, 1, 1, Compression { algo, ratio: 1.0 }).unwrap();
        for (algo, least, own, most) in [(Algorithm::Zstd, -7, 3, 19), (Algorithm::Lz4, 1, 1, 12)] {
            assert_eq!(of(algo).with_level(None, 0).unwrap().level(), own);
            for level in [least, least + 1, most] {
                let options = of(algo).with_level(Some(level), 0).unwrap();
                assert_eq!(i64::from(options.level()), level);
            }
            for level in [least - 1, most + 1, i64::MIN, i64::MAX] {
                let error = of(algo).with_level(Some(level), 0).unwrap_err().to_string();
                assert!(error.contains(&format!("{least} to {most}")), "{error}");
            }
        }
        let outcome = of(Algorithm::None).with_level(Some(1), 0);
        assert_eq!(refused(outcome), "shard_compression.level");
        let zstd = of(Algorithm::Zstd);
        for bytes in [1024, 112_640, 1 << 20] {
            assert!(
                zstd.with_level(None, bytes)
                    .unwrap()
                    .recipe()
                    .unwrap()
                    .is_none()
            );
        }
        for bytes in [1, 1023, (1 << 20) + 1, u64::MAX] {
            let option = refused(zstd.with_level(None, bytes));
            assert_eq!(option, "shard_compression.dictionary_bytes");
        }
        for algo in [Algorithm::None, Algorithm::Lz4] {
            let option = refused(of(algo).with_level(None, 1024));
            assert_eq!(option, "shard_compression.dictionary_bytes");
        }
    }

    #[test]
    fn chunks_never_hold_more_than_the_prefetch_size() {
        for prefetch in 1..300 {
            for threads in [1, 2, 4, 64] {
                let options = WriterOptions::new(prefetch, threads, 1, NONE).unwrap();
                let (chunks, samples) = options.chunks();
                assert!(chunks >= 1 && samples >= 1);
                assert!(
                    (chunks * samples) as u64 <= prefetch,
                    "{prefetch} {threads}"
                );
            }
        }
    }
}
