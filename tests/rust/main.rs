//! All integration tests of the core, in one binary.

mod crash;
mod support;
mod writer;
