//! Scaled dot-product attention without a matrix of scores in memory, forward and backward (Dao 2023, "FlashAttention-2").
//!
//! A [`Plan`](plan::Plan) says which blocks of queries and keys there are, and which of them see anything of each other:
//! padded and packed sequences, left to right or within windows, are the same kernels by other plans. No padding of packed
//! sequences is computed. Padding within a row is met and hidden, for its mask is on the device.
//!
//! Products are FP32, on a graphics processor's ordinary units. Where it has tensor cores, the products of tiles could be
//! made by them (`cmma` of CubeCL, with operands in bf16 or TF32): some ten times the arithmetic, of which a kernel whose
//! tiles come through shared memory gets a part. Only [`products`](tile::products) and
//! [`add_weighted`](tile::add_weighted) would change.

mod backward;
mod call;
mod forward;
pub(crate) mod plan;
#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests;
mod tile;

use super::random::draw_seed;
use super::{Input, dense, floats, output, register};
use crate::AttentionMask;
use crate::heads::assert_groups;
use burn::backend::fusion::custom::TensorSpec;
use burn::backend::{Backend, Cube, ExtensionType, backend_extension};
use burn::tensor::{Bool, Device, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use burn_dispatch::DispatchDevice;
use call::{Call, Inputs};
use plan::Plan;
use std::sync::Arc;
use tile::SIDE;

/// Features of a head, at most, for a unit's sums to be in its registers.
const WIDEST: usize = 256;

/// The same of packed sequences: sums in slower memory are better than scores between all tokens.
const WIDEST_PACKED: usize = 1024;

/// Buffers that a kernel has, at most.
const BUFFERS: u32 = 10;

/// Bytes of shared memory that a kernel takes.
const SHARED: usize = 15 << 10;

/// Whether a device runs these kernels: WebGPU in a browser may have too few buffers for them.
fn runs(device: &Device) -> bool {
    let device = device.clone().inner();
    let DispatchDevice::Cube(device) = device.as_dispatch() else { return false };
    let client = device.client();
    let hardware = &client.properties().hardware;
    hardware.max_bindings >= BUFFERS
        && hardware.max_shared_memory_size >= SHARED
        && hardware.max_units_per_cube >= SIDE * SIDE
}

/// Whether attention of such tensors works on packed sequences one by one.
pub(crate) fn takes_packed<const D: usize>(x: &Tensor<D>) -> bool {
    super::takes(x) && runs(&x.device())
}

/// Whether the kernels take these tensors and this mask.
pub(crate) fn takes(query: &Tensor<4>, key: &Tensor<4>, value: &Tensor<4>, mask: &AttentionMask) -> bool {
    let widest = if mask.packing.is_some() { WIDEST_PACKED } else { WIDEST };
    let width = query.dims()[3].max(value.dims()[3]);
    mask.is_fused()
        && [query, key, value].into_iter().all(super::takes)
        && width <= widest
        && runs(&query.device())
}

/// What not every call has.
#[derive(Debug, Clone, ExtensionType)]
#[extension_type(fusion)]
pub(crate) enum Extras<B: Backend> {
    Nothing,
    /// The padding, `[batch, k_len]`.
    Hidden(BoolTensor<B>),
    /// Of dropout.
    Seed(FloatTensor<B>),
    Both(BoolTensor<B>, FloatTensor<B>),
}

/// What the forward pass was given and gave.
#[derive(Debug, Clone, ExtensionType)]
#[extension_type(fusion)]
pub(crate) struct Done<B: Backend> {
    pub query: FloatTensor<B>,
    pub key: FloatTensor<B>,
    pub value: FloatTensor<B>,
    #[extension_type]
    pub extras: Extras<B>,
    pub output: FloatTensor<B>,
    pub softmax: FloatTensor<B>,
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Attends: Backend {
    /// The output, and two numbers of each query's softmax.
    #[fusion(meta = |query, _, value, _, _| outputs(query, value))]
    fn attend(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] extras: Extras<Self>,
        call: Call,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// The gradients of query, key and value.
    #[fusion(meta = |done, _, _| (done.query.clone(), done.key.clone(), done.value.clone()))]
    fn attend_backward(
        #[extension_type] done: Done<Self>,
        gradient: FloatTensor<Self>,
        call: Call,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

fn outputs(query: &TensorSpec, value: &TensorSpec) -> (TensorSpec, TensorSpec) {
    let [batch, n_heads, q_len, _] = query.shape.dims();
    let [_, _, _, d_v] = value.shape.dims();
    (floats([batch, n_heads, q_len, d_v]), floats([batch, n_heads, q_len, 2]))
}

impl Attends for CubeBackend {
    fn attend(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        extras: Extras<Self>,
        call: Call,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        forward::forward(&Inputs::new([query, key, value], extras), &call)
    }

    fn attend_backward(
        done: Done<Self>,
        gradient: FloatTensor<Self>,
        call: Call,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let Done { query, key, value, extras, output, softmax } = done;
        let inputs = Inputs::new([query, key, value], extras);
        let [query, key, value] =
            backward::backward(&inputs, &output, &softmax, &vectorised(gradient), &call);
        (query, key, value)
    }
}

impl Inputs {
    fn new(tensors: [CubeTensor; 3], extras: Extras<CubeBackend>) -> Self {
        let (hidden, seed) = match extras {
            Extras::Nothing => (None, None),
            Extras::Hidden(hidden) => (Some(hidden), None),
            Extras::Seed(seed) => (None, Some(seed)),
            Extras::Both(hidden, seed) => (Some(hidden), Some(seed)),
        };
        let [query, key, value] = tensors.map(vectorised);
        Self { query, key, value, hidden: hidden.map(dense), seed: seed.map(dense) }
    }
}

/// A tensor whose features lie side by side and begin at multiples of four; copied only where they do not.
fn vectorised(x: CubeTensor) -> CubeTensor {
    let (shape, strides) = (x.meta.shape(), x.meta.strides());
    let [outer @ .., width] = [0, 1, 2, 3];
    let is_vectorised =
        strides[width] == 1 && outer.iter().all(|axis| shape[*axis] == 1 || strides[*axis] % 4 == 0);
    if is_vectorised { x } else { dense(x) }
}

#[derive(Debug, Clone)]
struct State {
    done: Done<Cube>,
    call: Call,
}

#[derive(Debug)]
struct Attention;

impl Backward<Cube, 3> for Attention {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let State { done, call } = ops.state.clone();
        let (query, key, value) = Cube::attend_backward(done, gradient, call);
        register(grads, &ops, [query, key, value]);
    }
}

/// The padding without its place on an autodiff device.
fn hidden(pad_mask: &Tensor<2, Bool>) -> BoolTensor<Cube> {
    const TAKEN: &str = "the mask is on the device of the queries";
    match pad_mask.device().is_autodiff() {
        true => pad_mask.clone().try_into_primitive::<Autodiff<Cube>>().expect(TAKEN),
        false => pad_mask.clone().try_into_primitive::<Cube>().expect(TAKEN),
    }
}

/// The tensor with zeros for features, as many as make its width a multiple of four: no score, and no other feature of
/// the output, changes with them.
fn widened(x: Tensor<4>) -> Tensor<4> {
    let [batch, n_heads, len, d] = x.dims();
    let missing = d.next_multiple_of(4) - d;
    if missing == 0 {
        return x;
    }
    let zeros = Tensor::zeros([batch, n_heads, len, missing], (&x.device(), x.dtype()));
    Tensor::cat(vec![x, zeros], 3)
}

pub(crate) fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    mask: &AttentionMask,
    dropout_prob: f64,
) -> Tensor<4> {
    let [batch, n_heads, q_len, d_k] = query.dims();
    let [_, n_kv_heads, k_len, d_v] = value.dims();
    assert_eq!(key.dims(), [batch, n_kv_heads, k_len, d_k], "the keys do not fit queries and values");
    assert_eq!(value.dims()[0], batch, "the values do not fit the queries");
    assert_groups(n_heads, n_kv_heads);
    let call = Call {
        plan: Arc::new(Plan::new(mask, [batch, q_len, k_len])),
        scale: 1.0 / (d_k as f32).sqrt(),
        dropout_prob,
    };
    let hidden = mask.pad_mask.as_ref().map(|pad_mask| {
        let [rows, len] = pad_mask.dims();
        assert_eq!(len, k_len, "pad_mask covers {len} positions, there are {k_len} keys");
        assert_eq!(rows, batch, "pad_mask is of {rows} sequences, there are {batch}");
        hidden(pad_mask)
    });
    let seed = (dropout_prob > 0.0).then(|| draw_seed(&query.device()));
    let extras = match (hidden, seed) {
        (None, None) => Extras::Nothing,
        (Some(hidden), None) => Extras::Hidden(hidden),
        (None, Some(seed)) => Extras::Seed(seed),
        (Some(hidden), Some(seed)) => Extras::Both(hidden, seed),
    };
    let [query, key, value] = [query, key, value].map(|x| Input::new(widened(x)));
    let nodes = [query.node, key.node, value.node];
    let [query, key, value] = [query.value, key.value, value.value];
    let (context, softmax) =
        Cube::attend(query.clone(), key.clone(), value.clone(), extras.clone(), call.clone());
    let done = || Done { query, key, value, extras, output: context.clone(), softmax };
    let context = output(Attention, nodes, context.clone(), || State { done: done(), call });
    if d_v % 4 == 0 { context } else { context.narrow(3, 0, d_v) }
}
