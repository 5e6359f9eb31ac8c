//! Times and memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

/// The system's allocator, counting bytes in use where that is asked for; where times are taken, it is not.
pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static NOW: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: isize) {
    if COUNTS.load(Relaxed) {
        NOW.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that `make` leaves in use, in megabytes.
pub fn megabytes<T>(make: impl FnOnce() -> T) -> (T, f64) {
    COUNTS.store(true, Relaxed);
    let before = NOW.load(Relaxed);
    let made = make();
    let after = NOW.load(Relaxed);
    COUNTS.store(false, Relaxed);
    (made, (after - before) as f64 / 1e6)
}

/// Seconds of wall time that `work` takes.
pub fn wall(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Seconds of this thread on a processor, so that other work on the machine disturbs less; wall time
/// where the system does not tell.
pub fn processor(work: impl FnOnce()) -> f64 {
    let nanoseconds = || {
        // Which brings the count up to date.
        thread::yield_now();
        let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        stat.split(' ').next()?.parse::<f64>().ok()
    };
    let before = nanoseconds();
    let wall = wall(work);
    match (before, nanoseconds()) {
        (Some(before), Some(after)) => (after - before) / 1e9,
        _ => wall,
    }
}

/// A side of a comparison: seconds of one run, if it can run.
pub type Side<'a> = Box<dyn FnMut() -> Option<f64> + 'a>;

/// The medians of `rounds` runs of each side, in turn.
pub fn medians<const N: usize>(rounds: usize, mut sides: [Side; N]) -> [Option<f64>; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (times, side) in times.iter_mut().zip(&mut sides) {
            times.extend(side());
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    })
}
