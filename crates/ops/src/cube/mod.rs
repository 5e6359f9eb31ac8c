//! Kernels for graphics processors: written once in CubeCL, compiled for CUDA, Vulkan, Metal and WebGPU at
//! first launch.
//!
//! burn's device for all of these is `Cube`: burn's fusion around CubeCL's backend. A file here holds, for
//! one operation,
//! - its kernels (`#[cube(launch)]`) and the functions that launch them on [`CubeTensor`]s;
//! - a trait with the forward and backward passes on tensors without gradients, which `#[backend_extension]`
//!   passes through burn's fusion: it declares the output shapes, and the kernels run when the fusion
//!   executes them;
//! - burn's `Backward`, by which the operation enters the autodiff graph, as in the folder `flex`.
//!
//! All kernels use dense row-major 32-bit floats; sum in an order that depends only on shapes, without atomic
//! float additions, so runs are bitwise reproducible on the same device; avoid subgroup instructions, 64-bit
//! numbers and infinities, which WebGPU lacks at least in part; and use at most 256 units per cube and 7
//! tensors per kernel (attention's have up to 10 and the norm of a sum 8; they are skipped on devices with
//! fewer buffers).

#![allow(
    clippy::too_many_arguments,
    clippy::collapsible_if,
    clippy::explicit_auto_deref,
    reason = "kernels take their tensors one by one, and conditions of compile time stand outside those of run time"
)]

pub(crate) mod adamw;
#[cfg(all(test, feature = "flex", feature = "wgpu"))]
pub(crate) mod agreement;
pub(crate) mod attention;
pub(crate) mod cross_entropy;
pub(crate) mod dropout;
pub(crate) mod embedding;
pub(crate) mod gelu;
pub(crate) mod launches;
pub(crate) mod layer_norm;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod squared_sum;
#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod step;

use crate::fused::without_kernels;
use burn::backend::Cube;
use burn::backend::fusion::custom::TensorSpec;
use burn::tensor::{DType, Device, Int, Shape, Tensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_dispatch::{DispatchDevice, GradientCheckpointingStrategy};
use cubecl::client::Client;
use cubecl::prelude::{BufferArg, CubeCount, CubeDim};
use cubecl::server::CubeCountSelection;

/// A tensor of burn's fusion, whose values may not have been computed yet.
pub(crate) type Primitive = FloatTensor<Cube>;

/// Maximum elements of a tensor: kernels count in 32 bits, including idle units.
const MOST: usize = i32::MAX as usize;

/// Whether the kernels take this tensor: 32-bit floats on a GPU, at least one and fewer than 2³¹, without
/// gradient recomputation.
pub(crate) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32
        && is_cube(&x.device())
        && (1..=MOST).contains(&x.shape().num_elements())
        && !without_kernels()
}

/// Whether the kernels take this tensor and its gradient is needed: outside training, burn's fusion merges an
/// elementwise operation with its neighbours, which beats a kernel of ours.
pub(crate) fn takes_in_training<const D: usize>(x: &Tensor<D>) -> bool {
    x.device().is_autodiff() && takes(x)
}

/// Whether the device is one of CubeCL's, without gradient recomputation.
pub(crate) fn is_cube(device: &Device) -> bool {
    match device.as_dispatch() {
        DispatchDevice::Cube(_) => true,
        DispatchDevice::Autodiff(device) => {
            matches!(**device, DispatchDevice::Cube(_))
                && device.gradient_checkpointing_strategy() == GradientCheckpointingStrategy::Disabled
        }
        #[allow(unreachable_patterns, reason = "other backends may be compiled in")]
        _ => false,
    }
}

/// Whether a kernel of this many tensors runs on a device.
pub(crate) fn has_room(device: &Device, tensors: u32) -> bool {
    let device = device.clone().inner();
    let DispatchDevice::Cube(device) = device.as_dispatch() else { return false };
    device.client().properties().hardware.max_bindings >= tensors
}

const TAKEN: &str = "all tensors of an operation are on one device";

/// An input: its values, and its graph node if any.
pub(crate) struct Input {
    pub value: Primitive,
    pub node: Option<NodeGuard>,
}

impl Input {
    pub fn new<const D: usize>(x: Tensor<D>) -> Self {
        match tracked(&x) {
            Some(x) => {
                let (value, node) = x.into_parts();
                Self { value, node: Some(node) }
            }
            None => Self { value: x.try_into_primitive::<Cube>().expect(TAKEN), node: None },
        }
    }
}

