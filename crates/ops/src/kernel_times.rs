//! Timing of GPU kernels.

use std::collections::HashMap;
use std::time::Duration;

/// The launches of a GPU kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTime {
    /// The kernel's name without type arguments; for this crate's kernels, prefixed with the operation's
    /// name.
    pub name: String,
    /// Number of launches.
    pub calls: u64,
    /// Total run time.
    pub time: Duration,
}

/// Times each kernel that CubeCL's devices (`wgpu`, `cuda`) run in this process, until it is
/// [finished](Self::finish) or dropped. It records nothing on other devices, or without the feature `cube`.
///
/// Kernels still run back to back, but launches are slower. Only one timer is active at once: a second one
/// takes over from the first until it ends.
#[derive(Debug)]
pub struct KernelTimes {
    #[cfg(feature = "cube")]
    watch: watch::Watch,
    sums: HashMap<String, (u64, Duration)>,
}

impl KernelTimes {
    /// Starts timing kernels launched from now on.
    pub fn start() -> Self {
        Self {
            #[cfg(feature = "cube")]
            watch: watch::Watch::start(),
            sums: HashMap::new(),
        }
    }

    /// Collects the launches since the last call. Call it regularly, such as after each step, following
    /// `Device::sync`: a device stores only a limited number of unread times.
    pub fn collect(&mut self) {
        #[cfg(feature = "cube")]
        for (name, time) in self.watch.read() {
            let (calls, sum) = self.sums.entry(name).or_default();
            *calls += 1;
            *sum += time;
        }
    }

    /// The kernels that ran, longest first, ties by name.
    pub fn finish(mut self) -> Vec<KernelTime> {
        self.collect();
        let kernels = std::mem::take(&mut self.sums).into_iter();
        let mut kernels: Vec<_> =
            kernels.map(|(name, (calls, time))| KernelTime { name, calls, time }).collect();
        kernels.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        kernels
    }
}

#[cfg(feature = "cube")]
mod watch {
    use cubecl::config::{TypeNameFormatLevel, type_name_format};
    use cubecl::future::block_on;
    use cubecl::logging::{LaunchObservation, LaunchObserver, ProfileDuration, TimingMethod, TimingRequest};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    /// Launches not yet read.
    #[derive(Default)]
    struct Launched {
        unread: Mutex<Vec<(&'static str, ProfileDuration)>>,
        /// Times that CubeCL's own log read first.
        known: Mutex<Vec<(&'static str, Duration)>>,
    }

    impl LaunchObserver for Launched {
        fn launched(&self, _kernel: &'static str) {}

        fn timing(&self) -> TimingRequest {
            TimingRequest::Deferred
        }

        fn profiled(&self, kernel: &'static str, time: ProfileDuration) {
            self.unread.lock().unwrap_or_else(PoisonError::into_inner).push((kernel, time));
        }

        fn timed(&self, kernel: &'static str, time: Duration, _method: TimingMethod) {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).push((kernel, time));
        }
    }

    pub struct Watch {
        launched: Arc<Launched>,
        _observation: LaunchObservation,
    }

    impl std::fmt::Debug for Watch {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Watch")
        }
    }

    impl Watch {
        pub fn start() -> Self {
            let launched = Arc::new(Launched::default());
            Self { _observation: LaunchObservation::new(launched.clone()), launched }
        }

        /// Names and times; launches whose time was lost are omitted.
        pub fn read(&self) -> Vec<(String, Duration)> {
            let unread =
                std::mem::take(&mut *self.launched.unread.lock().unwrap_or_else(PoisonError::into_inner));
            let read = unread.into_iter().filter_map(|(kernel, time)| {
                let ticks = block_on(time.resolve())?;
                Some((kernel, ticks.duration()))
            });
            let mut all: Vec<(&'static str, Duration)> = read.collect();
            all.append(&mut self.launched.known.lock().unwrap_or_else(PoisonError::into_inner));
            // Kernels of several of this crate's operations have the same name.
            let short = |name: &str| {
                let own = type_name_format(name, TypeNameFormatLevel::Short);
                match name.strip_prefix("cloze_ops::cube::").and_then(|path| path.split("::").next()) {
                    Some(operation) => format!("{operation}::{own}"),
                    None => own,
                }
            };
            all.into_iter().map(|(kernel, time)| (short(kernel), time)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_come_by_time() {
        let mut times = KernelTimes::start();
        for (name, calls, time) in [("copy", 1, 5), ("product", 2, 9), ("add", 3, 5)] {
            times.sums.insert(name.into(), (calls, Duration::from_micros(time)));
        }
        // Other tests may launch kernels meanwhile, in a build that has any.
        let found = times.finish();
        let of = |name: &str| found.iter().position(|kernel| kernel.name == name).unwrap();
        assert!(of("product") < of("add") && of("add") < of("copy"));
        assert_eq!(found[of("product")].calls, 2);
    }
}
