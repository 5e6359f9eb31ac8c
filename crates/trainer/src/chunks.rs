//! Gradients of a loss that compares the rows of a whole batch, computed chunk by chunk.

use crate::engine::gradients;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use std::ops::Range;
use tracing::trace_span;

/// The summed loss of `n` items and its gradients times `factor`, with the graph of at most `chunk` items in memory (Gao et al.
/// 2021, "GradCache"): rows are computed twice, and the second time with the gradient of the loss by them. Dropout is drawn
/// from `seed`, the same both times. None if all items fit into one chunk, where nothing is spared.
///
/// `rows` makes the rows of some items, `[rows, width]`, as many of each item; `loss` may use parameters of the model too.
pub(crate) fn gradients_in_chunks<M: Module>(
    model: &M,
    (n, chunk): (usize, usize),
    rows: impl Fn(Range<usize>) -> Tensor<2>,
    loss: impl FnOnce(Tensor<2>) -> Tensor<1>,
    (factor, seed): (f64, u64),
    device: &Device,
) -> Option<(f64, GradientsParams)> {
    let chunk = chunk.max(1);
    if chunk >= n {
        return None;
    }
    let parts = || (0..n).step_by(chunk).map(|start| start..n.min(start + chunk)).enumerate();
    // Each chunk draws the same dropout in both passes.
    let rows_of = |place: usize, items: Range<usize>| {
        device.seed(derive_seed(seed, &[place as u64]));
        rows(items)
    };
    let forward = trace_span!("forward").entered();
    let found: Vec<Tensor<2>> = parts().map(|(place, items)| rows_of(place, items).inner()).collect();
    let ends: Vec<usize> = found.iter().map(|rows| rows.dims()[0]).collect();
    let all_rows = Tensor::from_inner(Tensor::cat(found, 0)).require_grad();
    let sum = loss(all_rows.clone());
    drop(forward);
    let _backward = trace_span!("backward").entered();
    let value = sum.clone().into_scalar::<f64>();
    let by_rows = (sum * factor).backward();
    let of_rows = all_rows.grad(&by_rows)?;
    // What stands beside the rows has its gradients by now.
    let mut all = Some(GradientsParams::from_grads(by_rows, model));
    let mut from = 0;
    for ((place, items), n_rows) in parts().zip(ends) {
        let of_part = of_rows.clone().narrow(0, from, n_rows);
        from += n_rows;
        // Its gradient by the parameters is the loss's by way of these rows.
        let product = (rows_of(place, items) * Tensor::from_inner(of_part)).sum();
        let more = GradientsParams::from_grads(product.backward(), model);
        all = Some(gradients::add(model, all, more));
    }
    Some((value, all.unwrap_or_default()))
}
