//! Kernels for graphics processors: written once in CubeCL, compiled for CUDA, Vulkan, Metal and WebGPU when they are
//! first launched.
//!
//! burn's device for all of these is `Cube`: burn's fusion around CubeCL's backend. A file here holds, of one
//! operation,
//! - its kernels (`#[cube(launch)]`) and the functions that launch them on [`CubeTensor`]s;
//! - a trait of the passes forward and backward on tensors without gradients, which `#[backend_extension]` carries
//!   through burn's fusion: it says which shapes come out, and the kernels run when the fusion gets to them;
//! - burn's `Backward`, by which the operation enters the autodiff graph, as in the folder `flex`.
//!
//! What holds for all kernels: 32-bit floats, dense and in row-major order; sums in an order that the shapes give and
//! nothing else, without atomic additions of floats, so that a run repeats bit for bit on the same device; no
//! instructions of subgroups, 64-bit numbers or infinities, which WebGPU has not or not everywhere; at most 256 units
//! in a cube and 7 tensors in a kernel (attention's have up to 10 and the norm of a sum 8, and are left out where a device
//! has no room for them).

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

/// Elements of a tensor at most: kernels count in 32 bits, idle units included.
const MOST: usize = i32::MAX as usize;

/// Whether the kernels take this tensor: 32-bit floats on a graphics processor, one at least and fewer than 2³¹, gradients
/// not recomputed.
pub(crate) fn takes<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32
        && is_cube(&x.device())
        && (1..=MOST).contains(&x.shape().num_elements())
        && !without_kernels()
}

/// Whether the kernels take this tensor, and its gradient will be asked for: outside training, burn's fusion makes one
/// kernel of an elementwise operation and its neighbours, which is better than one of our own.
pub(crate) fn takes_in_training<const D: usize>(x: &Tensor<D>) -> bool {
    x.device().is_autodiff() && takes(x)
}

/// Whether the device is one of CubeCL's, gradients not recomputed.
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

/// An input: its values, and its place in the graph where there is one.
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

/// The tensor with its place in the graph, where there is one.
pub(crate) fn tracked<const D: usize>(x: &Tensor<D>) -> Option<FloatTensor<Autodiff<Cube>>> {
    x.device().is_autodiff().then(|| x.clone().try_into_primitive::<Autodiff<Cube>>().expect(TAKEN))
}

/// An integer tensor, which has no place in any graph.
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

/// Registers the gradients of the parents that are tracked.
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

/// A tensor in row-major order without gaps; copied only where it is not.
pub(crate) fn dense(x: CubeTensor) -> CubeTensor {
    into_contiguous(x)
}

/// A dense tensor that may be written to: the given one where nothing else holds it, else a copy.
pub(crate) fn owned(x: CubeTensor) -> CubeTensor {
    let x = dense(x);
    if x.can_mut() && x.is_nonoverlapping() { x } else { x.copy() }
}

/// A tensor beside another one, for a kernel to write.
pub(crate) fn empty(beside: &CubeTensor, shape: impl Into<Shape>, dtype: DType) -> CubeTensor {
    empty_device_contiguous_dtype(beside.client.clone(), beside.device.clone(), shape.into(), dtype)
}

/// As many 32-bit floats, for a kernel to write.
pub(crate) fn empty_like(x: &CubeTensor) -> CubeTensor {
    empty(x, x.shape(), DType::F32)
}

/// A dense tensor as a kernel's argument.
pub(crate) fn arg(x: &CubeTensor) -> BufferArg {
    x.clone().into_buffer_arg()
}

/// The width of the last axis and how many rows of it there are.
pub(crate) fn rows(x: &CubeTensor) -> (usize, usize) {
    let shape = x.shape();
    let width = shape[shape.num_dims() - 1];
    (shape.num_elements() / width.max(1), width)
}

/// Units to a cube that goes over rows of this width: a power of two, none of them idle in wide rows.
pub(crate) fn units(client: &Client, width: usize) -> usize {
    let hardware = &client.properties().hardware;
    let most = hardware.max_units_per_cube.min(hardware.max_cube_dim.0).clamp(1, 256);
    let most = 1 << most.ilog2();
    width.next_power_of_two().clamp(most.min(32), most)
}

/// As many cubes as are asked for, and some idle ones where the device takes no such number.
pub(crate) fn cubes(client: &Client, n: usize) -> CubeCount {
    let n = u32::try_from(n).expect("fewer than 2^32 cubes");
    CubeCountSelection::new(client, n).cube_count()
}

/// A cube of this many units.
pub(crate) fn dim(units: usize) -> CubeDim {
    CubeDim::new_1d(u32::try_from(units).expect("256 units at most"))
}

/// Cubes and their units for one unit an element.
pub(crate) fn elements(client: &Client, n: usize) -> (CubeCount, CubeDim) {
    let units = units(client, 256);
    (cubes(client, n.div_ceil(units)), dim(units))
}
