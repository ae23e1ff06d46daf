//! Read-only mapping of a file that nobody changes while it is mapped.

#![expect(
    unsafe_code,
    reason = "mapping a file is only as safe as the file is constant"
)]

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::error::{CacheError, Result};

/// A mapped file.
#[derive(Debug)]
pub struct Map(Mmap);

impl Map {
    /// Maps the whole of `file`; `path` is for messages.
    pub fn new(file: &File, path: &Path) -> Result<Self> {
        // SAFETY: `Mmap::map` demands that the file is not changed or cut while the map lives. Files of a published
        // cache are never written again: a cache is replaced by renaming a whole directory and removed by unlinking,
        // and both leave mapped pages as they are. Damage from outside is what checksums are for.
        let map = unsafe { Mmap::map(file) };
        map.map(Self)
            .map_err(|error| CacheError::io("map", path, error))
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(target_os = "linux")]
impl Map {
    /// Whether the page that holds byte `offset` is in memory; `true` where the system does not tell.
    pub fn is_resident(&self, offset: usize) -> bool {
        const RESIDENT: u8 = 1;
        if offset >= self.0.len() {
            return true;
        }
        let page = rustix::param::page_size();
        let start = offset - offset % page;
        let mut state = [RESIDENT];
        // SAFETY: `start` lies inside the map and, since maps begin at a page, is the address of a page; one page is asked
        // for, so the kernel writes one byte, which is what `state` has room for.
        let status = unsafe {
            libc::mincore(
                self.0.as_ptr().add(start).cast_mut().cast(),
                1,
                state.as_mut_ptr(),
            )
        };
        status != 0 || state[0] & RESIDENT != 0
    }

    /// Asks the system to read `len` bytes from `offset` soon, without waiting for it.
    pub fn will_need(&self, offset: usize, len: usize) {
        self.advise(memmap2::Advice::WillNeed, offset, len);
    }

    /// Reads `len` bytes from `offset` into memory and maps them; waits for it.
    pub fn populate(&self, offset: usize, len: usize) {
        self.advise(memmap2::Advice::PopulateRead, offset, len);
    }

    /// Advice is wanted, not needed: an old kernel or a damaged disk shows when the bytes are read.
    fn advise(&self, advice: memmap2::Advice, offset: usize, len: usize) {
        let end = offset.saturating_add(len).min(self.0.len());
        if offset < end {
            let _ = self.0.advise_range(advice, offset, end - offset);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Map {
    /// Whether the page that holds byte `offset` is in memory; not told here.
    pub fn is_resident(&self, _offset: usize) -> bool {
        true
    }

    /// Nothing is asked for here.
    pub fn will_need(&self, _offset: usize, _len: usize) {}

    /// Nothing is read ahead here.
    pub fn populate(&self, _offset: usize, _len: usize) {}
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
