//! In-place AdamW update in one launch: four tensors are read and three written.

use super::{arg, dense, elements, owned, untracked};
use crate::AdamStep;
use crate::adam::Constants;
use burn::backend::{Backend, Cube, backend_extension};
use burn::tensor::Tensor;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use cubecl::prelude::*;

#[cube(launch)]
fn update_kernel(
    value: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    factor: &[f32],
    n: usize,
    beta1: f32,
    beta2: f32,
    eps: f32,
    keep: f32,
    rate: f32,
    correction: f32,
    scale: f32,
    #[comptime] has_factor: bool,
) {
    let i = ABSOLUTE_POS;
    if i >= n {
        terminate!();
    }
    let mut gradient = gradient[i] * scale;
    if comptime!(has_factor) {
        gradient *= factor[0usize];
    }
    let m = beta1 * first[i] + (1.0f32 - beta1) * gradient;
    let v = beta2 * second[i] + (1.0f32 - beta2) * gradient * gradient;
    first[i] = m;
    second[i] = v;
    value[i] = value[i] * keep - rate * m / (v.sqrt() * correction + eps);
}

#[backend_extension(Cube, Fusion)]
pub(crate) trait Updates: Backend {
    /// The updated parameter and its moments.
    #[fusion(meta = |value, _gradient, first, second, _factor, _has_factor, _constants| {
        (value.clone(), first.clone(), second.clone())
    })]
    fn adamw_update(
        value: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        factor: FloatTensor<Self>,
        has_factor: bool,
        constants: Constants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

impl Updates for CubeBackend {
    fn adamw_update(
        value: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        first: FloatTensor<Self>,
        second: FloatTensor<Self>,
        factor: FloatTensor<Self>,
        has_factor: bool,
        constants: Constants,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let [value, first, second] = [value, first, second].map(owned);
        let [gradient, factor] = [gradient, factor].map(dense);
        let n = value.meta.num_elements();
        let (count, dim) = elements(&value.client, n);
        let Constants { beta1, beta2, eps, keep, rate, correction, scale, .. } = constants;
        update_kernel::launch(
            &value.client,
            count,
            dim,
            arg(&value),
            arg(&gradient),
            arg(&first),
            arg(&second),
            arg(&factor),
            n,
            beta1,
            beta2,
            eps,
            keep,
            rate,
            correction,
            scale,
            has_factor,
        );
        (value, first, second)
    }
}

pub(crate) fn adamw(
    value: Tensor<1>,
    gradient: Tensor<1>,
    factor: Option<Tensor<1>>,
    moments: Option<[Tensor<1>; 2]>,
    step: AdamStep,
) -> (Tensor<1>, [Tensor<1>; 2]) {
    let [first, second] = moments.unwrap_or_else(|| [gradient.zeros_like(), gradient.zeros_like()]);
    let has_factor = factor.is_some();
    let factor = factor.unwrap_or_else(|| gradient.clone());
    let [value, gradient, first, second, factor] =
        [value, gradient, first, second, factor].map(|x| x.try_into_primitive::<Cube>().expect(super::TAKEN));
    let (value, first, second) =
        Cube::adamw_update(value, gradient, first, second, factor, has_factor, step.into());
    (untracked(value), [first, second].map(untracked))
}

#[cfg(all(test, feature = "flex", feature = "wgpu"))]
mod tests {
    use crate::cube::agreement::{assert_agree, wave};
    use crate::{AdamStep, adamw, adamw_by};
    use burn::tensor::{Tensor, Tolerance};

    #[test]
    fn three_updates_of_tensors_held_once_and_held_twice() {
        for n in [1, 33, 1_030] {
            for held in [false, true] {
                assert_agree(Tolerance::rel_abs(1e-4, 1e-6), |device| {
                    let device = device.clone().inner();
                    let vector = |phase| Tensor::<1>::from_data(wave(n, phase, 0.0).as_slice(), &device);
                    let mut value = vector(0.0);
                    let mut moments = None;
                    let mut former = Vec::new();
                    for step in 1..4 {
                        if held {
                            former.push(value.clone());
                        }
                        let (beta1, beta2, eps) = (0.9, 0.999, 1e-6);
                        let constants =
                            AdamStep { beta1, beta2, eps, weight_decay: 0.1, lr: 0.01, scale: 0.7, step };
                        let gradient = vector(step as f32);
                        let (moved, both) = match step {
                            2 => adamw_by(value, gradient, vector(0.4).narrow(0, 0, 1), moments, constants),
                            _ => adamw(value, gradient, moments, constants),
                        };
                        (value, moments) = (moved, Some(both));
                    }
                    let all = former.into_iter().chain([value]).chain(moments.into_iter().flatten());
                    all.map(Tensor::into_data).collect()
                });
            }
        }
    }
}
