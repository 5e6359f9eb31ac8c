//! Embedding look-up, and scattering of its gradient.

use super::{BLOCK, Input, dense, filled, indices, op, output, rows, tensor, tracked, values, values_mut};
use burn::tensor::{Int, Shape, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::tensor::FloatTensor;
use burn_flex::Flex;
use rayon::prelude::*;
use std::mem::MaybeUninit;

#[derive(Debug)]
struct Embedding;

/// State for the backward pass.
#[derive(Debug, Clone)]
struct State {
    table: FloatTensor<Autodiff<Flex>>,
    ids: Vec<usize>,
}

impl Backward<Flex, 1> for Embedding {
    type State = State;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("embedding_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let State { table, ids } = ops.state;
        let [Some(parent)] = ops.parents else {
            return;
        };
        let (n, d) = rows(table.primitive());
        // A table that is the output layer's matrix too, the largest of a model, has a gradient by now: the
        // rows are added to it, and not all of it to theirs.
        let mut total = match grads.remove(&table) {
            Some(total) => dense(total),
            None => tensor(zeros(n * d), Shape::new([n, d])),
        };
        let sums = values_mut(&mut total);
        // Row by row in the order of the tokens: sums in a fixed order.
        for (id, row) in ids.iter().zip(values(&gradient).chunks_exact(d)) {
            sums[id * d..][..d].iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        grads.register::<Flex>(parent.id, total);
    }
}

/// Zeros, written by all cores: a vocabulary's gradient is tens of megabytes.
fn zeros(n: usize) -> Vec<f32> {
    // SAFETY: the tasks cover the whole.
    unsafe {
        filled(n, |zeros| {
            zeros.par_chunks_mut(BLOCK).for_each(|zeros| zeros.fill(MaybeUninit::new(0.0)));
        })
    }
}

pub(crate) fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    op!("embedding");
    let [batch, len] = ids.dims();
    let ids = indices(ids);
    let tracked = tracked(&weight);
    let weight = Input::dense(weight);
    let (n, d) = rows(&weight.value);
    assert!(ids.iter().all(|id| *id < n), "an index is below {n}");
    let table = values(&weight.value);
    let per_task = (BLOCK / d.max(1)).max(1);
    // SAFETY: the tasks cover the whole, and each row is copied.
    let y = unsafe {
        filled(ids.len() * d, |y| {
            y.par_chunks_mut((per_task * d).max(1)).zip(ids.par_chunks(per_task)).for_each(|(y, ids)| {
                for (y, id) in y.chunks_exact_mut(d).zip(ids) {
                    y.iter_mut().zip(&table[id * d..][..d]).for_each(|(y, x)| {
                        y.write(*x);
                    });
                }
            });
        })
    };
    let y = tensor(y, Shape::new([batch, len, d]));
    output(Embedding, [weight.node], y, || State { table: tracked.expect("a node has a tensor"), ids })
}
