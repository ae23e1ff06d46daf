//! What a manifest says of the samples, whatever says it: the manifest of a next generation, and a name for the contents.

use super::{CREATED_BY, Manifest};
use crate::format::FORMAT_VERSION_NEWEST;
use crate::format::checksum::{Sha256Digest, Sha256Hasher};
use crate::format::generation::{Generation, Operation};

impl Manifest {
    /// The manifest of generation `number`, made at `created_unix`, if nothing but its number were different.
    pub fn successor(&self, number: u64, operation: Operation, created_unix: u64) -> Self {
        let parts = self.metadata_parts().into_owned();
        let before = self.generation.as_ref();
        Self {
            format_version: FORMAT_VERSION_NEWEST,
            created_by: Some(CREATED_BY.to_owned()),
            removed: false,
            generation: Some(Generation {
                number,
                operation,
                created_unix,
                sample_ids: self.sample_ids(),
                index: before.map_or(0, |before| before.index),
                checksums: before.map_or(0, |before| before.checksums),
                dictionary: before.map_or(0, |before| before.dictionary),
                metadata: parts,
                deleted: self.deleted_parts().to_vec(),
                contents: None,
            }),
            ..self.clone()
        }
    }

    /// A root manifest that says that generation 0 is gone, in place of one that was damaged.
    pub fn root_mark(&self) -> Self {
        let shards = self.shards.iter().filter(|shard| shard.generation == 0);
        Self {
            shards: shards.cloned().collect(),
            sample_count: 0,
            generation: None,
            removed: true,
            ..self.clone()
        }
    }

    /// Gives `take` what names the samples, by their checksums; where they lie does not matter.
    pub fn name_contents(&self, take: &mut dyn FnMut(&[u8])) {
        match &self.generation {
            None => self.list_contents(take),
            Some(_) => take(&self.contents().0),
        }
    }

    /// A name for the samples. Generations of the same cache have the same if only a compaction lies between them.
    pub fn contents(&self) -> Sha256Digest {
        let carried = self.generation.as_ref().and_then(|own| own.contents);
        carried.unwrap_or_else(|| {
            let mut name = Sha256Hasher::default();
            self.list_contents(&mut |bytes| name.update(bytes));
            name.finish()
        })
    }

    /// Every checksum, in an order that saved states depend on.
    fn list_contents(&self, take: &mut dyn FnMut(&[u8])) {
        take(&self.sample_count.to_le_bytes());
        take(&self.metadata_sha256.0);
        take(&self.index_sha256.0);
        take(&(self.shards.len() as u64).to_le_bytes());
        self.shards.iter().for_each(|shard| take(&shard.sha256.0));
        if let Some(dictionary) = &self.dictionary {
            take(&dictionary.sha256.0);
        }
        if let Some(own) = &self.generation {
            take(&own.sample_ids.to_le_bytes());
            own.metadata.iter().for_each(|part| take(&part.sha256.0));
            own.deleted.iter().for_each(|part| take(&part.sha256.0));
        }
    }
}
