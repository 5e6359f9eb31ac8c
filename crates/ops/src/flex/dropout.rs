//! Dropout whose mask is drawn again in the backward pass.

use super::random::Keep;
use super::vector::vectorised;
use super::{Input, dense, draw_seed, op, output, rows, rows_per_task, tensor, values, values_mut};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::Flex;
use rayon::prelude::*;

vectorised! {
    fn scale_rows(x: &mut [f32], width: usize, keep: Keep, first_row: usize) {
        for (row, x) in x.chunks_exact_mut(width).enumerate() {
            let keep = keep.row(first_row + row);
            for (column, x) in x.iter_mut().enumerate() {
                *x *= keep.factor(column);
            }
        }
    }
}

/// Multiplies every element with 0 or `1 / (1 − p)`.
fn apply(x: &mut [f32], width: usize, keep: Keep) {
    let rows = rows_per_task(width);
    x.par_chunks_mut((rows * width).max(1)).enumerate().for_each(|(task, x)| {
        scale_rows(x, width, keep, task * rows);
    });
}

#[derive(Debug)]
struct Dropout;

impl Backward<Flex, 1> for Dropout {
    type State = (Keep, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("dropout_backward");
        let mut gradient = dense(grads.consume::<Flex>(&ops.node));
        let (keep, width) = ops.state;
        if let [Some(x)] = ops.parents {
            apply(values_mut(&mut gradient), width, keep);
            grads.register::<Flex>(x.id, gradient);
        }
    }
}

pub(crate) fn dropout<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    op!("dropout");
    let keep = Keep::new(prob, draw_seed(&x.device()));
    let x = Input::dense(x);
    let (_, width) = rows(&x.value);
    let mut y = values(&x.value).to_vec();
    apply(&mut y, width, keep);
    let y = tensor(y, x.value.layout().shape().clone());
    output(Dropout, [x.node], y, || (keep, width))
}
