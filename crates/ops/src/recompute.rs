use crate::is_fused;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

#[cfg(feature = "flex")]
use crate::flex;

/// Whether [`recompute`] works on this device: where operations are [fused](is_fused), and trivially without
/// autodiff.
pub fn can_recompute(device: &Device) -> bool {
    !device.is_autodiff() || is_fused(device)
}

/// `forward(module, x)`, keeping only `x` for the backward pass, which recomputes it with the same dropout
/// and [precision](crate::with_precision), so results and gradients are bit-identical. This is gradient
/// checkpointing (Chen et al. 2016, §4) with `x` as the checkpoint: recomputing a model layer by layer keeps
/// only the layers' inputs and one layer's activations at a time, for one extra forward pass.
///
/// `forward` may use what it captures, but only `x` and the parameters of `module` get gradients. Its random
/// numbers must come from this crate's operations: others would differ in the recomputation.
///
/// # Panics
/// On a device with autodiff that [cannot](can_recompute). In the backward pass, if the recomputation differs
/// from the first result.
pub fn recompute<M, const D: usize>(
    module: &M,
    x: Tensor<D>,
    forward: impl Fn(&M, Tensor<D>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<D>
where
    M: Module + 'static,
{
    let device = x.device();
    assert!(
        can_recompute(&device),
        "activations are recomputed where operations are fused, not on {device:?}"
    );
    #[cfg(feature = "flex")]
    if device.is_autodiff() {
        return flex::recompute::recompute(module, x, forward);
    }
    forward(module, x)
}
