use burn::tensor::kind::Basic;
use burn::tensor::{Tensor, TensorData};

/// The numbers of a tensor as they are now.
///
/// [`Tensor::into_data`] of burn 0.22.1 promises them, but on graphics adapters and NVIDIA's GPUs copies them only when
/// they are first looked at (burn-cubecl, `ops/base.rs`, and cubecl-runtime, `client/lazy.rs`). An operation that works in
/// place on the tensor's memory before that, such as an optimiser's step or a product with what is not used again, has
/// changed them. What is kept for later is to be read by this function.
pub fn read<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> TensorData {
    let data = tensor.into_data();
    // The look.
    let _ = data.as_bytes();
    data
}
