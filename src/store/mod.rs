//! Files of a cache: how they are created, made durable and published whole, and who may do so.

pub mod lock;
pub mod publish;
pub mod vfs;
