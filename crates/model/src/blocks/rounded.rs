//! Linear maps whose inputs are rounded as a quantised model rounds them, while it is trained for that.

use crate::ops::scoped;
use burn::module::ParamId;
use burn::tensor::Tensor;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

thread_local! {
    static MAPS: RefCell<Option<Rc<HashSet<ParamId>>>> = const { RefCell::new(None) };
}

/// Runs `run`; meanwhile on this thread every [`Linear`](super::Linear) whose weight is among `maps` rounds each token to 256
/// steps between its least and its greatest number, both on their side of 0, as 8-bit inference does. The gradient passes
/// straight through the rounding (Bengio et al. 2013, "Estimating or Propagating Gradients Through Stochastic Neurons").
pub fn with_rounded_inputs<R>(maps: Rc<HashSet<ParamId>>, run: impl FnOnce() -> R) -> R {
    scoped(&MAPS, Some(maps), run).0
}

/// Whether the inputs of the map with this weight are rounded on this thread.
pub(super) fn is_rounded(weight: ParamId) -> bool {
    MAPS.with_borrow(|maps| maps.as_ref().is_some_and(|maps| maps.contains(&weight)))
}

/// A map's input, rounded if the map's inputs are.
pub(super) fn rounded<const D: usize>(weight: ParamId, x: Tensor<D>) -> Tensor<D> {
    if !is_rounded(weight) {
        return x;
    }
    let exact = x.clone().detach();
    let least = exact.clone().min_dim(D - 1).clamp_max(0.0);
    let most = exact.clone().max_dim(D - 1).clamp_min(0.0);
    // A token of zeros has no range.
    let scale = ((most - least.clone()) / 255.0).clamp_min(f32::MIN_POSITIVE);
    let zero = (least.neg() / scale.clone()).round();
    let steps = (exact.clone() / scale.clone()).round() + zero.clone();
    let rounded = (steps.clamp(0.0, 255.0) - zero) * scale;
    x + (rounded - exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::blocks::Linear;
    use burn::tensor::Device;

    /// The product is that of the integers that inference has, and its gradient that of the exact product.
    #[test]
    fn inputs_are_rounded_and_gradients_are_not() {
        let device = Device::flex().autodiff();
        let init = &mut ParamInit::new(&device, 1);
        let (map, other) = (Linear::without_bias(3, 2, init), Linear::without_bias(3, 2, init));
        let x = [[0.37_f32, -0.2, 1.1], [0.0, 0.0, 0.0], [2.0, 0.71, 0.3]];
        let input = Tensor::<2>::from_data(x, &device).require_grad();
        let maps = Rc::new(HashSet::from([map.weight.id]));
        let (found, exact) =
            with_rounded_inputs(maps, || (map.forward(input.clone()), other.forward(input.clone())));
        let rounded = x.map(|row| {
            let range = crate::ops::TokenRange::of(
                row.iter().copied().fold(f32::INFINITY, f32::min),
                row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            );
            row.map(|x| match range.scale {
                0.0 => 0.0,
                scale => {
                    ((x / scale).round() + f32::from(range.zero)).clamp(0.0, 255.0) * scale
                        - f32::from(range.zero) * scale
                }
            })
        });
        let expected = map.forward(Tensor::from_data(rounded, &device));
        let far = (found.clone() - expected).abs().max().into_scalar::<f32>();
        assert!(far < 1e-6, "{far}");
        let changed = (found.clone() - map.forward(input.clone())).abs().max().into_scalar::<f32>();
        assert!(changed > 1e-5, "{changed}");
        assert_eq!(exact.into_data(), other.forward(input.clone()).into_data());
        let straight = input.grad(&found.sum().backward()).unwrap().into_data();
        let plain = input.grad(&map.forward(input.clone()).sum().backward()).unwrap().into_data();
        assert_eq!(straight, plain);
    }
}
