//! Fused operations for the flex backend, and how they enter burn's autodiff graph.

pub(crate) mod adamw;
pub(crate) mod additive;
pub(crate) mod attention;
pub(crate) mod best;
pub(crate) mod convolution;
pub(crate) mod cores;
pub(crate) mod cross_entropy;
pub(crate) mod dropout;
pub(crate) mod ema;
pub(crate) mod embedding;
pub(crate) mod gated;
pub(crate) mod gelu;
mod gemm;
pub(crate) mod glu;
pub(crate) mod group_norm;
pub(crate) mod integer;
pub(crate) mod key_value;
pub(crate) mod lamb;
pub(crate) mod layer_norm;
pub(crate) mod linear;
mod pages;
mod random;
pub(crate) mod recompute;
pub(crate) mod recurrent;
pub(crate) mod relative;
pub(crate) mod rms_norm;
pub(crate) mod rotary;
mod seeds;
pub(crate) mod stable_adamw;
pub(crate) mod subsampled;
mod vector;
pub(crate) mod weight_norm;
pub(crate) mod windows;

/// A span of `tracing` over the rest of the block, for profiles: the operation and, if any, the
/// floating-point operations of its matrix products.
macro_rules! op {
    ($name:literal $(, $flops:expr)?) => {
        let _op = tracing::trace_span!($name $(, flops = $flops as u64)?).entered();
    };
}
pub(crate) use op;

use crate::{Kernels, Precision};
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_dispatch::{DispatchDevice, GradientCheckpointingStrategy};
use burn_flex::{Flex, FlexTensor, Layout};
use burn_std::Bytes;
use seeds::draw_seed;
use std::mem::MaybeUninit;

/// The kernels in use.
pub(crate) fn kernels() -> Kernels {
    let choice = gemm::Choice::here();
    Kernels {
        fp32: choice.fp32.name(Precision::Fp32),
        bf16: choice.bf16.name(Precision::Bf16),
        int8: integer::kernel_name(),
        refused: choice.refused.iter().copied().chain(integer::refused_kernels()).collect(),
    }
}

/// Elements per task: enough to be worthwhile, few enough to stay in the cache. Fixed, so that sums do
/// not depend on the number of threads.
const BLOCK: usize = 8 << 10;

/// Whether the fused operations take this tensor: 32-bit floats on flex, without gradient
/// recomputation.
pub(crate) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 && is_flex(&x.device())
}

/// Whether the device is flex, without gradient recomputation.
pub(crate) fn is_flex(device: &Device) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Flex(_) => true,
        DispatchDevice::Autodiff(device) => {
            matches!(**device, DispatchDevice::Flex(_))
                && device.gradient_checkpointing_strategy() == GradientCheckpointingStrategy::Disabled
        }
        #[allow(unreachable_patterns, reason = "other backends may be compiled in")]
        _ => false,
    }
}

const TAKEN: &str = "`takes` has looked at the device";

/// The tensor with its graph node, if any.
fn tracked<const D: usize>(x: &Tensor<D>) -> Option<FloatTensor<Autodiff<Flex>>> {
    x.device().is_autodiff().then(|| x.clone().try_into_primitive::<Autodiff<Flex>>().expect(TAKEN))
}

/// An input: its values, and its graph node if any.
pub(crate) struct Input {
    pub value: FlexTensor,
    pub node: Option<NodeGuard>,
}

impl Input {
    /// Any layout.
    pub fn strided<const D: usize>(x: Tensor<D>) -> Self {
        match tracked(&x) {
            Some(x) => {
                let (value, node) = x.into_parts();
                Self { value, node: Some(node) }
            }
            None => Self { value: x.try_into_primitive::<Flex>().expect(TAKEN), node: None },
        }
    }

    /// Dense and row-major; copied only if necessary.
    pub fn dense<const D: usize>(x: Tensor<D>) -> Self {
        let Self { value, node } = Self::strided(x);
        Self { value: dense(value), node }
    }
}

/// Puts an operation's output into the graph: all inputs are nodes, or none.
pub(crate) fn output<const D: usize, const N: usize, B: Backward<Flex, N>>(
    backward: B,
    nodes: [Option<NodeGuard>; N],
    value: FlexTensor,
    state: impl FnOnce() -> B::State,
) -> Tensor<D> {
    if nodes.iter().any(Option::is_none) {
        return Tensor::from_primitive::<Flex>(value);
    }
    let nodes = nodes.map(|node| node.expect("none is missing"));
    let value = match backward.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(op) => op.finish(state(), value),
        OpsKind::UnTracked(op) => op.finish(value),
    };
    Tensor::from_primitive::<Autodiff<Flex>>(value)
}

/// Registers the gradients of tracked parents. Gradients beyond the last parent, such as of an omitted
/// initial state, are dropped.
fn register<S, const N: usize, const M: usize>(
    grads: &mut Gradients,
    ops: &Ops<S, N>,
    gradients: [FlexTensor; M],
) {
    const { assert!(M >= N) };
    for (parent, gradient) in ops.parents.iter().zip(gradients) {
        if let Some(parent) = parent {
            grads.register::<Flex>(parent.id, gradient);
        }
    }
}

/// The values of an integer tensor as indices.
///
/// # Panics
/// If one is negative.
pub(crate) fn indices<const D: usize>(ids: Tensor<D, Int>) -> Vec<usize> {
    let ids = ids.into_data();
    ids.iter::<i64>().map(|id| usize::try_from(id).expect("an index is not negative")).collect()
}

fn dense(x: FlexTensor) -> FlexTensor {
    if x.is_contiguous() { x } else { x.to_contiguous() }
}

/// The elements of a dense tensor.
fn values(x: &FlexTensor) -> &[f32] {
    x.as_slice().expect("dense 32-bit floats")
}

/// The elements of a dense tensor, copied first if shared.
fn values_mut(x: &mut FlexTensor) -> &mut [f32] {
    let (start, end) = x.layout().contiguous_offsets().expect("dense");
    &mut x.storage_mut::<f32>()[start..end]
}

fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

/// A vector whose elements `fill` writes.
///
/// # Safety
/// `fill` must write every element.
unsafe fn filled(n: usize, fill: impl FnOnce(&mut [MaybeUninit<f32>])) -> Vec<f32> {
    let mut values = Vec::with_capacity(n);
    fill(&mut values.spare_capacity_mut()[..n]);
    // SAFETY: the capacity is n at least, and the caller vouches for the elements.
    unsafe { values.set_len(n) };
    values
}

/// The width of the last axis and the number of rows.
fn rows(x: &FlexTensor) -> (usize, usize) {
    let shape = x.layout().shape();
    let width = shape[shape.num_dims() - 1];
    (shape.num_elements() / width.max(1), width)
}

/// Rows per task.
fn rows_per_task(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1)
}
