//! How much memory is left for the page cache.

use std::fs;
use std::path::Path;

/// Bytes of memory that programs can still take, page cache included: those of the machine, or fewer where a control group
/// allows fewer; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    let machine = in_meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let group = Path::new("/sys/fs/cgroup");
    let number = |name: &str| {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    // A group without a limit says `max`, which is no number.
    let limit =
        number("memory.max").map(|max| max.saturating_sub(number("memory.current").unwrap_or(0)));
    Some(limit.map_or(machine, |limit| limit.min(machine)))
}

/// The available bytes of a `/proc/meminfo`.
fn in_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_line_is_found_in_kibibytes() {
        let text = "MemTotal:       24 kB\nMemFree:  3 kB\nMemAvailable:   7 kB\n";
        assert_eq!(in_meminfo(text), Some(7 * 1024));
        assert_eq!(in_meminfo("MemTotal: 24 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_tells_how_much_is_available() {
        assert!(available_bytes().unwrap() > 0);
    }
}
