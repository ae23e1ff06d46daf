//! Samples behind those that a cache has: what fits, and where the writer begins.

use std::path::Path;
use std::sync::Arc;

use super::before::Before;
use super::layout::Layout;
use super::options::WriterOptions;
use super::profiler::Profile;
use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, Recipe};
use crate::format::payload::{FieldSpec, PayloadSchema};
use crate::format::schema::Schema;
use crate::store::change::Change;
use crate::store::generations::Wanted;
use crate::store::publish::Staging;
use crate::store::vfs::Vfs;

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

/// A generation that has begun, and what is known of its samples.
pub(super) struct Begun {
    pub change: Change,
    pub staging: Staging,
    pub layout: Layout,
    pub payload: Option<PayloadSchema>,
    pub recipe: Recipe,
    pub before: Before,
}

/// Takes the lock of the cache and begins its next generation.
///
/// # Errors
/// As [`Change::begin`] and [`Change::stage`]; [`CacheError::Misfit`] for a source that declares what the cache has not;
/// [`CacheError::Option`] for a dictionary that the cache has not.
pub(super) fn begin(request: &AppendRequest<'_>) -> Result<Begun> {
    let vfs = Arc::clone(&request.vfs);
    let mut change = Change::begin(vfs, request.path, Wanted::Newest)?;
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
        change,
        staging,
        layout,
        payload,
        recipe,
        before,
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
