//! Counting of kernel launches.

use burn::tensor::Device;
use cubecl::logging::{LaunchObservation, LaunchObserver};
use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Default)]
struct Counts(Mutex<BTreeMap<&'static str, usize>>);

impl LaunchObserver for Counts {
    fn launched(&self, kernel: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kernel).or_default() += 1;
    }
}

/// Runs `work` and counts the kernels that this process launches on GPUs meanwhile, by name: those of this
/// crate, of burn and of its fusion. It synchronises the device before and after, since burn's fusion
/// launches late.
///
/// Run the work once or twice before counting, because autotuning also launches kernels. Other threads'
/// kernels are included, and of nested counts the inner one gets the launches within it.
pub fn count_launches<T>(device: &Device, work: impl FnOnce() -> T) -> (T, BTreeMap<&'static str, usize>) {
    // A device that has failed says so in what is read from it.
    let wait = || device.sync().ok();
    wait();
    let counts = Arc::new(Counts::default());
    let observation = LaunchObservation::new(counts.clone());
    let result = work();
    wait();
    drop(observation);
    let counts = take(&mut *counts.0.lock().unwrap_or_else(PoisonError::into_inner));
    (result, counts)
}
