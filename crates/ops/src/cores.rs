#[cfg(feature = "flex")]
use crate::flex;
use burn::tensor::Device;

/// Does `work` on `device`, such as a step of training, with all cores ready for its parallel parts: on flex it is
/// done on a thread of rayon's pool, whose other threads stay awake meanwhile, and elsewhere where it is.
///
/// A step has hundreds of such parts, and in between moments that are one thread's. A thread that falls asleep in
/// each of these, as rayon's do, is woken up as often, for some 50 µs each (measured); here it sleeps when it has
/// found nothing to do for 2 ms. The [precision](crate::with_precision) is the caller's.
///
/// `work` must not wait for what the pool's threads are to do otherwise, such as a channel's next batch.
pub fn on_awake_cores<T: Send>(device: &Device, work: impl FnOnce() -> T + Send) -> T {
    #[cfg(feature = "flex")]
    if flex::is_flex(device) {
        return flex::cores::on_awake_cores(work);
    }
    let _ = device;
    work()
}
