//! Which process this is, asked for so often that a system call each time would take a tenth of a small gather.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "only the C library tells of forks")
)]

/// The number of this process, also in a child just forked.
#[cfg(target_os = "linux")]
pub fn process_id() -> u32 {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static NUMBER: AtomicU32 = AtomicU32::new(0);
    static IS_TOLD: OnceLock<bool> = OnceLock::new();

    extern "C" fn renew() {
        NUMBER.store(std::process::id(), Ordering::Relaxed);
    }

    let is_told = *IS_TOLD.get_or_init(|| {
        renew();
        // SAFETY: the function given is of the type asked for and lives as long as the program. In the child it makes one
        // system call and one store, which is allowed there.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) == 0 }
    });
    if is_told {
        NUMBER.load(Ordering::Relaxed)
    } else {
        std::process::id()
    }
}

/// The number of this process.
#[cfg(not(target_os = "linux"))]
pub fn process_id() -> u32 {
    std::process::id()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_the_system_says() {
        assert_eq!(super::process_id(), std::process::id());
        assert_eq!(super::process_id(), std::process::id());
    }
}
