//! What has become of the caches since a state was saved.

use super::caches::Caches;
use super::state::SavedState;
use crate::error::CacheError;
use crate::store::cache::Cache;

/// Ids that a message names before it only counts.
const NAMED_MAX: usize = 10;

/// Positions of the caches that are read in a later generation, and its number.
pub fn later(caches: &Caches) -> Vec<(u64, u64)> {
    let numbers = caches.list().iter().map(|cache| cache.manifest().number());
    (0..)
        .zip(numbers)
        .filter(|(_, number)| *number > 0)
        .collect()
}

/// The error for a state that cannot be loaded, with what has changed in each cache since it was saved.
pub fn explain(error: CacheError, saved: &SavedState, caches: &Caches) -> CacheError {
    let CacheError::State { fault, mut fields } = error else {
        return error;
    };
    let mut faults = vec![fault];
    for (position, cache) in (0..).zip(caches.list().iter()) {
        let known = saved
            .generations
            .iter()
            .find(|(known, _)| *known == position);
        let (then, now) = (
            known.map_or(0, |(_, number)| *number),
            cache.manifest().number(),
        );
        if then == now {
            continue;
        }
        fields.push((
            format!("generation of cache {position}"),
            then.to_string(),
            now.to_string(),
        ));
        let path = cache.path().display();
        faults.push(format!(
            "{path} was in generation {then} and is in {now}{}; open generation {then} of it to go on where the state was saved",
            gone(cache, then)
        ));
    }
    CacheError::State {
        fault: faults.join("; "),
        fields,
    }
}

/// Which ids went since generation `then`.
fn gone(cache: &Cache, then: u64) -> String {
    let Ok(ids) = cache.deleted_since(then) else {
        return String::new();
    };
    if ids.is_empty() {
        return String::new();
    }
    let named: Vec<String> = ids.iter().take(NAMED_MAX).map(u64::to_string).collect();
    let more = match ids.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(", without the samples {}{more}", named.join(", "))
}
