//! Layer normalisation, optionally with the preceding dropout and residual connection.

use super::dropout::drop_row;
use super::random::{Keep, RowKeep};
use super::vector::{sum, vectorised};
use super::{
    Input, dense, draw_seed, filled, op, output, register, rows, rows_per_task, tensor, values, values_mut,
};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

/// A row's mean and the inverse of its standard deviation.
type Statistics = [f32; 2];

vectorised! {
    /// `sum = residual + keep · x`
    fn add_row(x: &[f32], residual: &[f32], keep: Option<RowKeep>, total: &mut [MaybeUninit<f32>]) {
        let (x, residual) = (&x[..total.len()], &residual[..total.len()]);
        match keep {
            Some(keep) => {
                for (i, total) in total.iter_mut().enumerate() {
                    total.write(residual[i] + x[i] * keep.factor(i));
                }
            }
            None => {
                for (i, total) in total.iter_mut().enumerate() {
                    total.write(residual[i] + x[i]);
                }
            }
        }
    }

    fn norm_row(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32, y: &mut [MaybeUninit<f32>]) -> Statistics {
        let d = x.len();
        let mean = sum([x], |[x]| x) / d as f32;
        let variance = sum([x], |[x]| (x - mean) * (x - mean)) / d as f32;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        let (gamma, beta) = (&gamma[..d], &beta[..d]);
        for (i, y) in y[..d].iter_mut().enumerate() {
            y.write((x[i] - mean) * inverse * gamma[i] + beta[i]);
        }
        [mean, inverse]
    }

    /// Turns the output's gradient into the input's and adds to those of the scale and the shift.
    fn norm_row_backward(
        x: &[f32],
        gamma: &[f32],
        statistics: Statistics,
        gradient: &mut [f32],
        gamma_gradient: &mut [f32],
        beta_gradient: &mut [f32],
    ) {
        let d = x.len();
        let [mean, inverse] = statistics;
        let (gamma, gradient) = (&gamma[..d], &mut gradient[..d]);
        let (gamma_gradient, beta_gradient) = (&mut gamma_gradient[..d], &mut beta_gradient[..d]);
        let a = sum([&*gradient, gamma], |[gradient, gamma]| gradient * gamma) / d as f32;
        let b = sum([&*gradient, gamma, x], |[gradient, gamma, x]| gradient * gamma * ((x - mean) * inverse)) / d as f32;
        for i in 0..d {
            let normed = (x[i] - mean) * inverse;
            gamma_gradient[i] += gradient[i] * normed;
            beta_gradient[i] += gradient[i];
            gradient[i] = inverse * (gradient[i] * gamma[i] - a - normed * b);
        }
    }
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    /// The normalised tensor: `x`, or its sum with the residual.
    input: FlexTensor,
    gamma: FlexTensor,
    statistics: Vec<Statistics>,
    keep: Option<Keep>,
}

impl State {
    /// The gradients of the input, of `x` before any dropout, of the scale and of the shift.
    fn gradients(
        &self,
        mut gradient: FlexTensor,
    ) -> (FlexTensor, Option<FlexTensor>, FlexTensor, FlexTensor) {
        let (input, gamma) = (values(&self.input), values(&self.gamma));
        let shape = gradient.layout().shape().clone();
        let gradients = values_mut(&mut gradient);
        let d = gamma.len();
        let per_task = rows_per_task(d);
        let task = (per_task * d).max(1);
        let mut parts: Vec<Vec<f32>> = Vec::new();
        // SAFETY: the tasks cover the whole, and `drop_row` writes each element of its row.
        let x = unsafe {
            filled(if self.keep.is_some() { input.len() } else { 0 }, |x| {
                let mut chunks = x.chunks_mut(task);
                let before: Vec<_> = self.statistics.chunks(per_task).map(|_| chunks.next()).collect();
                let gradients = gradients.par_chunks_mut(task).zip(input.par_chunks(task));
                let tasks = gradients.zip(self.statistics.par_chunks(per_task)).zip(before).enumerate();
                let sums = tasks.map(|(number, (((gradient, input), statistics), mut before))| {
                    let mut part = vec![0.0; 2 * d];
                    let (gamma_part, beta_part) = part.split_at_mut(d);
                    let rows = gradient.chunks_exact_mut(d).zip(input.chunks_exact(d)).zip(statistics);
                    for (row, ((gradient, input), statistics)) in rows.enumerate() {
                        norm_row_backward(input, gamma, *statistics, gradient, gamma_part, beta_part);
                        if let (Some(keep), Some(before)) = (self.keep, &mut before) {
                            let keep = keep.row(number * per_task + row);
                            drop_row(gradient, keep, &mut before[row * d..][..d]);
                        }
                    }
                    part
                });
                parts = sums.collect();
            })
        };
        let mut total = vec![0.0; 2 * d];
        for part in parts {
            total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
        }
        let beta = total.split_off(d);
        let x = self.keep.map(|_| tensor(x, shape));
        (gradient, x, tensor(total, Shape::new([d])), tensor(beta, Shape::new([d])))
    }
}

