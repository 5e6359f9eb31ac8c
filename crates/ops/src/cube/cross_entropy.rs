//! Cross-entropy: one pass over the logits forward and one backward, one cube per row, without a probability
//! matrix.
//!
//! Forward, a unit keeps the greatest logit it has met and the sum of exponentials relative to it (Milakov &
//! Gimelshein 2018, algorithm 3), and the units' pairs are merged in a fixed order. The logarithm of the
//! row's sum is kept, from which the backward pass recomputes the probabilities; the gradient reuses the
//! logits' memory if nothing else holds them.
//!
//! An invalid label is not detected, since that would require synchronisation. Its loss is the logarithm of
//! the sum.

use super::reduce::cube_sum;
use super::{Input, Primitive, arg, cubes, dense, dim, empty, floats, integers, output, owned, rows, units};
use crate::CrossEntropy;
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::cubecl::dtype_to_storage_type;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

/// The target for a label: `right` for the label (times its class weight) plus `spread · weight_c` for each
/// class `c`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    right: f32,
    spread: f32,
    /// The sum of the class weights, or the number of classes without them.
    total: f32,
    weighted: bool,
    ignored: Option<i32>,
}

impl Target {
    fn new(options: &CrossEntropy, n_classes: usize) -> Self {
        let smoothing = options.label_smoothing as f32;
        let weights = options.class_weights.as_deref();
        Self {
            right: 1.0 - smoothing,
            spread: smoothing / n_classes as f32,
            total: weights.map_or(n_classes as f32, |weights| weights.iter().sum()),
            weighted: weights.is_some(),
            // A label that no 32-bit number holds is met nowhere.
            ignored: options.ignored_label.and_then(|label| i32::try_from(label).ok()),
        }
    }

    /// Whether there is an ignored label, and which.
    fn ignored(&self) -> (bool, i32) {
        (self.ignored.is_some(), self.ignored.unwrap_or_default())
    }
}

#[cube(launch)]
fn loss_kernel<I: Numeric>(
    logits: &[f32],
    labels: &[I],
    weights: &[f32],
    losses: &mut [f32],
    log_sums: &mut [f32],
    n_rows: usize,
    n_classes: usize,
    right: f32,
    spread: f32,
    total: f32,
    ignored: i32,
    #[comptime] ignores: bool,
    #[comptime] smoothed: bool,
    #[comptime] weighted: bool,
    #[comptime] units: usize,
    #[define(I)] _label_type: ElemType,
) {
    let row = CUBE_POS;
    if row >= n_rows {
        terminate!();
    }
    let mut greatests = Shared::<[f32]>::new_slice(units);
    let mut sums = Shared::<[f32]>::new_slice(units);
    let unit = UNIT_POS as usize;
    let start = row * n_classes;

    // Below any logit that is a number.
    let mut greatest = f32::new(-3.4e38f32);
    let mut sum = 0.0f32;
    let mut logit_sum = 0.0f32;
    let mut class = unit;
    while class < n_classes {
        let x = logits[start + class];
        if x > greatest {
            sum = sum * (greatest - x).exp() + 1.0f32;
            greatest = x;
        } else {
            sum += (x - greatest).exp();
        }
        if comptime!(smoothed) {
            if comptime!(weighted) {
                logit_sum += x * weights[class];
            } else {
                logit_sum += x;
            }
        }
        class += units;
    }
    greatests[unit] = greatest;
    sums[unit] = sum;
    sync_cube();
    let levels = comptime!(units.ilog2() as usize);
    #[unroll]
    for level in 0..levels {
        let half = comptime!(units >> (level + 1));
        if unit < half {
            let a = greatests[unit];
            let b = greatests[unit + half];
            let most = max(a, b);
            let merged = sums[unit] * (a - most).exp() + sums[unit + half] * (b - most).exp();
            greatests[unit] = most;
            sums[unit] = merged;
        }
        sync_cube();
    }
    let log_sum = greatests[0] + sums[0].ln();
    if comptime!(smoothed) {
        sync_cube();
        logit_sum = cube_sum(logit_sum, &mut sums, units);
    }

    if unit == 0 {
        let label = i32::cast_from(labels[row]);
        let mut loss = 0.0f32;
        let mut counts = true;
        if comptime!(ignores) {
            counts = label != ignored;
        }
        if counts {
            let mut own = 0.0f32;
            let mut share = right;
            if label >= 0i32 && label < i32::cast_from(n_classes) {
                let label = usize::cast_from(label);
                own = logits[start + label];
                if comptime!(weighted) {
                    share = right * weights[label];
                }
            }
            loss = share * (log_sum - own);
            if comptime!(smoothed) {
                loss += spread * (total * log_sum - logit_sum);
            }
        }
        losses[row] = loss;
        log_sums[row] = log_sum;
    }
}

