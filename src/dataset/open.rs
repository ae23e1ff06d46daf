//! Opens many caches at once and checks that they belong together.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{CacheError, Result};
use crate::format::payload::{FieldSpec, PayloadSchema};
use crate::format::schema::{ColumnSpec, Schema};
use crate::store::cache::Cache;
use crate::store::generations::Wanted;
use crate::store::pool::FilePool;
use crate::sync::{available_threads, try_map_on_threads};
use crate::types::Io;

/// Caches that one more thread must have to itself before it is worth starting.
const CACHES_PER_THREAD: usize = 64;
/// Opening waits for the file system, not for the processor; more threads than this gain nothing.
const THREADS_MAX: usize = 8;

/// Opens the caches in the order given.
///
/// # Errors
/// The first error in list order, as [`Cache::open`]; [`CacheError::DuplicateCache`] if a directory appears twice,
/// under whatever path.
pub fn open_caches(places: &[(PathBuf, Wanted)], io: Io) -> Result<Arc<[Arc<Cache>]>> {
    let pool = Arc::new(FilePool::new(io));
    let threads = (places.len() / CACHES_PER_THREAD)
        .min(available_threads())
        .min(THREADS_MAX);
    let opened = try_map_on_threads(threads, places, |(path, wanted)| {
        Cache::open_generation(path, Arc::clone(&pool), *wanted)
    })?;
    let mut seen = HashMap::with_capacity(places.len());
    for (position, cache) in opened.iter().enumerate() {
        if let Some(first) = seen.insert(cache.identity(), position) {
            let path = cache.path().to_path_buf();
            return Err(CacheError::DuplicateCache {
                path,
                first,
                second: position,
            });
        }
    }
    let caches: Vec<_> = opened.into_iter().map(Arc::new).collect();
    Ok(caches.into())
}

/// The schema that all caches share; a column is nullable if it is in any of them.
///
/// # Errors
/// [`CacheError::SchemaMismatch`] naming the first column that differs and the two caches.
pub fn common_schema(caches: &[Arc<Cache>]) -> Result<Schema> {
    let Some((first, others)) = caches.split_first() else {
        return Ok(Schema::default());
    };
    let mut common: Vec<ColumnSpec> = first.manifest().metadata_schema.columns().to_vec();
    for cache in others {
        let columns = cache.manifest().metadata_schema.columns();
        for (known, found) in common.iter_mut().zip(columns) {
            if known.name != found.name || known.kind != found.kind {
                return Err(mismatch(first, cache));
            }
            known.nullable |= found.nullable;
        }
        if columns.len() != common.len() {
            return Err(mismatch(first, cache));
        }
    }
    Schema::new(common).map_err(CacheError::internal)
}

/// Names the first column, in name order, that two caches do not share.
fn mismatch(first: &Cache, other: &Cache) -> CacheError {
    let describe = |cache: &Cache, name: &str| {
        let columns = cache.manifest().metadata_schema.columns();
        columns
            .iter()
            .find(|column| column.name == name)
            .map_or("missing".to_owned(), |column| column.kind.name().to_owned())
    };
    let columns = |cache: &Cache| cache.manifest().metadata_schema.columns().to_vec();
    let mut names: Vec<String> = columns(first)
        .into_iter()
        .chain(columns(other))
        .map(|column| column.name)
        .collect();
    names.sort();
    let differs = names
        .into_iter()
        .find(|name| describe(first, name) != describe(other, name));
    let column = differs.unwrap_or_default();
    CacheError::SchemaMismatch {
        path: other.path().to_path_buf(),
        first_path: first.path().to_path_buf(),
        subject: "metadata column",
        expected: describe(first, &column),
        found: describe(other, &column),
        column,
    }
}

/// The payload schema that all caches share; `None` if payloads are plain bytes.
///
/// # Errors
/// [`CacheError::SchemaMismatch`] naming the first field that differs and the two caches.
pub fn common_payload(caches: &[Arc<Cache>]) -> Result<Option<PayloadSchema>> {
    let Some((first, others)) = caches.split_first() else {
        return Ok(None);
    };
    let common = &first.manifest().payload;
    match others
        .iter()
        .find(|cache| cache.manifest().payload != *common)
    {
        None => Ok(common.clone()),
        Some(other) => Err(payload_mismatch(first, other)),
    }
}

/// Names the first field, in name order, that two caches do not share.
fn payload_mismatch(first: &Cache, other: &Cache) -> CacheError {
    fn fields(cache: &Cache) -> &[FieldSpec] {
        let payload = cache.manifest().payload.as_ref();
        payload.map_or(&[], PayloadSchema::fields)
    }
    let describe = |cache: &Cache, name: &str| {
        let field = fields(cache).iter().find(|field| field.name == name);
        match (field, fields(cache)) {
            (Some(field), _) => field.describe(),
            (None, []) => "plain bytes".to_owned(),
            (None, _) => "missing".to_owned(),
        }
    };
    let both = fields(first).iter().chain(fields(other));
    let mut names: Vec<&str> = both.map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    let differs = |name: &&str| describe(first, name) != describe(other, name);
    let field = names.into_iter().find(differs).unwrap_or_default();
    CacheError::SchemaMismatch {
        path: other.path().to_path_buf(),
        first_path: first.path().to_path_buf(),
        subject: "payload field",
        expected: describe(first, field),
        found: describe(other, field),
        column: field.to_owned(),
    }
}