/// The tensor with its graph node, if any.
pub(crate) fn tracked<const D: usize>(x: &Tensor<D>) -> Option<FloatTensor<Autodiff<Cube>>> {
    x.device().is_autodiff().then(|| x.clone().try_into_primitive::<Autodiff<Cube>>().expect(TAKEN))
}

/// An integer tensor, which is never in a graph.
pub(crate) fn integers<const D: usize>(x: Tensor<D, Int>) -> IntTensor<Cube> {
    match x.device().is_autodiff() {
        true => x.try_into_primitive::<Autodiff<Cube>>().expect(TAKEN),
        false => x.try_into_primitive::<Cube>().expect(TAKEN),
    }
}

/// A tensor without gradients.
pub(crate) fn untracked<const D: usize>(value: Primitive) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(value)
}

/// Puts an operation's output into the graph: all inputs are nodes, or none.
pub(crate) fn output<const D: usize, const N: usize, B: Backward<Cube, N>>(
    backward: B,
    nodes: [Option<NodeGuard>; N],
    value: Primitive,
    state: impl FnOnce() -> B::State,
) -> Tensor<D> {
    if nodes.iter().any(Option::is_none) {
        return untracked(value);
    }
    let nodes = nodes.map(|node| node.expect("none is missing"));
    let value = match backward.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(op) => op.finish(state(), value),
        OpsKind::UnTracked(op) => op.finish(value),
    };
    Tensor::from_primitive::<Autodiff<Cube>>(value)
}

/// Registers the gradients of tracked parents.
pub(crate) fn register<S, const N: usize>(grads: &mut Gradients, ops: &Ops<S, N>, gradients: [Primitive; N]) {
    for (parent, gradient) in ops.parents.iter().zip(gradients) {
        if let Some(parent) = parent {
            grads.register::<Cube>(parent.id, gradient);
        }
    }
}

/// The description of a tensor of 32-bit floats that a kernel will write.
pub(crate) fn floats(shape: impl Into<Shape>) -> TensorSpec {
    TensorSpec::new(shape.into(), DType::F32)
}

/// A dense row-major tensor; copied only if necessary.
pub(crate) fn dense(x: CubeTensor) -> CubeTensor {
    into_contiguous(x)
}

/// A writable dense tensor: the given one if nothing else holds it, else a copy.
pub(crate) fn owned(x: CubeTensor) -> CubeTensor {
    let x = dense(x);
    if x.can_mut() && x.is_nonoverlapping() { x } else { x.copy() }
}

/// An uninitialised tensor on the same device, for a kernel to write.
pub(crate) fn empty(beside: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(beside.client.clone(), beside.device.clone(), shape.into(), dtype)
}

/// An uninitialised tensor of the same shape, for a kernel to write.
pub(crate) fn empty_like(x: &CubeTensor) -> CubeTensor {
    empty(x, x.shape(), DType::F32)
}

/// A dense tensor as a kernel's argument.
pub(crate) fn arg(x: &CubeTensor) -> BufferArg {
    x.clone().into_buffer_arg()
}

/// The width of the last axis and the number of rows.
pub(crate) fn rows(x: &CubeTensor) -> (usize, usize) {
    let shape = x.shape();
    let width = shape[shape.num_dims() - 1];
    (shape.num_elements() / width.max(1), width)
}

/// Units per cube for rows of this width: a power of two, none idle in wide rows.
pub(crate) fn units(client: &Client, width: usize) -> usize {
    let hardware = &client.properties().hardware;
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim.0).clamp(1, 256);
    let most = 1 << most.ilog2();
    width.next_power_of_two().clamp(most.min(32), most)
}

/// This many cubes, plus idle ones if the device does not support the exact number.
pub(crate) fn cubes(client: &Client, n: usize) -> CubeCount {
    let n = u32::try_from(n).expect("fewer than 2^32 cubes");
    CubeCountSelection::new(client, n).cube_count()
}

/// A cube of this many units.
pub(crate) fn dim(units: usize) -> CubeDim {
    CubeDim::new_1d(u32::try_from(units).expect("256 units at most"))
}

/// Cubes and units for one unit per element.
pub(crate) fn elements(client: &Client, n: usize) -> (CubeCount, CubeDim) {
    let units = units(client, 256);
    (cubes(client, n.div_ceil(units)), dim(units))
}
