//! Files of a cache: how they are created, made durable and published whole, and who may do so.

pub mod cache;
mod dictionary;
pub mod file;
pub mod folder;
pub mod locality;
pub mod lock;
mod map;
mod memory;
pub mod pool;
pub mod populate;
pub mod prefetch;
pub mod publish;
pub mod slot;
mod table;
pub mod validate;
pub mod verify;
pub mod vfs;
