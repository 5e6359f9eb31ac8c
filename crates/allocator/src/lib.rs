//! How the program and its benchmarks allocate memory. Not for libraries, which leave that to the program.
//!
//! A training step allocates and frees tensors of many megabytes. A system's allocator maps such blocks and
//! hands them back, and the page faults cost a third of a step (measured with glibc's defaults: 586–630 ms a
//! step, 430 ms without). So memory that was freed is kept for the next step: by glibc's allocator where it is
//! the system's, since it joins free neighbours and so needs 0.85 of mimalloc's memory in a step of BERT-base;
//! elsewhere by mimalloc.
//!
//! With glibc's, large blocks also ask Linux for pages of 2 MiB: a step of BERT-mini takes 3 to 5 % less time with
//! them (Intel Xeon with AMX), for a product reads and writes rows that are a page of 4 KiB or more apart.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator {
    use std::alloc::{GlobalAlloc, Layout, System};

    const HUGE_PAGE: usize = 2 << 20;

    #[global_allocator]
    static ALLOCATOR: HugePages = HugePages;

    /// The system's allocator, with large pages for large blocks.
    struct HugePages;

    /// Asks for large pages where the block has whole ones: before it is written to, or there are small ones already.
    fn advise(block: *mut u8, size: usize) {
        let end = (block.addr() + size) / HUGE_PAGE * HUGE_PAGE;
        let start = block.addr().next_multiple_of(HUGE_PAGE);
        if !block.is_null() && start < end {
            // SAFETY: the pages are the block's, and what they hold stays. It may be refused: then they stay small.
            unsafe { libc::madvise(block.with_addr(start).cast(), end - start, libc::MADV_HUGEPAGE) };
        }
    }

    // SAFETY: the system's allocator does it all.
    unsafe impl GlobalAlloc for HugePages {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise, here and below.
            let block = unsafe { System.alloc(layout) };
            advise(block, layout.size());
            block
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: as above.
            let block = unsafe { System.alloc_zeroed(layout) };
            advise(block, layout.size());
            block
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            // SAFETY: as above.
            let block = unsafe { System.realloc(block, layout, size) };
            advise(block, size);
            block
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: as above.
            unsafe { System.dealloc(block, layout) }
        }
    }

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

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

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
