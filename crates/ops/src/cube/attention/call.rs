//! A call of the kernels: its sizes, its tensors, and how these become arguments.

use super::plan::{ITEM, Plan};
use super::tile::{SizesLaunch, StridesLaunch};
use crate::cube::random::{scale, threshold};
use crate::cube::{arg, empty};
use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use burn_std::Metadata;
use cubecl::client::Client;
use cubecl::prelude::*;
use std::sync::Arc;

/// What a call is besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(super) plan: Arc<Plan>,
    /// What scores are multiplied by.
    pub(super) scale: f32,
    pub(super) dropout_prob: f64,
}

impl Call {
    /// A plan's items on the device, and how many.
    pub(super) fn items(&self, client: &Client, items: &[i32]) -> (BufferArg, usize) {
        let handle = client.create_from_slice(i32::as_bytes(items));
        // SAFETY: the buffer was made of this many numbers.
        (unsafe { BufferArg::from_raw_parts(handle, items.len()) }, items.len() / ITEM)
    }

    pub(super) fn sizes(&self, query: &CubeTensor, key: &CubeTensor) -> SizesLaunch {
        let ([_, n_heads, q_len, _], [_, n_shared, k_len, _]) = (dims(query), dims(key));
        let [n_heads, group, q_len, k_len] = [n_heads, n_heads / n_shared, q_len, k_len].map(number);
        let (threshold, kept) = (threshold(self.dropout_prob), scale(self.dropout_prob));
        SizesLaunch::new(n_heads, group, q_len, k_len, self.scale, threshold, kept)
    }
}

/// The tensors of a call, as kernels read them.
pub(super) struct Inputs {
    pub(super) query: CubeTensor,
    pub(super) key: CubeTensor,
    pub(super) value: CubeTensor,
    pub(super) hidden: Option<CubeTensor>,
    pub(super) seed: Option<CubeTensor>,
}

/// A tensor beside another one, for a kernel to write: `[batch, n_heads, len, d]` on memory of the order
/// `[batch, len, n_heads, d]`, which the linear maps on both sides have.
pub(super) fn heads_inside(beside: &CubeTensor, shape: [usize; 4]) -> CubeTensor {
    let [batch, n_heads, len, d] = shape;
    let x = empty(beside, [batch, len, n_heads, d], DType::F32);
    let strides = [len * n_heads * d, d, n_heads * d, 1];
    CubeTensor::new(x.client, x.handle, Metadata::new(shape, strides), x.device, x.dtype)
}

pub(super) fn dims(x: &CubeTensor) -> [usize; 4] {
    x.shape().dims()
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 of anything")
}

pub(super) fn in_fours(n: usize) -> u32 {
    number(n / 4)
}

/// A tensor as a kernel's argument of four numbers each.
pub(super) fn fours(x: &CubeTensor) -> BufferArg {
    let bytes = usize::try_from(x.handle.size()).expect("a size of memory");
    // SAFETY: as many as there is memory.
    unsafe { BufferArg::from_raw_parts(x.handle.clone(), bytes / 16) }
}

pub(super) fn strides(x: &CubeTensor) -> StridesLaunch {
    let strides = x.meta.strides();
    let [row, head, token] = [0, 1, 2].map(|axis| in_fours(strides[axis]));
    StridesLaunch::new(row, head, token)
}

pub(super) fn optional<C: CubePrimitive>(x: &Option<CubeTensor>) -> ComptimeOptionArgs<Box<[C]>> {
    x.as_ref().map(arg).into()
}

/// As what the padding is stored; anything where there is none.
pub(super) fn hidden_type(hidden: &Option<CubeTensor>) -> ElemType {
    dtype_to_storage_type(hidden.as_ref().map_or(DType::U32, |hidden| hidden.dtype))
}
