//! What the integration tests share.

pub mod crash_vfs;
pub mod disk;
pub mod naive;
pub mod scenario;
