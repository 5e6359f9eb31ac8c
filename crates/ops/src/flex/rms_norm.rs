//! Root mean square normalisation.

use super::vector::{sum, vectorised};
use super::{Input, dense, filled, op, output, register, rows, rows_per_task, tensor, values, values_mut};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

vectorised! {
    /// Returns the inverse root mean square.
    fn norm_row(x: &[f32], gamma: &[f32], epsilon: f32, y: &mut [MaybeUninit<f32>]) -> f32 {
        let d = x.len();
        let mean_square = sum([x], |[x]| x * x) / d as f32;
        let inverse = 1.0 / (mean_square + epsilon).sqrt();
        let gamma = &gamma[..d];
        for (i, y) in y[..d].iter_mut().enumerate() {
            y.write(x[i] * inverse * gamma[i]);
        }
        inverse
    }

    /// Turns the output's gradient into the input's and adds to that of the scale.
    fn norm_row_backward(
        x: &[f32],
        gamma: &[f32],
        inverse: f32,
        gradient: &mut [f32],
        gamma_gradient: &mut [f32],
    ) {
        let d = x.len();
        let (gamma, gradient, gamma_gradient) = (&gamma[..d], &mut gradient[..d], &mut gamma_gradient[..d]);
        let dot = sum([&*gradient, gamma, x], |[gradient, gamma, x]| gradient * gamma * (x * inverse)) / d as f32;
        for i in 0..d {
            let normed = x[i] * inverse;
            gamma_gradient[i] += gradient[i] * normed;
            gradient[i] = inverse * (gradient[i] * gamma[i] - normed * dot);
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    input: FlexTensor,
    gamma: FlexTensor,
    /// The inverse root mean square of each row.
    inverses: Vec<f32>,
}

#[derive(Debug)]
struct RmsNorm;

impl Backward<Flex, 2> for RmsNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("rms_norm_backward");
        let mut gradient = dense(grads.consume::<Flex>(&ops.node));
        let State { input, gamma, inverses } = &ops.state;
        let (input, gamma) = (values(input), values(gamma));
        let d = gamma.len();
        let per_task = rows_per_task(d);
        let task = (per_task * d).max(1);
        let tasks = values_mut(&mut gradient).par_chunks_mut(task).zip(input.par_chunks(task));
        let parts: Vec<Vec<f32>> = tasks
            .zip(inverses.par_chunks(per_task))
            .map(|((gradient, input), inverses)| {
                let mut part = vec![0.0; d];
                let rows = gradient.chunks_exact_mut(d).zip(input.chunks_exact(d)).zip(inverses);
                for ((gradient, input), inverse) in rows {
                    norm_row_backward(input, gamma, *inverse, gradient, &mut part);
                }
                part
            })
            .collect();
        let mut total = vec![0.0; d];
        for part in parts {
            total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
        register(grads, &ops, [gradient, tensor(total, Shape::new([d]))]);
    }
}

pub(crate) fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    op!("rms_norm");
    let (x, gamma) = (Input::dense(x), Input::dense(gamma));
    let (n_rows, d) = rows(&x.value);
    let (from, scale) = (values(&x.value), values(&gamma.value));
    assert_eq!(scale.len(), d, "gamma has another width than x");
    let per_task = rows_per_task(d);
    let task = (per_task * d).max(1);
    let mut inverses = vec![0.0; n_rows];
    // SAFETY: the tasks cover the whole, and `norm_row` writes each element of its row.
    let y = unsafe {
        filled(from.len(), |y| {
            let tasks = y.par_chunks_mut(task).zip(from.par_chunks(task));
            tasks.zip(inverses.par_chunks_mut(per_task)).for_each(|((y, x), inverses)| {
                let rows = y.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(inverses);
                rows.for_each(|((y, x), inverse)| *inverse = norm_row(x, scale, epsilon as f32, y));
            });
        })
    };
    let y = tensor(y, x.value.layout().shape().clone());
    output(RmsNorm, [x.node, gamma.node], y, || State { input: x.value, gamma: gamma.value, inverses })
}
