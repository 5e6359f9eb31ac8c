//! Gated activations, one pass each way.

use super::gelu::{tanh_slope, tanh_value};
use super::vector::{exp, normal, vectorised};
use super::{BLOCK, Input, dense, filled, op, output, register, tensor, values, values_mut};
use crate::Gate;
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// The activation's value and slope.
#[inline(always)]
fn silu(x: f32) -> [f32; 2] {
    // Of the absolute value, whose exponential is small: nothing overflows.
    let e = exp(-x.abs());
    let sigmoid = if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) };
    [x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))]
}

#[inline(always)]
fn gelu(x: f32) -> [f32; 2] {
    let (cdf, density) = normal(x);
    [x * cdf, cdf + x * density]
}

#[inline(always)]
fn gelu_tanh(x: f32) -> [f32; 2] {
    [tanh_value(x), tanh_slope(x)]
}

#[inline(always)]
fn forward(f: impl Fn(f32) -> [f32; 2], gate: &[f32], x: &[f32], y: &mut [MaybeUninit<f32>]) {
    for ((gate, x), y) in gate.iter().zip(x).zip(y) {
        y.write(f(*gate)[0] * x);
    }
}

/// Turns the output's gradient into that of the gate, and writes that of the gated values.
#[inline(always)]
fn backward(
    f: impl Fn(f32) -> [f32; 2],
    gate: &[f32],
    x: &[f32],
    gradient: &mut [f32],
    dx: &mut [MaybeUninit<f32>],
) {
    for (((gate, x), gradient), dx) in gate.iter().zip(x).zip(gradient).zip(dx) {
        let [value, slope] = f(*gate);
        dx.write(*gradient * value);
        *gradient *= slope * x;
    }
}

vectorised! {
    fn silu_forward(gate: &[f32], x: &[f32], y: &mut [MaybeUninit<f32>]) {
        forward(silu, gate, x, y);
    }

    fn silu_backward(gate: &[f32], x: &[f32], gradient: &mut [f32], dx: &mut [MaybeUninit<f32>]) {
        backward(silu, gate, x, gradient, dx);
    }

    fn gelu_forward(gate: &[f32], x: &[f32], y: &mut [MaybeUninit<f32>]) {
        forward(gelu, gate, x, y);
    }

    fn gelu_backward(gate: &[f32], x: &[f32], gradient: &mut [f32], dx: &mut [MaybeUninit<f32>]) {
        backward(gelu, gate, x, gradient, dx);
    }

    fn gelu_tanh_forward(gate: &[f32], x: &[f32], y: &mut [MaybeUninit<f32>]) {
        forward(gelu_tanh, gate, x, y);
    }

    fn gelu_tanh_backward(gate: &[f32], x: &[f32], gradient: &mut [f32], dx: &mut [MaybeUninit<f32>]) {
        backward(gelu_tanh, gate, x, gradient, dx);
    }
}

#[derive(Debug)]
struct Gated(Gate);

impl Backward<Flex, 2> for Gated {
    /// The gate and the gated values.
    type State = [FlexTensor; 2];

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("gated_backward");
        let work = match self.0 {
            Gate::Silu => silu_backward,
            Gate::Gelu => gelu_backward,
            Gate::GeluTanh => gelu_tanh_backward,
        };
        let mut gradient = dense(grads.consume::<Flex>(&ops.node));
        let shape = gradient.layout().shape().clone();
        let [gate, x] = ops.state.each_ref().map(values);
        let gradients = values_mut(&mut gradient);
        // SAFETY: the blocks cover the whole, and `work` writes each element.
        let dx = unsafe {
            filled(x.len(), |dx| {
                let blocks = dx.par_chunks_mut(BLOCK).zip(gradients.par_chunks_mut(BLOCK));
                let blocks = blocks.zip(gate.par_chunks(BLOCK).zip(x.par_chunks(BLOCK)));
                blocks.for_each(|((dx, gradient), (gate, x))| work(gate, x, gradient, dx));
            })
        };
        register(grads, &ops, [gradient, tensor(dx, shape)]);
    }
}

pub(crate) fn gated<const D: usize>(gate: Tensor<D>, x: Tensor<D>, form: Gate) -> Tensor<D> {
    op!("gated");
    let work = match form {
        Gate::Silu => silu_forward,
        Gate::Gelu => gelu_forward,
        Gate::GeluTanh => gelu_tanh_forward,
    };
    let inputs = [gate, x].map(Input::dense);
    let [gate, x] = inputs.each_ref().map(|input| values(&input.value));
    // SAFETY: the blocks cover the whole, and `work` writes each element.
    let y = unsafe {
        filled(x.len(), |y| {
            let blocks = y.par_chunks_mut(BLOCK).zip(gate.par_chunks(BLOCK).zip(x.par_chunks(BLOCK)));
            blocks.for_each(|(y, (gate, x))| work(gate, x, y));
        })
    };
    let y = tensor(y, inputs[0].value.layout().shape().clone());
    let [gate, x] = inputs;
    output(Gated(form), [gate.node, x.node], y, || [gate.value, x.value])
}
