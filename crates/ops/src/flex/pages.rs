//! Memory that the system gets back before the allocator has it.

/// Gives the whole pages of these numbers back to the system, which has zeros in their place when they are used again. What is freed
/// by another thread than the one that has allocated it, mimalloc keeps for the latter, which may never need it.
pub(crate) fn give_back(values: &mut [f32]) {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        // SAFETY: it asks for a number alone.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page) = usize::try_from(page) else { return };
        let bytes = size_of_val(values);
        let before = values.as_ptr().addr().next_multiple_of(page.max(1)) - values.as_ptr().addr();
        let whole = bytes.saturating_sub(before) / page.max(1) * page.max(1);
        if whole > 0 {
            // SAFETY: the pages lie within the numbers, which nobody else can read or write meanwhile, and any bits are numbers. That
            // it could not be done costs memory alone.
            unsafe { libc::madvise(values.as_mut_ptr().byte_add(before).cast(), whole, libc::MADV_DONTNEED) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    let _ = values;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_around_the_pages_stay_and_memory_can_be_used_again() {
        for n in [0, 1, 1000, 5000, 100_000] {
            let mut values = vec![1.0f32; n + 2];
            give_back(&mut values[1..=n]);
            assert_eq!((values[0], values[n + 1]), (1.0, 1.0));
            assert!(values.iter().all(|value| [0.0, 1.0].contains(value)));
            values.fill(2.0);
            assert!(values.iter().all(|value| *value == 2.0));
        }
    }
}
