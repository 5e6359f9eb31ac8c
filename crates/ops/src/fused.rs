#[cfg(feature = "flex")]
use crate::flex;
use burn::tensor::Device;
use std::cell::Cell;
use std::sync::Once;

/// Whether the operations of this crate are fused on `device`: `true` on burn's flex with this crate's
/// feature `flex`, unless gradients are checkpointed. On GPUs some operations are fused by the feature
/// `cube`; this returns `false` there.
pub fn is_fused(device: &Device) -> bool {
    #[cfg(feature = "flex")]
    return flex::is_flex(device);
    #[cfg(not(feature = "flex"))]
    {
        let _ = device;
        false
    }
}

/// Why operations are not fused on a `device` that supports it; `None` if they are fused, or if the device
/// has no fused operations.
///
/// Unfused results are the same, but take at least twice the time. For programs to show their users, since
/// libraries should not print. See also [`warn_unfused`].
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

/// Warns through `tracing`, once per process, about a device that is [`unfused`].
pub fn warn_unfused(device: &Device) {
    static WARNED: Once = Once::new();
    if let Some(reason) = unfused(device) {
        WARNED.call_once(|| tracing::warn!("{reason}"));
    }
}

thread_local! {
    static WITHOUT_KERNELS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with burn's composed operations instead of this crate's GPU kernels on the calling thread, to
/// measure the kernels or find a faulty one.
///
/// A backward pass uses the same form as its forward pass.
pub fn composed_on_graphics<T>(work: impl FnOnce() -> T) -> T {
    /// Restores the previous choice, even after a panic.
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

/// Checks by name: without the feature, burn may be built without flex.
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
