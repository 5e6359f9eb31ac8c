//! Keeps all cores ready while there is parallel work.

use super::seeds::Source;
use crate::{Precision, with_precision};
use rayon::Yield;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an idle core looks for work before sleeping.
const PATIENCE: Duration = Duration::from_millis(2);
/// Processor pauses between checks of the clock and of others' work.
const PAUSES: usize = 20;

/// Runs on a thread of the pool, whose other threads look for work until it is done.
pub(crate) fn on_awake_cores<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if rayon::current_num_threads() == 1 {
        return work();
    }
    let (precision, mut seeds) = (Precision::current(), Source::take());
    let mut result = None;
    rayon::scope(|_| {
        let _others = Awake::new();
        // A thread that waits takes over what it finds, another caller's work too: not in its own precision, nor
        // with its own seeds.
        result = Some(with_precision(precision, || seeds.within(work)));
    });
    seeds.put();
    result.expect("made in the scope")
}

/// Keeps the pool's other threads awake as long as it lives.
struct Awake {
    done: Arc<AtomicBool>,
}

impl Awake {
    fn new() -> Self {
        let (own, done) = (rayon::current_thread_index(), Arc::new(AtomicBool::new(false)));
        let seen = done.clone();
        rayon::spawn_broadcast(move |thread| {
            if Some(thread.index()) != own {
                help_until(&seen);
            }
        });
        Self { done }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Takes over others' work until all is done, or none was found for long.
fn help_until(done: &AtomicBool) {
    let mut idle_since = Instant::now();
    while !done.load(Ordering::Relaxed) {
        match rayon::yield_now() {
            Some(Yield::Executed) => idle_since = Instant::now(),
            _ if idle_since.elapsed() > PATIENCE => return,
            _ => (0..PAUSES).for_each(|_| spin_loop()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn work_within_work_is_done_and_its_result_returned() {
        let sum = |n: u64| (0..n).into_par_iter().sum::<u64>();
        let found: Vec<u64> = (1..50u64)
            .into_par_iter()
            .map(|n| on_awake_cores(|| on_awake_cores(|| sum(n)) + sum(1000)))
            .collect();
        let expected: Vec<u64> = (1..50u64).map(|n| n * (n - 1) / 2 + 499_500).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn work_has_its_callers_precision() {
        let found = with_precision(Precision::Bf16, || on_awake_cores(Precision::current));
        assert_eq!([found, on_awake_cores(Precision::current)], [Precision::Bf16, Precision::Fp32]);
    }

    #[test]
    fn a_panic_is_passed_on() {
        let caught = std::panic::catch_unwind(|| on_awake_cores(|| panic!("as it should")));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "as it should");
        assert_eq!(on_awake_cores(|| 7), 7);
    }
}