/// Logits to `gradient · (weight · softmax − spread · share − right of the label)`.
#[cube(launch)]
fn gradient_kernel<I: Numeric>(
    logits: &mut [f32],
    labels: &[I],
    weights: &[f32],
    log_sums: &[f32],
    gradients: &[f32],
    n_rows: usize,
    n_classes: usize,
    right: f32,
    spread: f32,
    total: f32,
    ignored: i32,
    #[comptime] ignores: bool,
    #[comptime] weighted: bool,
    #[comptime] units: usize,
    #[define(I)] _label_type: ElemType,
) {
    let row = CUBE_POS;
    if row >= n_rows {
        terminate!();
    }
    let start = row * n_classes;
    let label = i32::cast_from(labels[row]);
    let log_sum = log_sums[row];
    let gradient = gradients[row];
    let mut counts = true;
    if comptime!(ignores) {
        counts = label != ignored;
    }
    let mut own = right;
    if comptime!(weighted) {
        if label >= 0i32 && label < i32::cast_from(n_classes) {
            own = right * weights[usize::cast_from(label)];
        }
    }
    let weight = own + spread * total;
    let mut class = UNIT_POS as usize;
    while class < n_classes {
        let mut value = 0.0f32;
        if counts {
            let mut target = spread;
            if comptime!(weighted) {
                target = spread * weights[class];
            }
            if i32::cast_from(class) == label {
                target += own;
            }
            value = gradient * (weight * (logits[start + class] - log_sum).exp() - target);
        }
        logits[start + class] = value;
        class += units;
    }
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Losses: Backend {
    /// Each row's loss and the logarithm of its sum of exponentials. Without class weights, any tensor may be
    /// passed for them.
    #[fusion(meta = |logits, _labels, _weights, _target| {
        (floats([logits.shape[0]]), floats([logits.shape[0]]))
    })]
    fn losses(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        weights: FloatTensor<Self>,
        target: Target,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The logits' gradient.
    #[fusion(dtype = logits, shape = logits)]
    fn losses_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        weights: FloatTensor<Self>,
        log_sums: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        target: Target,
    ) -> FloatTensor<Self>;
}

impl Losses for CubeBackend {
    fn losses(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        weights: FloatTensor<Self>,
        target: Target,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let [logits, labels] = [logits, labels].map(dense);
        let weights = if target.weighted { dense(weights) } else { empty(&logits, [1], DType::F32) };
        let (n_rows, n_classes) = rows(&logits);
        let units = units(&logits.client, n_classes);
        let [losses, log_sums] = [(); 2].map(|()| empty(&logits, [n_rows], DType::F32));
        let (ignores, ignored) = target.ignored();
        loss_kernel::launch(
            &logits.client,
            cubes(&logits.client, n_rows),
            dim(units),
            arg(&logits),
            arg(&labels),
            arg(&weights),
            arg(&losses),
            arg(&log_sums),
            n_rows,
            n_classes,
            target.right,
            target.spread,
            target.total,
            ignored,
            ignores,
            target.spread > 0.0,
            target.weighted,
            units,
            dtype_to_storage_type(labels.dtype),
        );
        (losses, log_sums)
    }

    fn losses_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        weights: FloatTensor<Self>,
        log_sums: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        target: Target,
    ) -> FloatTensor<Self> {
        let logits = owned(logits);
        let labels = dense(labels);
        let [log_sums, gradient] = [log_sums, gradient].map(dense);
        let weights = if target.weighted { dense(weights) } else { empty(&logits, [1], DType::F32) };
        let (n_rows, n_classes) = rows(&logits);
        let units = units(&logits.client, n_classes);
        let (ignores, ignored) = target.ignored();
        gradient_kernel::launch(
            &logits.client,
            cubes(&logits.client, n_rows),
            dim(units),
            arg(&logits),
            arg(&labels),
            arg(&weights),
            arg(&log_sums),
            arg(&gradient),
            n_rows,
            n_classes,
            target.right,
            target.spread,
            target.total,
            ignored,
            ignores,
            target.weighted,
            units,
            dtype_to_storage_type(labels.dtype),
        );
        logits
    }
}

