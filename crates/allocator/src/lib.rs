//! How the program and its benchmarks allocate memory. Not for libraries, which leave that to the program.
//!
//! A training step allocates and frees tensors of many megabytes. A system's allocator maps such blocks and
//! hands them back, and the page faults cost a third of a step (measured with glibc's defaults: 586–630 ms a
//! step, 430 ms without). So memory that was freed is kept for the next step: by glibc's allocator where it is
//! the system's, since it joins free neighbours and so needs 0.85 of mimalloc's memory in a step of BERT-base;
//! elsewhere by mimalloc.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    pub fn keep_freed() -> bool {
        // SAFETY: sets two numbers in the allocator, before other threads are started.
        unsafe { libc::mallopt(libc::M_MMAP_MAX, 0) == 1 && libc::mallopt(libc::M_TRIM_THRESHOLD, -1) == 1 }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    use std::ffi::c_long;

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    /// `mi_option_purge_delay` of `mimalloc.h`, which the bindings do not name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

    pub fn keep_freed() -> bool {
        const NEVER: c_long = -1;
        // SAFETY: sets and reads one number in the allocator, before other threads are started.
        unsafe {
            libmimalloc_sys::mi_option_set_default(PURGE_DELAY, NEVER);
            libmimalloc_sys::mi_option_get(PURGE_DELAY) == NEVER
        }
    }
}

/// Lets the allocator keep what is freed, for the rest of the process; whether it could be told. To be called
/// before anything else, on the only thread.
pub fn keep_freed() -> bool {
    allocator::keep_freed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_listens() {
        assert!(keep_freed());
        // Beyond every threshold of mapping, and not too large for the heap of a thread, which a test runs on.
        let block = vec![1u8; 40 << 20];
        assert_eq!(block[20 << 20], 1);
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        // SAFETY: reads the allocator's counts.
        assert_eq!(unsafe { libc::mallinfo2() }.hblks, 0, "no block is mapped by itself");
    }
}
