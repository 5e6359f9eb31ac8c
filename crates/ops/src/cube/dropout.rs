//! Dropout that redraws its mask in the backward pass, optionally with the residual connection: each element
//! is read and written once per pass, and no mask is stored.

use super::random::{draw_seed, factor, scale, threshold};
use super::{Input, Primitive, arg, dense, elements, empty_like, output};
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

#[cube(launch)]
fn drop_kernel(x: &[f32], seed: &[f32], y: &mut [f32], n: usize, threshold: u32, scale: f32) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    y[i] = x[i] * factor(seed, i, threshold, scale);
}

#[cube(launch)]
fn drop_add_kernel(
    x: &[f32],
    residual: &[f32],
    seed: &[f32],
    y: &mut [f32],
    n: usize,
    threshold: u32,
    scale: f32,
) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    y[i] = residual[i] + x[i] * factor(seed, i, threshold, scale);
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Drops: Backend {
    /// Dropout applied to a tensor or its gradient.
    #[fusion(dtype = x, shape = x)]
    fn drop_elements(x: FloatTensor<Self>, seed: FloatTensor<Self>, prob: f64) -> FloatTensor<Self>;

    /// The residual plus `x` after dropout.
    #[fusion(dtype = x, shape = x)]
    fn drop_and_add(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        prob: f64,
    ) -> FloatTensor<Self>;
}

impl Drops for CubeBackend {
    fn drop_elements(x: FloatTensor<Self>, seed: FloatTensor<Self>, prob: f64) -> FloatTensor<Self> {
        let [x, seed] = [x, seed].map(dense);
        let y = empty_like(&x);
        let n = x.meta.num_elements();
        let (count, dim) = elements(&x.client, n);
        let (x_arg, seed, y_arg) = (arg(&x), arg(&seed), arg(&y));
        drop_kernel::launch(&x.client, count, dim, x_arg, seed, y_arg, n, threshold(prob), scale(prob));
        y
    }

    fn drop_and_add(
        x: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        seed: FloatTensor<Self>,
        prob: f64,
    ) -> FloatTensor<Self> {
        let [x, residual, seed] = [x, residual, seed].map(dense);
        let y = empty_like(&x);
        let n = x.meta.num_elements();
        let (count, dim) = elements(&x.client, n);
        drop_add_kernel::launch(
            &x.client,
            count,
            dim,
            arg(&x),
            arg(&residual),
            arg(&seed),
            arg(&y),
            n,
            threshold(prob),
            scale(prob),
        );
        y
    }
}

/// The seed and probability, which determine a mask.
pub(super) type Mask = (Primitive, f64);

#[derive(Debug)]
struct Dropout;

impl Backward<Cube, 1> for Dropout {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let (seed, prob) = ops.state;
        if let [Some(x)] = ops.parents {
            grads.register::<Cube>(x.id, Cube::drop_elements(gradient, seed, prob));
        }
    }
}

#[derive(Debug)]
struct DropoutAdd;

impl Backward<Cube, 2> for DropoutAdd {
    type State = Mask;

    fn backward(self, ops: Ops<Mask, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Cube>(&ops.node);
        let (seed, prob) = ops.state;
        let [x, residual] = ops.parents;
        if let Some(residual) = residual {
            grads.register::<Cube>(residual.id, gradient.clone());
        }
        if let Some(x) = x {
            grads.register::<Cube>(x.id, Cube::drop_elements(gradient, seed, prob));
        }
    }
}

pub(crate) fn dropout<const D: usize>(x: Tensor<D>, prob: f64) -> Tensor<D> {
    let seed = draw_seed(&x.device());
    let x = Input::new(x);
    let y = Cube::drop_elements(x.value, seed.clone(), prob);
    output(Dropout, [x.node], y, || (seed, prob))
}

pub(crate) fn dropout_add<const D: usize>(x: Tensor<D>, residual: Tensor<D>, prob: f64) -> Tensor<D> {
    assert_eq!(x.dims(), residual.dims(), "the residual has another shape than x");
    let seed = draw_seed(&x.device());
    let [x, residual] = [x, residual].map(Input::new);
    let y = Cube::drop_and_add(x.value, residual.value, seed.clone(), prob);
    output(DropoutAdd, [x.node, residual.node], y, || (seed, prob))
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{alone, device, leaf};
    use crate::{dropout, dropout_add};
    use burn::tensor::Tensor;

    #[test]
    fn a_mask_is_fair_seeded_and_the_same_forward_and_backward() {
        let _alone = alone();
        let device = device();
        let run = |seed: u64| {
            device.seed(seed);
            let x = Tensor::<2>::ones([200, 101], &device).require_grad();
            let y = dropout(x.clone(), 0.25);
            let gradient = x.grad(&y.clone().sum().backward()).unwrap();
            (y.into_data().try_to_vec::<f32>().unwrap(), gradient.into_data().try_to_vec::<f32>().unwrap())
        };
        let (y, gradient) = run(3);
        assert_eq!(y, gradient);
        let dropped = y.iter().filter(|y| **y == 0.0).count();
        // Five standard deviations of 20,200 draws are 308.
        assert!(dropped.abs_diff(5_050) < 308, "{dropped} of 20200 dropped");
        assert!(y.iter().all(|y| *y == 0.0 || (y - 4.0 / 3.0).abs() < 1e-6));
        assert_eq!(run(3).0, y);
        let other = run(4).0;
        let both = y.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count();
        assert!(both.abs_diff(1_262) < 175, "{both} dropped under two seeds");
    }

    #[test]
    fn the_residual_passes_whole() {
        let _alone = alone();
        let device = device();
        let x = leaf(999, 0.0, 0.0, &device);
        let residual = leaf(999, 1.0, 0.5, &device);
        let y = dropout_add(x.clone(), residual.clone(), 0.5);
        let gradients = y.clone().sum().backward();
        let [x_gradient, gradient] = [&x, &residual].map(|x| x.grad(&gradients).unwrap().into_data());
        assert!(gradient.iter::<f32>().all(|gradient| gradient == 1.0));
        let [x, residual, y] = [x, residual, y].map(|x| x.into_data().try_to_vec::<f32>().unwrap());
        let mut dropped = 0;
        for (i, factor) in x_gradient.iter::<f32>().enumerate() {
            assert!(factor == 0.0 || factor == 2.0);
            assert!((y[i] - residual[i] - factor * x[i]).abs() < 1e-5);
            dropped += usize::from(factor == 0.0);
        }
        assert!(dropped.abs_diff(500) < 80, "{dropped} of 999 dropped");
    }
}