#[derive(Debug, Clone)]
struct State {
    logits: Primitive,
    labels: IntTensor<Cube>,
    weights: Option<Primitive>,
    log_sums: Primitive,
    target: Target,
}

#[derive(Debug)]
struct Loss;

impl Backward<Cube, 1> for Loss {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let State { logits, labels, weights, log_sums, target } = ops.state;
        if let [Some(parent)] = ops.parents {
            // Not the logits, which shall be held once.
            let weights = weights.unwrap_or_else(|| log_sums.clone());
            let gradient = Cube::losses_backward(logits, labels, weights, log_sums, gradient, target);
            grads.register::<Cube>(parent.id, gradient);
        }
    }
}

pub(crate) fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>, options: &CrossEntropy) -> Tensor<1> {
    let [n, n_classes] = logits.dims();
    assert_eq!(labels.dims(), [n], "one label for each row of logits");
    let target = Target::new(options, n_classes);
    let weights = options.class_weights.as_ref().map(|weights| {
        let weights = TensorData::new(weights.to_vec(), [n_classes]);
        Tensor::<1>::from_data(weights, &logits.device().inner())
    });
    let Input { value: logits, node } = Input::new(logits);
    let labels = integers(labels);
    let weights = weights.map(|weights| Input::new(weights).value);
    let any_weights = weights.clone().unwrap_or_else(|| logits.clone());
    let (losses, log_sums) = Cube::losses(logits.clone(), labels.clone(), any_weights, target);
    output(Loss, [node], losses, || State { logits, labels, weights, log_sums, target })
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::CrossEntropy;
    use crate::cube::agreement::{assert_agree, leaf};
    use burn::tensor::{Int, Tensor, Tolerance};
    use std::sync::Arc;

    #[test]
    fn all_options_forward_and_backward() {
        for (n, n_classes) in [(1, 1), (3, 2), (7, 33), (5, 256), (4, 1_030)] {
            let labels: Vec<i32> =
                (0..n).map(|i| if i % 3 == 2 { -100 } else { (i * 7 % n_classes) as i32 }).collect();
            let class_weights: Arc<[f32]> = (0..n_classes).map(|c| 0.5 + (c % 5) as f32 * 0.3).collect();
            for (label_smoothing, weighted) in [(0.0, false), (0.1, false), (0.0, true), (0.1, true)] {
                let class_weights = weighted.then(|| class_weights.clone());
                let loss = CrossEntropy { label_smoothing, ignored_label: Some(-100), class_weights };
                assert_agree(Tolerance::rel_abs(1e-4, 2e-5), |device| {
                    let logits = leaf(n * n_classes, 0.4, 0.0, device);
                    let labels = Tensor::<1, Int>::from_data(labels.as_slice(), device);
                    let scaled = logits.clone().reshape([n, n_classes]).mul_scalar(4.0);
                    let y = loss.forward(scaled, labels);
                    let weights: Vec<f32> = (0..n).map(|i| 1.0 + i as f32).collect();
                    let weights = Tensor::<1>::from_data(weights.as_slice(), device);
                    let grads = (y.clone() * weights).sum().backward();
                    vec![y.into_data(), logits.grad(&grads).unwrap().into_data()]
                });
            }
        }
    }

    #[test]
    fn without_an_ignored_label_and_with_logits_that_are_held_elsewhere() {
        let (n, n_classes) = (7, 33);
        let labels: Vec<i32> = (0..n).map(|i| (i * 7 % n_classes) as i32).collect();
        assert_agree(Tolerance::rel_abs(1e-4, 2e-5), |device| {
            let logits =
                leaf(n * n_classes, 0.4, 0.0, device).reshape([n, n_classes]).detach().require_grad();
            let labels = Tensor::<1, Int>::from_data(labels.as_slice(), device);
            let y = crate::cross_entropy(logits.clone(), labels);
            let grads = y.clone().sum().backward();
            vec![y.into_data(), logits.grad(&grads).unwrap().into_data(), logits.into_data()]
        });
    }

    #[test]
    fn great_logits_do_not_overflow() {
        assert_agree(Tolerance::rel_abs(1e-4, 1e-4), |device| {
            let logits = Tensor::<2>::from_data([[900.0f32, -900.0, 0.0], [-1e4, -1e4, -1e4]], device);
            let logits = logits.require_grad();
            let labels = Tensor::<1, Int>::from_data([2i32, 0], device);
            let y = crate::cross_entropy(logits.clone(), labels);
            let grads = y.clone().sum().backward();
            vec![y.into_data(), logits.grad(&grads).unwrap().into_data()]
        });
    }
}
