//! Weight normalisation.

use super::vector::vectorised;
use super::{Input, dense, filled, op, output, register, rows, rows_per_task, tensor, values, values_mut};
use crate::weight_norm::LEAST;
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

vectorised! {
    /// Adds the products of two matrices' elements to the sums of their columns.
    fn add_products(a: &[f32], b: &[f32], sums: &mut [f32]) {
        let width = sums.len().max(1);
        for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
            for ((a, b), sum) in a.iter().zip(b).zip(&mut *sums) {
                *sum += a * b;
            }
        }
    }

    fn scale_rows(v: &[f32], scales: &[f32], w: &mut [MaybeUninit<f32>]) {
        let width = scales.len().max(1);
        for (v, w) in v.chunks_exact(width).zip(w.chunks_exact_mut(width)) {
            for ((v, scale), w) in v.iter().zip(scales).zip(w) {
                w.write(v * scale);
            }
        }
    }

    /// Turns the weight's gradient into the direction's: `scale · (gradient − v · along)`.
    fn direction_rows(v: &[f32], scales: &[f32], along: &[f32], gradient: &mut [f32]) {
        let width = scales.len().max(1);
        for (v, gradient) in v.chunks_exact(width).zip(gradient.chunks_exact_mut(width)) {
            for (((v, scale), along), gradient) in v.iter().zip(scales).zip(along).zip(gradient) {
                *gradient = scale * (*gradient - v * along);
            }
        }
    }
}

/// The sums of the columns of two matrices' product by elements.
fn column_products(a: &[f32], b: &[f32], width: usize) -> Vec<f32> {
    let task = (rows_per_task(width) * width).max(1);
    let parts: Vec<Vec<f32>> = a
        .par_chunks(task)
        .zip(b.par_chunks(task))
        .map(|(a, b)| {
            let mut part = vec![0.0; width];
            add_products(a, b, &mut part);
            part
        })
        .collect();
    let mut sums = vec![0.0; width];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    v: FlexTensor,
    /// `g / ‖v‖` of each column.
    scales: Vec<f32>,
    /// `1 / ‖v‖`
    inverses: Vec<f32>,
}

#[derive(Debug)]
struct WeightNorm;

impl Backward<Flex, 2> for WeightNorm {
    type State = State;

    /// `dg = (dw · v) / ‖v‖` and `dv = g / ‖v‖ · (dw − v · (dw · v) / ‖v‖²)`, column by column.
    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("weight_norm_backward");
        let mut gradient = dense(grads.consume::<Flex>(&ops.node));
        let State { v, scales, inverses } = &ops.state;
        let (v, width) = (values(v), scales.len());
        let dots = column_products(values(&gradient), v, width);
        let along: Vec<f32> =
            dots.iter().zip(inverses).map(|(dot, inverse)| dot * inverse * inverse).collect();
        let lengths: Vec<f32> = dots.iter().zip(inverses).map(|(dot, inverse)| dot * inverse).collect();
        let task = (rows_per_task(width) * width).max(1);
        let tasks = values_mut(&mut gradient).par_chunks_mut(task).zip(v.par_chunks(task));
        tasks.for_each(|(gradient, v)| direction_rows(v, scales, &along, gradient));
        register(grads, &ops, [gradient, tensor(lengths, Shape::new([width]))]);
    }
}

pub(crate) fn weight_norm(v: Tensor<2>, g: Tensor<1>) -> Tensor<2> {
    op!("weight_norm");
    let (v, g) = (Input::dense(v), Input::dense(g));
    let (n_rows, width) = rows(&v.value);
    let from = values(&v.value);
    let squares = column_products(from, from, width);
    let inverses: Vec<f32> = squares.iter().map(|square| 1.0 / (square + LEAST as f32).sqrt()).collect();
    let scales: Vec<f32> = values(&g.value).iter().zip(&inverses).map(|(g, inverse)| g * inverse).collect();
    let task = (rows_per_task(width) * width).max(1);
    // SAFETY: the tasks cover the whole, and `scale_rows` writes each element.
    let w = unsafe {
        filled(from.len(), |w| {
            let tasks = w.par_chunks_mut(task).zip(from.par_chunks(task));
            tasks.for_each(|(w, v)| scale_rows(v, &scales, w));
        })
    };
    let w = tensor(w, Shape::new([n_rows, width]));
    output(WeightNorm, [v.node, g.node], w, || State { v: v.value, scales, inverses })
}
