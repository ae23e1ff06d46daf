//! The metadata table on its way to the disk.

use std::sync::Arc;

use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;

use super::output::{OutFile, Outputs, Tag};
use crate::error::{CacheError, Result};
use crate::format::metadata;
use crate::format::names::METADATA;
use crate::format::schema::Schema;

/// An open metadata table that takes batches.
///
/// # Errors
/// As [`Outputs::open`].
pub fn create(schema: &Schema, outputs: &Arc<Outputs>) -> Result<FileWriter<OutFile>> {
    let file = outputs.open(Tag::Metadata, METADATA)?;
    arrow(metadata::writer(file, schema), outputs)
}

/// Writes the footer.
///
/// # Errors
/// [`CacheError::Interrupted`] if the write has failed elsewhere.
pub fn ended(mut file: FileWriter<OutFile>, outputs: &Outputs) -> Result<OutFile> {
    arrow(file.finish(), outputs)?;
    arrow(file.into_inner(), outputs)
}

/// An Arrow error is a write of ours that was given up, whose reason is kept elsewhere, or a defect.
///
/// # Errors
/// [`CacheError::Interrupted`] or [`CacheError::Internal`].
pub fn arrow<T>(result: std::result::Result<T, ArrowError>, outputs: &Outputs) -> Result<T> {
    result.map_err(|error| match outputs.failure.is_stopped() {
        true => CacheError::Interrupted,
        false => CacheError::internal(format!("the metadata table: {error}")),
    })
}
