//! Files of a cache: how they are created, made durable and published whole, and who may do so.

pub mod cache;
pub mod change;
mod deleted;
mod dictionary;
pub mod file;
pub mod folder;
pub mod generations;
pub mod live;
pub mod locality;
pub mod lock;
mod map;
mod memory;
pub mod outflow;
pub mod pool;
pub mod populate;
pub mod prefetch;
pub mod publish;
pub mod readahead;
pub mod slot;
pub mod stride;
pub mod summary;
pub mod sweep;
mod table;
pub mod uncached;
pub mod verify;
pub mod vfs;
