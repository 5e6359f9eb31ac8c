//! The program's allocator and how it behaves.

use std::ffi::c_long;

// A training step allocates and frees tensors of many megabytes. The system's allocator hands such
// blocks back and maps them anew, and the page faults cost a third of a step (measured on glibc:
// 586-630 ms a step before, 430 ms after); mimalloc keeps them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, which the bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Lets the allocator keep memory that is free for the next step instead of giving it back to the system
/// after 10 ms: 3-8 % of a step. Yields to `MIMALLOC_PURGE_DELAY`.
pub fn keep_freed() {
    const NEVER: c_long = -1;
    // SAFETY: sets one number in the allocator, before other threads are started.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, NEVER) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_one_meant() {
        // SAFETY: reads one number.
        let get = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // The header documents a delay of 10 ms (older versions) or 1 s.
        assert!([10, 1000].contains(&get()), "{}", get());
        keep_freed();
        assert_eq!(get(), -1);
    }
}
