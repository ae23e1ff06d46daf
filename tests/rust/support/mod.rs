//! What the integration tests share.

pub mod altered_vfs;
pub mod caches;
pub mod changing;
pub mod checking;
pub mod child;
pub mod crash_vfs;
pub mod damage;
pub mod damaged;
pub mod disk;
pub mod engines;
pub mod forgeries;
pub mod generations;
pub mod naive;
pub mod reading;
pub mod scenario;
pub mod writing;
