//! GELU in both forms, one pass each way.

use super::vector::{exp, normal, vectorised};
use super::{BLOCK, Input, dense, filled, op, output, tensor, values, values_mut};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

vectorised! {
    fn exact_forward(x: &[f32], y: &mut [MaybeUninit<f32>]) {
        for (x, y) in x.iter().zip(y) {
            y.write(*x * normal(*x).0);
        }
    }

    fn exact_backward(x: &[f32], gradient: &mut [f32]) {
        for (x, gradient) in x.iter().zip(gradient) {
            let (cdf, density) = normal(*x);
            *gradient *= cdf + *x * density;
        }
    }

    fn tanh_forward(x: &[f32], y: &mut [MaybeUninit<f32>]) {
        for (x, y) in x.iter().zip(y) {
            y.write(tanh_value(*x));
        }
    }

    fn tanh_backward(x: &[f32], gradient: &mut [f32]) {
        for (x, gradient) in x.iter().zip(gradient) {
            *gradient *= tanh_slope(*x);
        }
    }
}

/// `√(2/π)`
const ROOT: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

#[inline(always)]
fn tanh_of(x: f32) -> f32 {
    let inner = ROOT * (x + CUBIC * x * x * x);
    // Of the absolute value, whose exponential is small: nothing overflows.
    let e = exp(-2.0 * inner.abs());
    let tanh = (1.0 - e) / (1.0 + e);
    if inner >= 0.0 { tanh } else { -tanh }
}

/// GELU by the hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh_value(x: f32) -> f32 {
    0.5 * x * (1.0 + tanh_of(x))
}

/// Its slope.
#[inline(always)]
pub(super) fn tanh_slope(x: f32) -> f32 {
    let tanh = tanh_of(x);
    let slope = ROOT * (1.0 + 3.0 * CUBIC * x * x);
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * slope
}

#[derive(Debug, Clone, Copy)]
struct Gelu {
    forward: fn(&[f32], &mut [MaybeUninit<f32>]),
    backward: fn(&[f32], &mut [f32]),
}

impl Backward<Flex, 1> for Gelu {
    type State = FlexTensor;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("gelu_backward");
        let mut gradient = dense(grads.consume::<Flex>(&ops.node));
        if let [Some(x)] = ops.parents {
            let blocks = values_mut(&mut gradient).par_chunks_mut(BLOCK);
            blocks.zip(values(&ops.state).par_chunks(BLOCK)).for_each(|(g, x)| (self.backward)(x, g));
            grads.register::<Flex>(x.id, gradient);
        }
    }
}

fn apply<const D: usize>(form: Gelu, x: Tensor<D>) -> Tensor<D> {
    op!("gelu");
    let Input { value: x, node } = Input::dense(x);
    let from = values(&x);
    // SAFETY: the blocks cover the whole, and `forward` writes each element.
    let y = unsafe {
        filled(from.len(), |y| {
            let blocks = y.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
            blocks.for_each(|(y, x)| (form.forward)(x, y));
        })
    };
    let y = tensor(y, x.layout().shape().clone());
    output(form, [node], y, || x)
}

pub(crate) fn exact<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    apply(Gelu { forward: exact_forward, backward: exact_backward }, x)
}

pub(crate) fn tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    apply(Gelu { forward: tanh_forward, backward: tanh_backward }, x)
}
