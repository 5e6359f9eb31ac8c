//! How many kernels a piece of work launches.

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

/// Does `work` and says how many kernels this process launched on graphics processors meanwhile, by their names: those
/// of this crate, of burn and of its fusion. The device is waited for before and after, for burn's fusion launches late.
///
/// Before kernels are counted, the work is to be done a time or two: kernels that are tried for their speed are
/// launched as well. Other threads' kernels are counted with these, and of counts within counts the inner one has
/// what happens in it.
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
