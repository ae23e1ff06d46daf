//! Every file and folder name of a cache, spelled once, and the rules for names that come from outside.

use crate::error::{CacheError, Result};
use crate::limits::SOURCE_NAME_BYTES_MAX;

/// The publication marker: a directory without a valid one is no cache.
pub const MANIFEST: &str = "manifest.json";
/// One metadata row per sample, as an Arrow IPC file.
pub const METADATA: &str = "metadata.arrow";
/// Where each sample's record lies.
pub const INDEX: &str = "index.bin";
/// One checksum per record.
pub const CHECKSUMS: &str = "checksums.bin";
/// The zstd dictionary that the payloads were compressed with, if there is one.
pub const DICTIONARY: &str = "dictionary.zstd";
/// Folder of the shard files.
pub const SHARDS: &str = "shards";
/// Folder of the later generations of a cache.
pub const GENERATIONS: &str = "generations";
/// The ids that a generation took out.
pub const DELETED: &str = "deleted.bin";
/// Folder of the leases, among the generations.
pub const LEASES: &str = "leases";

/// Columns that the samples metadata table adds; a source may not use them.
pub const RESERVED_COLUMNS: [&str; 3] = ["cache_id", "sample_id", "weight"];

/// File name of shard `id`.
pub fn shard(id: u64) -> String {
    format!("{id:06}.bin")
}

/// Whether `name` is a plain file name: it stays inside the folder it is joined to, on every platform.
pub fn is_plain_file_name(name: &str) -> bool {
    fault(name).is_none()
}

/// Checks that a source name can be a directory name on every platform and cannot be mistaken for our own files.
///
/// # Errors
/// [`CacheError::SourceName`] with the rule that the name breaks.
pub fn check_source_name(name: &str) -> Result<()> {
    let found = if name.len() > SOURCE_NAME_BYTES_MAX {
        Some(format!(
            "it has {} bytes, the limit is {SOURCE_NAME_BYTES_MAX}",
            name.len()
        ))
    } else if name.starts_with('.') {
        Some("it starts with a dot, which marks unfinished caches".to_owned())
    } else {
        fault(name).map(str::to_owned)
    };
    match found {
        None => Ok(()),
        Some(fault) => Err(CacheError::SourceName {
            name: name.to_owned(),
            fault,
        }),
    }
}

/// The first rule of portable file names that `name` breaks.
fn fault(name: &str) -> Option<&'static str> {
    const FORBIDDEN: &[char] = &['/', '\\', ':', '*', '?', '"', '<', '>', '|'];
    if name.is_empty() {
        Some("it is empty")
    } else if name == "." || name == ".." {
        Some("it names a parent directory")
    } else if name.contains(FORBIDDEN) {
        Some("it contains one of / \\ : * ? \" < > |")
    } else if name.chars().any(char::is_control) {
        Some("it contains a control character")
    } else if name.ends_with(['.', ' ']) || name.starts_with(' ') {
        Some("it starts with a space, or ends with a dot or a space")
    } else if is_device(name) {
        Some("it is the name of a device on Windows")
    } else {
        None
    }
}

/// Windows opens the device for these names, whatever extension follows.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    let upper = stem.to_ascii_uppercase();
    if matches!(upper.as_str(), "CON" | "PRN" | "AUX" | "NUL") {
        return true;
    }
    let mut letters = upper.chars();
    let prefix: String = letters.by_ref().take(3).collect();
    let rest: String = letters.collect();
    (prefix == "COM" || prefix == "LPT")
        && matches!(
            rest.as_str(),
            "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_accepted() {
        for name in [
            "train",
            "train.v2",
            "日本語",
            "a b",
            "COM0",
            "console",
            "x-1_2",
        ] {
            assert!(check_source_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_that_leave_the_folder_or_break_a_platform_are_refused() {
        let long = "x".repeat(201);
        for name in [
            "",
            ".",
            "..",
            "../a",
            "a/b",
            "a\\b",
            "/etc",
            "C:",
            "nul",
            "NUL.txt",
            "com1",
            "LPT9.bin",
            "a\0b",
            "a\n",
            ".hidden",
            "end.",
            "end ",
            " start",
            long.as_str(),
        ] {
            assert!(check_source_name(name).is_err(), "{name:?}");
        }
    }
}
