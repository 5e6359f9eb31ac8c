//! Dropout that redraws its mask in the backward pass.

use super::random::{Keep, RowKeep};
use super::vector::vectorised;
use super::{Input, dense, draw_seed, filled, op, output, rows, rows_per_task, tensor, values};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

vectorised! {
    /// Writes the row with each element multiplied by 0 or `1 / (1 − p)`.
    pub(super) fn drop_row(x: &[f32], keep: RowKeep, y: &mut [MaybeUninit<f32>]) {
        for ((i, y), x) in y.iter_mut().enumerate().zip(x) {
            y.write(x * keep.factor(i));
        }
    }
}

/// Dropout applied to a tensor or its gradient.
fn apply(x: &FlexTensor, keep: Keep) -> FlexTensor {
    let (_, width) = rows(x);
    let per_task = rows_per_task(width);
    let task = (per_task * width).max(1);
    let from = values(x);
    // SAFETY: the tasks cover the whole, and `drop_row` writes each element of its row.
    let y = unsafe {
        filled(from.len(), |y| {
            let tasks = y.par_chunks_mut(task).zip(from.par_chunks(task)).enumerate();
            tasks.for_each(|(number, (y, x))| {
                for (row, (y, x)) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)).enumerate() {
                    drop_row(x, keep.row(number * per_task + row), y);
                }
            });
        })
    };
    tensor(y, x.layout().shape().clone())
}

#[derive(Debug)]
struct Dropout;

impl Backward<Flex, 1> for Dropout {
    type State = Keep;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("dropout_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        if let [Some(x)] = ops.parents {
            grads.register::<Flex>(x.id, apply(&gradient, ops.state));
        }
    }
}

pub(crate) fn dropout<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    op!("dropout");
    let keep = Keep::new(prob, draw_seed(&x.device()));
    let x = Input::dense(x);
    let y = apply(&x.value, keep);
    output(Dropout, [x.node], y, || keep)
}
