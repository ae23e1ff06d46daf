//! Records as they are stored, into new shards: one open shard for each way of storing payloads.

use std::sync::Arc;

use crate::error::{CacheError, Result};
use crate::format::compression::{Algorithm, payload_len};
use crate::format::envelope;
use crate::format::manifest::Compression;
use crate::format::names::{SHARDS, shard};
use crate::store::outflow::manifest::NewShard;
use crate::store::outflow::output::{OutFile, Outputs, Tag};

/// Takes records one after the other.
pub struct Copier {
    outputs: Arc<Outputs>,
    max_shard_bytes: u64,
    open: Vec<(Algorithm, usize, OutFile)>,
    shards: Vec<NewShard>,
}

/// Where a record came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number among the new shards.
    pub shard: u64,
    /// First byte in it.
    pub offset: u64,
}

impl Copier {
    /// A copier to shards of about `max_shard_bytes`.
    pub fn new(outputs: &Arc<Outputs>, max_shard_bytes: u64) -> Self {
        Self {
            outputs: Arc::clone(outputs),
            max_shard_bytes,
            open: Vec::new(),
            shards: Vec::new(),
        }
    }

    /// Takes a record whose payload is stored as `compression` says, in parts that lie one after the other.
    ///
    /// # Errors
    /// [`CacheError::Interrupted`] if the write has failed elsewhere.
    pub fn push(
        &mut self,
        compression: Compression,
        parts: &[&[u8]],
        payload_len: u64,
    ) -> Result<Place> {
        let byte_len = parts.iter().map(|part| part.len() as u64).sum();
        let number = self.shard_for(compression, byte_len)?;
        let open = self.open.iter_mut().find(|(_, open, _)| *open == number);
        let (Some((_, _, file)), Some(entry)) = (open, self.shards.get_mut(number)) else {
            return Err(CacheError::internal("no open shard"));
        };
        let offset = file.byte_len();
        for part in parts {
            file.append(part)?;
        }
        entry.byte_len = file.byte_len();
        entry.payload_bytes = entry.payload_bytes.saturating_add(payload_len);
        Ok(Place {
            shard: number as u64,
            offset,
        })
    }

    /// The shard that takes a record of this length: the open one of its kind, unless that holds something and would get
    /// too long.
    fn shard_for(&mut self, compression: Compression, byte_len: u64) -> Result<usize> {
        let place = self
            .open
            .iter()
            .position(|(algorithm, ..)| *algorithm == compression.algo);
        if let Some((_, number, file)) = place.and_then(|place| self.open.get(place))
            && file.byte_len().saturating_add(byte_len) <= self.max_shard_bytes
        {
            return Ok(*number);
        }
        if let Some(place) = place {
            self.open.swap_remove(place).2.close()?;
        }
        if self.shards.is_empty() {
            self.outputs.staging.create_dir(SHARDS)?;
        }
        let number = self.shards.len();
        let name = format!("{SHARDS}/{}", shard(number as u64));
        let file = self.outputs.open(Tag::Shard(number as u64), &name)?;
        self.open.push((compression.algo, number, file));
        self.shards.push(NewShard {
            compression,
            payload_bytes: 0,
            byte_len: 0,
        });
        Ok(number)
    }

    /// Ends all shards.
    ///
    /// # Errors
    /// As [`Copier::push`].
    pub fn close(self) -> Result<Vec<NewShard>> {
        for (_, _, file) in self.open {
            file.close()?;
        }
        Ok(self.shards)
    }
}

/// Splits a record into what comes before the stored payload, this, and the length of the payload; or says what is wrong.
///
/// # Errors
/// What is wrong with the record.
pub fn dissect(
    algorithm: Algorithm,
    record: &[u8],
) -> std::result::Result<(&[u8], &[u8], u64), String> {
    let (_, stored) = envelope::split(record)?;
    let (head, _) = record.split_at(record.len() - stored.len());
    Ok((head, stored, payload_len(algorithm, stored)? as u64))
}
