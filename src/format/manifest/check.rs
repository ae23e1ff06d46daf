//! What a manifest must not say, however well it is written.

use std::collections::HashSet;

use super::{Manifest, ShardEntry};
use crate::format::FORMAT_VERSION_NEWEST;
use crate::format::compression::Algorithm;
use crate::format::names::is_plain_file_name;
use crate::format::payload::PayloadSchema;
use crate::limits::{CACHE_SAMPLES_MAX, DICTIONARY_BYTES_MAX};

impl Manifest {
    /// What contradicts itself or goes beyond a limit.
    ///
    /// # Errors
    /// The first of it.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if self.sample_count > CACHE_SAMPLES_MAX {
            return Err(format!(
                "{} samples, more than the limit of {CACHE_SAMPLES_MAX}",
                self.sample_count
            ));
        }
        if self.sample_count > 0 && self.shards.is_empty() {
            return Err(format!("{} samples and no shard", self.sample_count));
        }
        if let Some(own) = &self.generation {
            if self.format_version < FORMAT_VERSION_NEWEST {
                return Err(format!(
                    "a later generation in format {}, which has none",
                    self.format_version
                ));
            }
            own.check(self.sample_count)?;
        }
        let mut seen = HashSet::new();
        for shard in &self.shards {
            if shard.generation > self.number() {
                return Err(format!(
                    "a shard of generation {} in a manifest of generation {}",
                    shard.generation,
                    self.number()
                ));
            }
            if !is_plain_file_name(&shard.name) {
                return Err(format!(
                    "shard name {:?} is not a plain file name",
                    shard.name
                ));
            }
            if !seen.insert((shard.generation, shard.name.as_str())) {
                return Err(format!("shard name {:?} appears twice", shard.name));
            }
        }
        let total = self
            .shards
            .iter()
            .try_fold(0u64, |sum, shard| sum.checked_add(shard.byte_len));
        if total.is_none_or(|total| i64::try_from(total).is_err()) {
            return Err("shards of more than 2^63 bytes in all".to_owned());
        }
        if let Some(dictionary) = &self.dictionary
            && dictionary.byte_len > DICTIONARY_BYTES_MAX
        {
            return Err(format!(
                "a dictionary of {} bytes, more than the limit of {DICTIONARY_BYTES_MAX}",
                dictionary.byte_len
            ));
        }
        let is_zstd = |shard: &ShardEntry| shard.compression.algo == Algorithm::Zstd;
        if self.format_version < 4 && (self.dictionary.is_some() || self.shards.iter().any(is_zstd))
        {
            return Err(format!(
                "zstd in format {}, which has none",
                self.format_version
            ));
        }
        if self.format_version < 4
            && self
                .metadata_schema
                .columns()
                .iter()
                .any(|column| column.nullable)
        {
            return Err(format!(
                "a nullable column in format {}, which has none",
                self.format_version
            ));
        }
        let open_axes = self.payload.as_ref().map_or(0, PayloadSchema::open_axes);
        if self.format_version < FORMAT_VERSION_NEWEST && open_axes > 0 {
            return Err(format!(
                "payload fields of open shape in format {}, which has none",
                self.format_version
            ));
        }
        Ok(())
    }
}
