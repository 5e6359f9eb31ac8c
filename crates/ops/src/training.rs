//! Whether a model is trained, or only asked for gradients.

use crate::scoped;
use burn::tensor::Device;
use std::cell::RefCell;

thread_local! {
    static AS_INFERENCE: RefCell<bool> = const { RefCell::new(false) };
}

/// Runs `work` as inference on the calling thread, also on a device with autodiff: dropout does nothing, and gradients are
/// exactly those of the output, without the changes that some models make to them for training. Scopes nest.
pub fn as_inference<R>(work: impl FnOnce() -> R) -> R {
    scoped(&AS_INFERENCE, true, work).0
}

/// Whether a forward pass on this device is a part of training: with autodiff, and not [`as_inference`].
pub fn is_training(device: &Device) -> bool {
    device.is_autodiff() && !AS_INFERENCE.with_borrow(|inside| *inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout;
    use burn::tensor::Tensor;

    #[test]
    fn gradients_are_to_be_had_without_dropout() {
        let device = Device::flex().autodiff();
        let x = Tensor::<1>::ones([64], &device).require_grad();
        assert!(is_training(&device) && !is_training(&Device::flex()));
        let y = as_inference(|| dropout(x.clone(), 0.5));
        assert_eq!(y.to_data(), x.to_data());
        let gradient = x.grad(&y.sum().backward()).expect("tracked");
        assert_eq!(gradient.into_data(), Tensor::<1>::ones([64], &Device::flex()).into_data());
        assert_ne!(dropout(x.clone(), 0.5).to_data(), x.to_data());
    }
}
