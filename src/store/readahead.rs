//! How far the system reads ahead by itself, which decides how to ask it for much that lies together.

use std::path::Path;

/// Bytes that the system reads ahead of a reader of the file at `path`, by what it says of the device; 0 where it does
/// not say.
#[cfg(target_os = "linux")]
pub fn window(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;

    let Ok(metadata) = std::fs::metadata(path) else {
        return 0;
    };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A disk, or a file system with a device number of its own; of a partition its disk has the settings.
    [
        format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"),
        format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb"),
    ]
    .into_iter()
    .find_map(|path| in_bytes(&std::fs::read_to_string(path).ok()?))
    .unwrap_or(0)
}

/// Not told here.
#[cfg(not(target_os = "linux"))]
pub fn window(_path: &Path) -> usize {
    0
}

/// The bytes that a `read_ahead_kb` stands for.
#[cfg(any(target_os = "linux", test))]
fn in_bytes(kibibytes: &str) -> Option<usize> {
    kibibytes.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_told_in_kibibytes() {
        assert_eq!(in_bytes("128\n"), Some(128 << 10));
        assert_eq!(in_bytes("0\n"), Some(0));
        for wrong in ["", "-1\n", "x\n", "99999999999999999999\n"] {
            assert_eq!(in_bytes(wrong), None);
        }
    }

    #[test]
    fn a_file_that_is_on_no_disk_or_not_there_has_no_window() {
        assert_eq!(window(Path::new("/proc/self/status")), 0);
        assert_eq!(window(Path::new("/proc/self/no such file")), 0);
    }
}
