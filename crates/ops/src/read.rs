use burn::tensor::kind::Basic;
use burn::tensor::{Tensor, TensorData};

/// The current numbers of a tensor.
///
/// burn 0.22.1's [`Tensor::into_data`] should return them, but on GPUs it copies them only on first access
/// (burn-cubecl, `ops/base.rs`, and cubecl-runtime, `client/lazy.rs`). An in-place operation on the tensor's
/// memory before that, such as an optimiser step, changes them. Use this function for data kept for later.
pub fn read<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> TensorData {
    let data = tensor.into_data();
    // The look.
    let _ = data.as_bytes();
    data
}
