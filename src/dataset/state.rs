//! The saved state: a few numbers and names that resume an epoch anywhere, on any number of ranks.

use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;
use super::recipe::OrderOptions;
use crate::error::{CacheError, Result};
use crate::sampling::order::Mode;

/// Version of the saved form. A later release reads every earlier one.
const VERSION: u32 = 1;

/// The next position to be delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Epoch.
    pub epoch: u32,
    /// Position in the epoch, over all ranks.
    pub position: u64,
}

/// What `state_dict` returns, field by field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// Version of this form.
    pub version: u32,
    /// Epoch to resume.
    pub epoch: u32,
    /// Global position to resume at.
    pub position: u64,
    /// Seed of the order.
    pub seed: u64,
    /// How an epoch goes through the rows.
    pub order: String,
    /// Positions of an epoch, if not the number of rows.
    pub epoch_length: Option<u64>,
    /// Names the bytes of the caches.
    pub contents: Fingerprint,
    /// Names the active rows.
    pub rows: Fingerprint,
    /// Names the weights.
    pub weights: Fingerprint,
    /// Positions of caches that were read in a later generation, and its number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generations: Vec<(u64, u64)>,
}

impl SavedState {
    pub fn new(
        cursor: Cursor,
        options: &OrderOptions,
        contents: Fingerprint,
        rows: Fingerprint,
        weights: Fingerprint,
        generations: Vec<(u64, u64)>,
    ) -> Self {
        Self {
            version: VERSION,
            epoch: cursor.epoch,
            position: cursor.position,
            seed: options.seed,
            order: mode_name(options.mode).to_owned(),
            epoch_length: options.epoch_length,
            contents,
            rows,
            weights,
            generations,
        }
    }

    /// Reads a state that a user kept.
    ///
    /// # Errors
    /// [`CacheError::State`] if it is none, or one of a later version.
    pub fn parse(json: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let fault = |error: serde_json::Error| {
            let error = error.to_string();
            // Users have a dictionary, in which there are no lines.
            let found = error.split(" at line ").next().unwrap_or_default();
            CacheError::State {
                fault: format!("it is not what state_dict() returns: {found}"),
                fields: Vec::new(),
            }
        };
        let Version { version } = serde_json::from_str(json).map_err(fault)?;
        if version != VERSION {
            let fields = vec![(
                "version".to_owned(),
                version.to_string(),
                VERSION.to_string(),
            )];
            return Err(CacheError::State {
                fault: differences(&fields),
                fields,
            });
        }
        serde_json::from_str(json).map_err(fault)
    }

    /// # Errors
    /// [`CacheError::State`] listing each field of `self` that differs from `current`, with both values, unless its name
    /// is in `ignore`.
    pub fn check(&self, current: &Self, ignore: &[String]) -> Result<()> {
        let length = |state: &Self| {
            state
                .epoch_length
                .map_or("the number of rows".to_owned(), |length| length.to_string())
        };
        let pairs = [
            ("seed", self.seed.to_string(), current.seed.to_string()),
            ("order", self.order.clone(), current.order.clone()),
            ("epoch_length", length(self), length(current)),
            (
                "contents",
                self.contents.to_string(),
                current.contents.to_string(),
            ),
            ("rows", self.rows.to_string(), current.rows.to_string()),
            (
                "weights",
                self.weights.to_string(),
                current.weights.to_string(),
            ),
        ];
        if let Some(unknown) = ignore
            .iter()
            .find(|name| !pairs.iter().any(|(known, ..)| known == name))
        {
            let known: Vec<_> = pairs.iter().map(|(name, ..)| *name).collect();
            return Err(CacheError::option("ignore", known.join(", "), unknown));
        }
        let differs = pairs
            .into_iter()
            .filter(|(name, saved, now)| saved != now && !ignore.iter().any(|known| known == name));
        let fields: Vec<_> = differs
            .map(|(name, saved, now)| (name.to_owned(), saved, now))
            .collect();
        if fields.is_empty() {
            return Ok(());
        }
        Err(CacheError::State {
            fault: differences(&fields),
            fields,
        })
    }
}

fn differences(fields: &[(String, String, String)]) -> String {
    let each = fields
        .iter()
        .map(|(name, saved, now)| format!("{name} was {saved} and is {now}"));
    format!(
        "it belongs to something else: {}",
        each.collect::<Vec<_>>().join("; ")
    )
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Physical => "physical",
        Mode::WithReplacement => "with_replacement",
        Mode::WithoutReplacement => "without_replacement",
    }
}
