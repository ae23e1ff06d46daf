//! Short names for contents, rows and weights, by which a saved state recognises the data it belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::format::checksum::Sha256Hasher;

/// Hexadecimal digits kept: 128 bits, far beyond any accidental clash.
const DIGITS: usize = 32;

/// The first 128 bits of a SHA-256, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Takes the parts of what is to be named, in a fixed order.
pub struct Fingerprinter(Sha256Hasher);

impl Fingerprinter {
    /// Starts with a word for the kind of thing, so that two kinds never share a name.
    pub fn new(kind: &str) -> Self {
        let mut hasher = Sha256Hasher::default();
        hasher.update(kind.as_bytes());
        hasher.update(&[0]);
        Self(hasher)
    }

    /// Adds a number.
    pub fn number(&mut self, value: u64) {
        self.0.update(&value.to_le_bytes());
    }

    /// Adds numbers; how many must follow from what was added before.
    pub fn numbers(&mut self, values: impl Iterator<Item = u64>) {
        const BLOCK: usize = 8192;
        let mut bytes = Vec::with_capacity(BLOCK);
        for value in values {
            bytes.extend_from_slice(&value.to_le_bytes());
            if bytes.len() == BLOCK {
                self.0.update(&bytes);
                bytes.clear();
            }
        }
        self.0.update(&bytes);
    }

    /// Adds bytes; how many must follow from what was added before.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The name of everything added.
    pub fn finish(self) -> Fingerprint {
        let mut digits = self.0.finish().to_string();
        digits.truncate(DIGITS);
        Fingerprint(digits)
    }
}
