use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// Root mean square normalisation over the last axis, `x / √(mean(x²) + ε) · γ` (Zhang & Sennrich 2019, "Root
/// Mean Square Layer Normalization", eq. 4): a layer normalisation without mean and shift.
///
/// # Shapes
/// - `x`: `[..., d]`; `gamma`: `[d]`; returns `[..., d]`
pub fn rms_norm<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::rms_norm::rms_norm(x, gamma, epsilon);
    }
    composed(x, gamma, epsilon)
}

fn composed<const D: usize>(x: Tensor<D>, gamma: Tensor<1>, epsilon: f64) -> Tensor<D> {
    let mean_square = (x.clone() * x.clone()).mean_dim(D - 1);
    let inverse = mean_square.add_scalar(epsilon).sqrt().recip();
    x * inverse * gamma.unsqueeze::<D>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let device = Device::flex();
        let x = Tensor::<2>::from_data([[1.0, 7.0], [-3.0, 4.0]], &device);
        let gamma = Tensor::<1>::from_data([2.0, 1.0], &device);
        // The roots of the mean squares are 5 and √12.5.
        let root = 12.5f32.sqrt();
        let expected = TensorData::from([[0.4f32, 1.4], [-6.0 / root, 4.0 / root]]);
        for form in [rms_norm::<2>, composed::<2>] {
            let y = form(x.clone(), gamma.clone(), 0.0);
            y.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for (n, d) in [(1, 1), (3, 7), (5, 16), (40, 33), (130, 256), (9, 1_030)] {
            let leaf = |len: usize, phase: f32, shift: f32| {
                let values: Vec<f32> =
                    (0..len).map(|i| (i as f32 * 0.71 + phase).sin() * 2.0 + shift).collect();
                Tensor::<1>::from_data(values.as_slice(), &device)
            };
            let run = |form: fn(Tensor<3>, Tensor<1>, f64) -> Tensor<3>| {
                let x = leaf(n * d, 0.3, 0.1).reshape([1, n, d]).require_grad();
                let gamma = leaf(d, 5.0, 1.0).require_grad();
                let y = form(x.clone(), gamma.clone(), 1e-5);
                let weights = leaf(n * d, 11.0, 0.0).reshape([1, n, d]);
                let grads = (y.clone() * weights).sum().backward();
                [y, x.grad(&grads).unwrap(), gamma.grad(&grads).unwrap().reshape([1, 1, d])]
                    .map(Tensor::into_data)
            };
            for (fused, composed) in run(rms_norm).iter().zip(run(composed)) {
                fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(2e-4, 2e-4));
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let device = Device::flex().autodiff();
                let values: Vec<f32> = (0..500 * 96).map(|i| (i as f32 * 0.71).sin()).collect();
                let x = Tensor::<2>::from_data(TensorData::new(values, [500, 96]), &device).require_grad();
                let gamma = Tensor::<1>::ones([96], &device).require_grad();
                let y = rms_norm(x.clone(), gamma.clone(), 1e-6);
                let grads = (y.clone() * y.clone().sin()).sum().backward();
                let gamma = gamma.grad(&grads).unwrap().into_data();
                [y.into_data(), x.grad(&grads).unwrap().into_data(), gamma]
            })
        };
        assert!(run(1) == run(2) && run(1) == run(3));
    }
}
