//! The way of bytes to the files of a cache that is being written: blocks are written and hashed side by side, and files
//! made durable behind them.

pub mod failure;
pub mod files;
pub mod flow;
pub mod manifest;
pub mod output;
pub mod table;
