//! Tells local file systems from network ones, where a mapping may fault long after the file was opened.

use std::path::Path;

use crate::types::Io;

/// The way to read files below `path`: what was asked for, or what suits the file system.
pub fn resolve(io: Io, path: &Path) -> Io {
    match io {
        Io::Auto if is_network(path) => Io::Pread,
        Io::Auto => Io::Mmap,
        chosen => chosen,
    }
}

/// Magic numbers of statfs(2) for file systems whose storage can vanish under a mapping.
#[cfg(target_os = "linux")]
const NETWORK_MAGICS: [u64; 13] = [
    0x6969,      // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x517b,      // SMB
    0x6573_5546, // FUSE
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x5346_414f, // AFS
    0x7461_636f, // OCFS2
    0x7375_7245, // Coda
];

#[cfg(target_os = "linux")]
fn is_network(path: &Path) -> bool {
    rustix::fs::statfs(path)
        .is_ok_and(|found| NETWORK_MAGICS.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn is_network(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_folder_is_mapped_unless_told_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(resolve(Io::Auto, folder.path()), Io::Mmap);
        assert_eq!(resolve(Io::Pread, folder.path()), Io::Pread);
        assert_eq!(resolve(Io::Mmap, folder.path()), Io::Mmap);
    }
}
