use crate::is_fused;
use burn::module::Module;
use burn::tensor::{Device, Tensor};

#[cfg(feature = "flex")]
use crate::flex;

/// Whether [`recompute`] can compute again on this device: it can where operations are [fused](is_fused), and has
/// nothing to do without autodiff.
pub fn can_recompute(device: &Device) -> bool {
    !device.is_autodiff() || is_fused(device)
}

/// `forward(module, x)`, of which only `x` is kept for the backward pass: there it is computed again, with the same
/// dropout and in the same [precision](crate::with_precision), so results and gradients are the same bits. That is
/// gradient checkpointing (Chen et al. 2016, §4), with `x` as the checkpoint; the backward pass of a model whose
/// layers are recomputed one by one needs their inputs, and one layer's activations at a time, for a forward pass
/// more.
///
/// `forward` may use what it captures, but only `x` and the parameters of `module` get gradients. Its random numbers
/// must be those of this crate's operations: others would be other ones in the second computation.
///
/// # Panics
/// On a device with autodiff that [cannot](can_recompute). In the backward pass, if the second computation gives
/// something else than the first.
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
