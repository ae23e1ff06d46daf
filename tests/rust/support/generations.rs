//! Changes of small caches, and all that a generation gives away.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dataset_rt::dataset::{Dataset, DatasetOptions};
use dataset_rt::error::Result;
use dataset_rt::format::columns::Value;
use dataset_rt::format::manifest::Compression;
use dataset_rt::maintain::vacuum::{VacuumOptions, vacuum};
use dataset_rt::store::generations::Wanted;
use dataset_rt::store::vfs::{OsVfs, Vfs};
use dataset_rt::types::Io;
use dataset_rt::writer::{AppendRequest, CacheWriter, WriteSummary, WriterOptions};

use super::caches::{COLUMNS, Layout};
use super::naive::{Cell, Sample};
use super::reading::{deliver, options};

/// Options of a layout, for one thread.
pub fn writer_options(layout: Layout) -> WriterOptions {
    let compression = Compression {
        algo: layout.algorithm,
        ratio: 1.0,
    };
    WriterOptions::new(8, 1, layout.shard_bytes, compression)
        .and_then(|options| options.with_level(None, layout.dictionary_bytes))
        .unwrap()
}

/// A writer at the end of the cache at `path`, for a source that declares nothing.
pub fn appending(vfs: Arc<dyn Vfs>, path: &Path, layout: Layout) -> Result<CacheWriter> {
    CacheWriter::append(AppendRequest {
        vfs,
        path,
        options: writer_options(layout),
        schema: None,
        payload: None,
        profile: Arc::default(),
    })
}

/// Appends samples with the columns of [`super::caches::samples`].
pub fn append(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    layout: Layout,
    samples: &[Sample],
) -> Result<WriteSummary> {
    let mut writer = appending(vfs, path, layout)?;
    for (payload, cells) in samples {
        push(&mut writer, payload, cells)?;
    }
    writer.finish(&mut || Ok(()))
}

/// Appends on the real disk.
pub fn append_here(path: &Path, layout: Layout, samples: &[Sample]) -> WriteSummary {
    append(Arc::new(OsVfs), path, layout, samples).unwrap()
}

/// Gives up all generations but the newest and the one before.
pub fn vacuum_now(vfs: Arc<dyn Vfs>, path: &Path) -> Result<()> {
    let options = VacuumOptions {
        grace: Duration::ZERO,
        keep_previous: true,
        dry_run: false,
    };
    vacuum(vfs, path, options, &mut || Ok(())).map(drop)
}

/// Pushes one sample with the columns of [`super::caches::samples`].
pub fn push(writer: &mut CacheWriter, payload: &[u8], cells: &[Cell]) -> Result<()> {
    let values: Vec<(&str, Value<'_>)> = COLUMNS
        .into_iter()
        .zip(cells.iter().map(Cell::value))
        .collect();
    if writer.push_named(payload, &values)? {
        writer.submit(&mut || Ok(()))?;
    }
    Ok(())
}

/// The wanted generation, opened in physical order and validated.
pub fn validated(path: &Path, wanted: Wanted, io: Io) -> Result<Dataset> {
    let options = DatasetOptions {
        validate_cache: true,
        ..options(io)
    };
    Dataset::open_stoppable(&[(path.to_owned(), wanted)], options, &mut || Ok(()))
}

/// Ids and samples of the wanted generation, which is validated first.
pub fn contents(path: &Path, wanted: Wanted) -> std::result::Result<Vec<(u64, Sample)>, String> {
    let dataset = validated(path, wanted, Io::Pread).map_err(|error| error.to_string())?;
    let delivered = deliver(&dataset);
    match delivered.failure {
        Some(failure) => Err(failure),
        None => Ok(delivered
            .references
            .iter()
            .map(|reference| reference.sample)
            .zip(delivered.samples)
            .collect()),
    }
}

/// Samples with the ids that they have in a cache never changed.
pub fn with_ids(samples: &[Sample]) -> Vec<(u64, Sample)> {
    (0..).zip(samples.iter().cloned()).collect()
}
