//! Numbers in, numbers out: which rows an epoch draws, and which of them a rank takes. No files, no threads.
//!
//! Everything here is a pure function of (rows, weights, seed, epoch, position). The values are part of what a release
//! promises: `tests/rust/value_stability.rs` pins them, and `rng` documents the layout they follow from.

pub mod alias;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod chunks;
pub mod epoch;
pub mod order;
pub mod permutation;
pub mod position;
pub mod quota;
pub mod rng;
pub mod uniform;
mod units;
mod weights;

#[cfg(test)]
mod testing;
