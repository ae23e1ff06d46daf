//! Where a dataset stands: saved, loaded, and handed to a copy in another process.

use std::sync::Arc;

use super::Dataset;
use super::active::ActiveRows;
use super::recipe::Recipe;
use super::session::Latest;
use super::state::SavedState;
use super::weights::Weights;
use crate::error::Result;
use crate::sync::lock;

impl Dataset {
    /// Where to resume: after what the last iterator handed out, or where the next one starts.
    ///
    /// # Errors
    /// Only internal ones.
    pub fn saved_state(&self) -> Result<SavedState> {
        let state = self.state()?;
        let (recipe, next, latest) = (Arc::clone(&state.recipe), state.next, state.latest.clone());
        drop(state);
        let unfinished = match latest {
            None => None,
            Some(Latest::Samples(stream)) => lock(&stream).unfinished_state()?,
            Some(Latest::Batches(stream)) => lock(&stream).unfinished_state()?,
        };
        // After its end, what counts is what the next iterator does: with other weights, if they were changed since.
        Ok(unfinished.unwrap_or_else(|| recipe.state(next)))
    }

    /// Where the next iterator starts, whatever the last one has handed out.
    pub fn start_state(&self) -> Result<SavedState> {
        let state = self.state()?;
        let (recipe, next) = (Arc::clone(&state.recipe), state.next);
        drop(state);
        Ok(recipe.state(next))
    }

    /// Makes the next iterator start where `saved` was taken.
    ///
    /// # Errors
    /// [`CacheError::State`] listing what differs; nothing changes then.
    pub fn load_state(&self, saved: &SavedState, ignore: &[String]) -> Result<()> {
        let recipe = self.recipe()?;
        let cursor = recipe.resume(saved, ignore)?;
        let mut state = self.state()?;
        state.next = cursor;
        state.latest = None;
        Ok(())
    }

    /// What a copy in another process needs besides paths and options: chosen rows, weights, and where it stands.
    pub fn parts(&self) -> Result<(ActiveRows, Weights, SavedState)> {
        let state = self.state()?;
        let recipe = Arc::clone(&state.recipe);
        let next = state.next;
        drop(state);
        Ok((
            recipe.rows.clone(),
            recipe.weights.clone(),
            recipe.state(next),
        ))
    }

    /// Puts a copy where its original stood.
    ///
    /// # Errors
    /// [`CacheError::State`] if the caches are not those of the original; [`CacheError::Weights`] or
    /// [`CacheError::OutOfRange`] for parts that do not fit them.
    pub fn restore(&self, rows: ActiveRows, weights: Weights, saved: &SavedState) -> Result<()> {
        let caches = Arc::clone(&self.recipe()?.caches);
        if let ActiveRows::Chosen(chosen) = &rows {
            chosen
                .iter()
                .try_for_each(|row| caches.sample(*row).map(drop))?;
        }
        let recipe = Recipe::new(caches, rows, weights, self.options.order);
        let next = recipe.resume(saved, &[])?;
        let mut state = self.state()?;
        state.recipe = Arc::new(recipe);
        state.next = next;
        state.latest = None;
        Ok(())
    }
}
