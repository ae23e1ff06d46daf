//! The manifest of what was written: of a new cache, or of the next generation of one.

use std::collections::HashMap;

use super::commit::{Committed, ShardLengths};
use super::options::WriterOptions;
use crate::error::Result;
use crate::format::generation::{MetadataPart, Operation};
use crate::format::manifest::Manifest;
use crate::format::payload::PayloadSchema;
use crate::store::change::Change;
use crate::store::outflow::files::Digest;
use crate::store::outflow::manifest::{Contents, NewShard, digest, entries, manifest};
use crate::store::outflow::output::Tag;

/// Files that were written, all committed and hashed.
pub(super) struct Written {
    pub committed: Committed,
    pub digests: HashMap<Tag, Digest>,
}

impl Written {
    /// Bytes of all files.
    pub fn byte_len(&self) -> u64 {
        let lens = self.digests.values().map(|digest| digest.byte_len);
        lens.fold(0, u64::saturating_add)
    }

    fn shards(&self, options: &WriterOptions) -> Vec<NewShard> {
        let shard = |lengths: &ShardLengths| NewShard {
            compression: options.compression(),
            payload_bytes: lengths.payload_bytes,
            byte_len: lengths.byte_len,
        };
        self.committed.shards.iter().map(shard).collect()
    }

    /// The manifest of a new cache, without the name and version of its source.
    pub fn cache(
        self,
        options: &WriterOptions,
        payload: Option<PayloadSchema>,
    ) -> Result<Manifest> {
        let contents = Contents {
            samples: self.committed.rows,
            shards: self.shards(options),
            schema: self.committed.schema,
            payload,
            non_finite: self.committed.non_finite,
        };
        manifest(contents, &self.digests)
    }

    /// The manifest of the generation that has these samples behind those it had.
    pub fn appended(self, options: &WriterOptions, change: &Change) -> Result<Manifest> {
        let number = change.next();
        let rows = self.committed.rows;
        let mut manifest = change.successor(Operation::Append);
        manifest.sample_count = manifest.sample_count.saturating_add(rows);
        let shards = entries(&self.shards(options), &self.digests, number)?;
        manifest.shards.extend(shards);
        manifest.index_sha256 = digest(&self.digests, Tag::Index)?.sha256;
        let has_checksums = manifest.record_checksums.is_some();
        if let Some(checksums) = &mut manifest.record_checksums {
            checksums.sha256 = digest(&self.digests, Tag::Checksums)?.sha256;
        }
        if let Some(own) = &mut manifest.generation {
            own.sample_ids = own.sample_ids.saturating_add(rows);
            own.index = number;
            if has_checksums {
                own.checksums = number;
            }
            let table = digest(&self.digests, Tag::Metadata)?;
            own.metadata.push(MetadataPart {
                generation: number,
                rows,
                sha256: table.sha256,
                crc32c: table.crc32c,
            });
        }
        manifest.metadata_schema = self.committed.schema;
        Ok(manifest)
    }
}
