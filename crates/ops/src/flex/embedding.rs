//! Looking vectors up, and scattering their gradient.

use super::{BLOCK, Input, dense, filled, indices, op, output, rows, tensor, values};
use burn::tensor::{Int, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::Flex;
use rayon::prelude::*;

#[derive(Debug)]
struct Embedding;

impl Backward<Flex, 1> for Embedding {
    /// The table's shape, and the indices.
    type State = ([usize; 2], Vec<usize>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("embedding_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let ([n, d], ids) = ops.state;
        let [Some(weight)] = ops.parents else {
            return;
        };
        // Row by row in the order of the tokens: sums in a fixed order.
        let mut total = vec![0.0; n * d];
        for (id, row) in ids.iter().zip(values(&gradient).chunks_exact(d)) {
            total[id * d..][..d].iter_mut().zip(row).for_each(|(total, x)| *total += x);
        }
        grads.register::<Flex>(weight.id, tensor(total, Shape::new([n, d])));
    }
}

pub(crate) fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    op!("embedding");
    let [batch, len] = ids.dims();
    let ids = indices(ids);
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
    output(Embedding, [weight.node], y, || ([n, d], ids))
}
