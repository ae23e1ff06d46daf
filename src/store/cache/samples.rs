//! The samples of an open cache: which are left, and the metadata of all.

use std::sync::Arc;

use arrow_array::RecordBatch;

use super::Cache;
use crate::error::{CacheError, Result};
use crate::format::names;
use crate::store::live::LiveIds;
use crate::store::{deleted, table};
use crate::sync::{Mutex, OnceLock, lock};

/// What was read of the samples so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    metadata: TableSlot,
    live_metadata: TableSlot,
    live: OnceLock<LiveIds>,
}

/// The place of a table that may not have been needed yet.
#[derive(Debug, Default)]
struct TableSlot(Mutex<Option<Arc<Vec<RecordBatch>>>>);

impl TableSlot {
    /// The table, read now if it was not. Others wait meanwhile rather than read it too.
    fn get(
        &self,
        read: impl FnOnce() -> Result<Vec<RecordBatch>>,
    ) -> Result<Arc<Vec<RecordBatch>>> {
        let mut slot = lock(&self.0);
        if let Some(batches) = slot.as_ref() {
            return Ok(Arc::clone(batches));
        }
        let batches = Arc::new(read()?);
        *slot = Some(Arc::clone(&batches));
        Ok(batches)
    }
}

impl Cache {
    /// The ids of the samples, if some were taken out: read the first time. Without, they are `0..len`.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] for a file of deleted ids that is not what the manifest describes.
    pub fn live(&self) -> Result<Option<&LiveIds>> {
        if !self.has_deleted() {
            return Ok(None);
        }
        if let Some(live) = self.samples.live.get() {
            return Ok(Some(live));
        }
        let gone = self.deleted_since(0)?;
        let live = LiveIds::new(gone, self.sample_ids()).ok_or_else(|| {
            CacheError::damaged(
                &self.manifest_path(),
                "deleted ids",
                format!("distinct ones below {}", self.sample_ids()),
                "others",
            )
        })?;
        Ok(Some(self.samples.live.get_or_init(|| live)))
    }

    /// The ids that generations after number `generation` took out, in ascending order.
    ///
    /// # Errors
    /// As [`Cache::live`].
    pub fn deleted_since(&self, generation: u64) -> Result<Vec<u64>> {
        let mut gone = Vec::new();
        for part in self.manifest.deleted_parts() {
            if part.generation > generation {
                gone.extend(deleted::read(&self.path, part, self.io)?);
            }
        }
        gone.sort_unstable();
        Ok(gone)
    }

    /// The metadata of all sample ids, deleted ones too, in batches that point into the files; checked against the manifest
    /// the first time.
    ///
    /// # Errors
    /// [`CacheError::DamagedFile`] if the checksum, the columns or the number of rows differ.
    pub fn metadata(&self) -> Result<Arc<Vec<RecordBatch>>> {
        self.samples.metadata.get(|| {
            let mut batches = Vec::new();
            for part in self.manifest.metadata_parts().iter() {
                let path = self.placed(part.generation, names::METADATA);
                batches.extend(table::read(&path, self.io, &self.manifest, part)?);
            }
            Ok(batches)
        })
    }

    /// The metadata of the samples that are left, one row for each in order.
    ///
    /// # Errors
    /// As [`Cache::metadata`] and [`Cache::live`].
    pub fn live_metadata(&self) -> Result<Arc<Vec<RecordBatch>>> {
        let Some(live) = self.live()? else {
            return self.metadata();
        };
        let slot = &self.samples.live_metadata;
        slot.get(|| table::without(&self.metadata()?, live))
    }
}
