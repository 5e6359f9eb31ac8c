#[cfg(feature = "flex")]
use crate::flex;
use burn::tensor::Device;

/// Does `work` on `device`, such as a step of training, with all cores ready for its parallel parts: on flex
/// it runs on a thread of rayon's pool, whose other threads stay awake meanwhile; on other devices it runs on
/// the current thread.
///
/// A step has hundreds of such parts, separated by short single-threaded ones. Rayon's threads fall asleep in
/// each of these, and waking one takes about 50 µs (measured); here a thread sleeps only after 2 ms without
/// work. The [precision](crate::with_precision) is the caller's.
///
/// `work` must not wait for other work of the pool's threads, such as a channel's next batch.
pub fn on_awake_cores<T: Send>(device: &Device, work: impl FnOnce() -> T + Send) -> T {
    #[cfg(feature = "flex")]
    if flex::is_flex(device) {
        return flex::cores::on_awake_cores(work);
    }
    let _ = device;
    work()
}
