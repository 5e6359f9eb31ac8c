#[cfg(feature = "flex")]
use crate::flex;
use burn::tensor::Device;
use std::cell::Cell;
use std::sync::Once;

/// Whether the operations of this crate are fused on `device`: they are on burn's flex, in a build with this crate's
/// feature `flex`, unless gradients are checkpointed. On graphics processors some are, by the feature `cube`; this says
/// no of them.
pub fn is_fused(device: &Device) -> bool {
    #[cfg(feature = "flex")]
    return flex::is_flex(device);
    #[cfg(not(feature = "flex"))]
    {
        let _ = device;
        false
    }
}

/// Why operations are not fused on a `device` that could have them fused; none of a device where they are, and of one
/// that has no fused operations.
///
/// Results are the same, and take twice the time and more. For a program to tell its user: libraries have no standard
/// error. See also [`warn_unfused`].
pub fn unfused(device: &Device) -> Option<&'static str> {
    if is_fused(device) || !is_flex(device) {
        return None;
    }
    Some(match cfg!(feature = "flex") {
        true => {
            "operations on flex are not fused while gradients are checkpointed: training takes about twice the time"
        }
        false => {
            "operations on flex are not fused in this build and take about twice the time: build with the feature \
             `flex` of cloze-model or cloze-trainer, which brings them"
        }
    })
}

/// Tells `tracing`, once in a process, of a device that is [`unfused`].
pub fn warn_unfused(device: &Device) {
    static WARNED: Once = Once::new();
    if let Some(reason) = unfused(device) {
        WARNED.call_once(|| tracing::warn!("{reason}"));
    }
}

thread_local! {
    static WITHOUT_KERNELS: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` with operations composed of burn's where the calling thread would use this crate's kernels for graphics
/// processors: to find out what those do, and whether one of them is at fault.
///
/// A backward pass goes the way its forward pass went.
pub fn composed_on_graphics<T>(work: impl FnOnce() -> T) -> T {
    /// Sets the former choice again, after a panic too.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            WITHOUT_KERNELS.set(self.0);
        }
    }
    let _restore = Restore(WITHOUT_KERNELS.replace(true));
    work()
}

/// Whether the calling thread is within [`composed_on_graphics`].
#[cfg(feature = "cube")]
pub(crate) fn without_kernels() -> bool {
    WITHOUT_KERNELS.get()
}

/// By its name: without the feature, this crate may be built beside a burn that has no flex.
fn is_flex(device: &Device) -> bool {
    format!("{:?}", device.clone().inner()).starts_with("Device<Flex")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flex_device_is_fused_or_says_why_not() {
        for device in [Device::flex(), Device::flex().autodiff()] {
            assert!(is_flex(&device));
            assert_eq!(is_fused(&device), cfg!(feature = "flex"));
            assert_eq!(unfused(&device).is_none(), cfg!(feature = "flex"));
        }
        let checkpointed = Device::flex().autodiff().gradient_checkpointing();
        let reason = unfused(&checkpointed).unwrap();
        assert_eq!(reason.contains("checkpointed"), cfg!(feature = "flex"), "{reason}");
    }

    #[test]
    fn the_warning_is_given_once() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use tracing::span::{Attributes, Id, Record};
        use tracing::{Event, Level, Metadata, Subscriber};

        struct Warnings(Arc<AtomicUsize>);

        impl Subscriber for Warnings {
            fn enabled(&self, metadata: &Metadata<'_>) -> bool {
                *metadata.level() == Level::WARN
            }

            fn event(&self, _: &Event<'_>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }

            fn new_span(&self, _: &Attributes<'_>) -> Id {
                Id::from_u64(1)
            }

            fn record(&self, _: &Id, _: &Record<'_>) {}
            fn record_follows_from(&self, _: &Id, _: &Id) {}
            fn enter(&self, _: &Id) {}
            fn exit(&self, _: &Id) {}
        }

        let count = Arc::new(AtomicUsize::new(0));
        tracing::subscriber::with_default(Warnings(count.clone()), || {
            warn_unfused(&Device::flex());
            assert_eq!(count.load(Ordering::Relaxed), usize::from(!cfg!(feature = "flex")));
            for _ in 0..3 {
                warn_unfused(&Device::flex().autodiff().gradient_checkpointing());
                assert_eq!(count.load(Ordering::Relaxed), 1);
            }
        });
    }
}
