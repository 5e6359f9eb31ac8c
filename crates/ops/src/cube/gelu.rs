//! GELU in both forms for training: each element is read and written once per pass, and only the input is
//! kept.
//!
//! Outside training, burn's fusion merges the composed operation and its neighbours into one
//! kernel.

use super::{Input, Primitive, arg, dense, elements, empty_like, output};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

/// The standard normal distribution function, by flex's polynomial (see there), accurate in both tails;
/// CubeCL's own error function is off by 1.5e-7.
#[cube]
fn normal(x: f32) -> f32 {
    let z = x.abs() * 0.707_106_77f32;
    let t = 1.0f32 / (z * 0.36f32 + 1.0f32);
    let mut p = 0.058_548_22f32 * t - 0.318_169_7f32;
    p = p * t + 0.573_186_3f32;
    p = p * t - 0.382_275_7f32;
    p = p * t + 0.378_924_85f32;
    p = p * t + 0.077_586_11f32;
    p = p * t + 0.208_001_8f32;
    p = p * t + 0.200_982_58f32;
    p = p * t + 0.203_215_51f32;
    let tail = 0.5f32 * p * t * (-0.5f32 * x * x).exp();
    select(x >= 0.0f32, 1.0f32 - tail, tail)
}

/// `tanh(√(2/π)·(x + 0.044715·x³))`
#[cube]
fn tanh_of(x: f32) -> f32 {
    let inner = 0.797_884_6f32 * (x + 0.044_715f32 * x * x * x);
    // Of the absolute value, whose exponential is small: nothing overflows.
    let e = (-2.0f32 * inner.abs()).exp();
    let tanh = (1.0f32 - e) / (1.0f32 + e);
    select(inner >= 0.0f32, tanh, -tanh)
}

#[cube(launch)]
fn forward_kernel(x: &[f32], y: &mut [f32], n: usize, #[comptime] exact: bool) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    let x = x[i];
    if comptime!(exact) {
        y[i] = x * normal(x);
    } else {
        y[i] = 0.5f32 * x * (1.0f32 + tanh_of(x));
    }
}

#[cube(launch)]
fn backward_kernel(x: &[f32], gradient: &[f32], x_gradient: &mut [f32], n: usize, #[comptime] exact: bool) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    let x = x[i];
    if comptime!(exact) {
        let density = 0.398_942_3f32 * (-0.5f32 * x * x).exp();
        x_gradient[i] = gradient[i] * (normal(x) + x * density);
    } else {
        let tanh = tanh_of(x);
        let slope = 0.797_884_6f32 * (1.0f32 + 0.134_145f32 * x * x);
        x_gradient[i] =
            gradient[i] * (0.5f32 * (1.0f32 + tanh) + 0.5f32 * x * (1.0f32 - tanh * tanh) * slope);
    }
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Gelus: Backend {
    #[fusion(dtype = x, shape = x)]
    fn gelu_forward(x: FloatTensor<Self>, exact: bool) -> FloatTensor<Self>;

    #[fusion(dtype = x, shape = x)]
    fn gelu_gradient(x: FloatTensor<Self>, gradient: FloatTensor<Self>, exact: bool) -> FloatTensor<Self>;
}

impl Gelus for CubeBackend {
    fn gelu_forward(x: FloatTensor<Self>, exact: bool) -> FloatTensor<Self> {
        let x = dense(x);
        let y = empty_like(&x);
        let n = x.meta.num_elements();
        let (count, dim) = elements(&x.client, n);
        forward_kernel::launch(&x.client, count, dim, arg(&x), arg(&y), n, exact);
        y
    }

    fn gelu_gradient(x: FloatTensor<Self>, gradient: FloatTensor<Self>, exact: bool) -> FloatTensor<Self> {
        let [x, gradient] = [x, gradient].map(dense);
        let x_gradient = empty_like(&x);
        let n = x.meta.num_elements();
        let (count, dim) = elements(&x.client, n);
        let (x_arg, gradient) = (arg(&x), arg(&gradient));
        backward_kernel::launch(&x.client, count, dim, x_arg, gradient, arg(&x_gradient), n, exact);
        x_gradient
    }
}

#[derive(Debug)]
struct Gelu {
    exact: bool,
}

impl Backward<Cube, 1> for Gelu {
    type State = Primitive;

    fn backward(self, ops: Ops<Primitive, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        if let [Some(x)] = ops.parents {
            grads.register::<Cube>(x.id, Cube::gelu_gradient(ops.state, gradient, self.exact));
        }
    }
}

fn apply<const D: usize>(x: Tensor<D>, exact: bool) -> Tensor<D> {
    let Input { value: x, node } = Input::new(x);
    let y = Cube::gelu_forward(x.clone(), exact);
    output(Gelu { exact }, [node], y, || x)
}

pub(crate) fn exact<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    apply(x, true)
}

pub(crate) fn tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    apply(x, false)
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{alone, assert_agree, device, leaf};
    use crate::{gelu, gelu_tanh};
    use burn::tensor::{Tensor, Tolerance};

    #[test]
    fn both_forms_forward_and_backward() {
        type Form = fn(Tensor<1>) -> Tensor<1>;
        for form in [gelu as Form, gelu_tanh] {
            for n in [1, 7, 256, 1_030] {
                assert_agree(Tolerance::absolute(2e-5), |device| {
                    let leaf = leaf(n, 0.3, 0.1, device);
                    let y = form(leaf.clone().mul_scalar(3.0));
                    let weights = leaf.clone().detach().sin();
                    let grads = (y.clone() * weights).sum().backward();
                    vec![y.into_data(), leaf.grad(&grads).unwrap().into_data()]
                });
            }
        }
    }

    #[test]
    fn far_from_zero_it_is_the_identity_or_zero() {
        let _alone = alone();
        let device = device();
        for form in [gelu::<1>, gelu_tanh] {
            let x = Tensor::<1>::from_data([-1e4f32, -50.0, 50.0, 1e4], &device).require_grad();
            let y = form(x.clone());
            let gradient = x.grad(&y.clone().sum().backward()).unwrap();
            for (found, expected) in [(y, [0.0f32, 0.0, 50.0, 1e4]), (gradient, [0.0, 0.0, 1.0, 1.0])] {
                let found = found.into_data().try_to_vec::<f32>().unwrap();
                assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
            }
        }
    }
}
