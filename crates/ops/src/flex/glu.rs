//! The gated linear unit, one pass each way.

use super::vector::{sigmoid, vectorised};
use super::{Input, dense, filled, op, output, register, rows, rows_per_task, tensor, values};
use burn::tensor::{Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::mem::MaybeUninit;

vectorised! {
    fn forward(x: &[f32], d: usize, y: &mut [MaybeUninit<f32>]) {
        for (x, y) in x.chunks_exact(2 * d).zip(y.chunks_exact_mut(d)) {
            let (a, b) = x.split_at(d);
            for ((a, b), y) in a.iter().zip(b).zip(y) {
                y.write(a * sigmoid(*b));
            }
        }
    }

    fn backward(x: &[f32], d: usize, gradient: &[f32], dx: &mut [MaybeUninit<f32>]) {
        let rows = x.chunks_exact(2 * d).zip(gradient.chunks_exact(d)).zip(dx.chunks_exact_mut(2 * d));
        for ((x, gradient), dx) in rows {
            let ((a, b), (da, db)) = (x.split_at(d), dx.split_at_mut(d));
            for ((((a, b), gradient), da), db) in a.iter().zip(b).zip(gradient).zip(da).zip(db) {
                let gate = sigmoid(*b);
                da.write(gradient * gate);
                db.write(gradient * a * gate * (1.0 - gate));
            }
        }
    }
}

#[derive(Debug)]
struct Glu;

impl Backward<Flex, 1> for Glu {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("glu_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let (_, width) = rows(&ops.state);
        let (x, gradient, d) = (values(&ops.state), values(&gradient), width / 2);
        let per_task = rows_per_task(width);
        // SAFETY: the tasks cover the whole, and `backward` writes each element.
        let dx = unsafe {
            filled(x.len(), |dx| {
                let task = (per_task * width).max(1);
                let tasks = dx.par_chunks_mut(task).zip(x.par_chunks(task));
                let tasks = tasks.zip(gradient.par_chunks((per_task * d).max(1)));
                tasks.for_each(|((dx, x), gradient)| backward(x, d, gradient, dx));
            })
        };
        let shape = ops.state.layout().shape().clone();
        register(grads, &ops, [tensor(dx, shape)]);
    }
}

pub(crate) fn glu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    op!("glu");
    let mut shape = x.dims();
    let x = Input::dense(x);
    let (n_rows, width) = rows(&x.value);
    let (from, d) = (values(&x.value), width / 2);
    let per_task = rows_per_task(width);
    // SAFETY: the tasks cover the whole, and `forward` writes each element.
    let y = unsafe {
        filled(n_rows * d, |y| {
            let tasks = y.par_chunks_mut((per_task * d).max(1));
            let tasks = tasks.zip(from.par_chunks((per_task * width).max(1)));
            tasks.for_each(|(y, x)| forward(x, d, y));
        })
    };
    shape[D - 1] = d;
    let y = tensor(y, Shape::from(shape.to_vec()));
    output(Glu, [x.node], y, || x.value)
}