#[derive(Debug)]
struct LayerNorm;

impl Backward<Flex, 3> for LayerNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("layer_norm_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let (x, _, gamma, beta) = ops.state.gradients(gradient);
        register(grads, &ops, [x, gamma, beta]);
    }
}

#[derive(Debug)]
struct AddLayerNorm;

impl Backward<Flex, 4> for AddLayerNorm {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("add_layer_norm_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let (residual, x, gamma, beta) = ops.state.gradients(gradient);
        let x = x.unwrap_or_else(|| residual.clone());
        register(grads, &ops, [x, residual, gamma, beta]);
    }
}

/// `residual` comes with the dropout on `x`, if any.
pub(crate) fn layer_norm<const D: usize>(
    x: Tensor<D>,
    residual: Option<(Tensor<D>, f64)>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    op!("layer_norm");
    let keep = residual
        .as_ref()
        .filter(|(_, prob)| *prob > 0.0)
        .map(|(_, prob)| Keep::new(*prob, draw_seed(&x.device())));
    let [gamma, beta] = [gamma, beta].map(Input::dense);
    let x = Input::dense(x);
    let shape = x.value.layout().shape().clone();
    let (n_rows, d) = rows(&x.value);
    let per_task = rows_per_task(d);
    assert_eq!(values(&gamma.value).len(), d, "gamma has another width than x");
    assert_eq!(values(&beta.value).len(), d, "beta has another width than x");
    let mut statistics = vec![[0.0; 2]; n_rows];

    let residual = residual.map(|(residual, _)| Input::dense(residual));
    let (from, scale, shift) = (values(&x.value), values(&gamma.value), values(&beta.value));
    let task = (per_task * d).max(1);
    let norm = |x: &[f32], y: &mut [MaybeUninit<f32>]| norm_row(x, scale, shift, epsilon as f32, y);
    let mut total = None;
    // SAFETY: the tasks cover the whole; `add_row` and `norm_row` write each element of their row, the one before
    // the other reads it.
    let y = unsafe {
        filled(from.len(), |y| {
            let tasks = y.par_chunks_mut(task).zip(from.par_chunks(task));
            let tasks = tasks.zip(statistics.par_chunks_mut(per_task));
            let Some(residual) = &residual else {
                return tasks.for_each(|((y, x), statistics)| {
                    let rows = y.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(statistics);
                    rows.for_each(|((y, x), statistics)| *statistics = norm(x, y));
                });
            };
            assert_eq!(*residual.value.layout().shape(), shape, "the residual has another shape than x");
            let residual = values(&residual.value).par_chunks(task);
            total = Some(filled(from.len(), |total| {
                let tasks = tasks.zip(total.par_chunks_mut(task).zip(residual)).enumerate();
                tasks.for_each(|(number, (((y, x), statistics), (total, residual)))| {
                    let rows = y.chunks_exact_mut(d).zip(x.chunks_exact(d)).zip(statistics);
                    let totals = total.chunks_exact_mut(d).zip(residual.chunks_exact(d));
                    for (row, (((y, x), statistics), (total, residual))) in rows.zip(totals).enumerate() {
                        add_row(x, residual, keep.map(|keep| keep.row(number * per_task + row)), total);
                        *statistics = norm(total.assume_init_ref(), y);
                    }
                });
            }));
        })
    };
    let input = total.map_or_else(|| x.value.clone(), |total| tensor(total, shape.clone()));
    let y = tensor(y, shape);
    let state = || State { input, gamma: gamma.value, statistics, keep };
    match residual {
        Some(residual) => output(AddLayerNorm, [x.node, residual.node, gamma.node, beta.node], y, state),
        None => output(LayerNorm, [x.node, gamma.node, beta.node], y, state),
    }
}
