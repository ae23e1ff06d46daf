//! Where a writer begins: with a new cache, or behind the samples that one has.

use std::path::Path;
use std::sync::Arc;

use super::before::Before;
use super::known::{Known, PayloadOrigin};
use super::layout::Layout;
use super::options::WriterOptions;
use super::profiler::Profile;
use super::target::Target;
use super::training::Training;
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Recipe};
use crate::format::names::check_source_name;
use crate::format::payload::{FieldSpec, PayloadSchema};
use crate::format::schema::Schema;
use crate::store::change::Change;
use crate::store::generations::Wanted;
use crate::store::lock::CacheLock;
use crate::store::publish::Staging;
use crate::store::vfs::Vfs;

/// What to write, and where.
#[derive(Debug)]
pub struct WriteRequest<'a> {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Folder of the caches.
    pub base: &'a Path,
    /// Name of the source and of its cache.
    pub name: &'a str,
    /// Checked options.
    pub options: WriterOptions,
    /// Schema the source declares: fixes names, types and nullability.
    pub schema: Option<Schema>,
    /// Payload fields the source declares.
    pub payload: Option<PayloadSchema>,
    /// Version the source declares.
    pub source_version: Option<String>,
    /// The right to write this cache.
    pub lock: CacheLock,
    /// Where counters go.
    pub profile: Arc<Profile>,
}

/// What to append, and to which cache.
#[derive(Debug)]
pub struct AppendRequest<'a> {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The cache directory.
    pub path: &'a Path,
    /// Checked options.
    pub options: WriterOptions,
    /// Schema the source declares.
    pub schema: Option<Schema>,
    /// Payload fields the source declares.
    pub payload: Option<PayloadSchema>,
    /// Where counters go.
    pub profile: Arc<Profile>,
}

/// A write that has begun.
pub(super) struct Begun {
    pub target: Target,
    pub staging: Staging,
    pub options: WriterOptions,
    pub profile: Arc<Profile>,
    pub known: Known,
    /// What comes before the first sample.
    pub before: Before,
    /// How payloads are stored; none while a dictionary is to be trained first.
    pub recipe: Option<Recipe>,
    pub training: Option<Training>,
}

/// Begins a cache.
///
/// # Errors
/// [`CacheError::SourceName`], [`CacheError::Exists`], reserved names in the declared schema, and file errors.
pub(super) fn create(request: WriteRequest<'_>) -> Result<Begun> {
    check_source_name(request.name)?;
    let layout = request.schema.map(Layout::declared).transpose()?;
    let staging = Staging::begin(request.vfs, request.base, request.name, request.lock)?;
    let origin = match request.payload {
        Some(_) => PayloadOrigin::Source,
        None => PayloadOrigin::FirstSample,
    };
    Ok(Begun {
        target: Target::Cache(request.name.to_owned(), request.source_version),
        staging,
        known: Known::new(layout, request.payload, origin),
        before: Before::nothing(),
        recipe: request.options.recipe()?,
        training: request.options.dictionary_bytes().map(Training::new),
        options: request.options,
        profile: request.profile,
    })
}

/// Takes the lock of a cache and begins its next generation.
///
/// # Errors
/// As [`Change::begin`] and [`Change::stage`]; [`CacheError::Misfit`] for a source that declares what the cache has not;
/// [`CacheError::Option`] for a dictionary that the cache has not.
pub(super) fn append(request: AppendRequest<'_>) -> Result<Begun> {
    let mut change = Change::begin(request.vfs, request.path, Wanted::Newest)?;
    let cache = change.cache();
    let manifest = cache.manifest();
    let declared = request.schema.as_ref();
    let layout = Layout::of_cache(&manifest.metadata_schema, declared, cache.path())?;
    let payload = manifest.payload.clone();
    if let Some(declared) = &request.payload {
        check_fields(payload.as_ref(), declared, cache.path())?;
    }
    let is_zstd = request.options.compression().algo == Algorithm::Zstd;
    let dictionary = match is_zstd {
        true => cache.dictionary_bytes()?,
        false => None,
    };
    let recipe = request.options.recipe_with(dictionary.as_deref())?;
    let before = Before::of(cache)?;
    let staging = change.stage()?;
    Ok(Begun {
        target: Target::Generation(Box::new(change)),
        staging,
        options: request.options,
        profile: request.profile,
        known: Known::new(Some(layout), payload, PayloadOrigin::Cache),
        before,
        recipe: Some(recipe),
        training: None,
    })
}

fn check_fields(
    fields: Option<&PayloadSchema>,
    declared: &PayloadSchema,
    path: &Path,
) -> Result<()> {
    let of = |schema: Option<&PayloadSchema>, name: &str| -> Option<FieldSpec> {
        let schema = schema?;
        schema.fields().get(schema.position(name)?).cloned()
    };
    let describe = |field: Option<FieldSpec>| {
        field.map_or_else(|| "no field".to_owned(), |field| field.describe())
    };
    let known = fields.map_or(&[][..], PayloadSchema::fields).iter();
    let mut names = known.chain(declared.fields()).map(|field| &field.name);
    match names.find(|name| of(fields, name) != of(Some(declared), name)) {
        None => Ok(()),
        Some(name) => Err(CacheError::Misfit {
            path: path.to_path_buf(),
            subject: "payload field",
            column: name.clone(),
            expected: match fields {
                None => "plain bytes".to_owned(),
                Some(_) => describe(of(fields, name)),
            },
            found: describe(of(Some(declared), name)),
        }),
    }
}
