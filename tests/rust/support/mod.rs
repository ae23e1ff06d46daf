//! What the integration tests share.

pub mod caches;
pub mod child;
pub mod crash_vfs;
pub mod damage;
pub mod disk;
pub mod naive;
pub mod reading;
pub mod scenario;
