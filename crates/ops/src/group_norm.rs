use burn::tensor::Tensor;
use burn::tensor::activation::relu;

#[cfg(feature = "flex")]
use crate::flex;

/// Group normalisation (Wu & He 2018, eq. 1–3): the channels of each image are divided into groups, and each group is brought to mean 0 and
/// variance 1 over all places, then scaled and shifted by channel. Unlike batch normalisation, no image sees another.
///
/// # Shapes
/// - `x`: `[batch, rows, columns, channels]`; returns the same
/// - `gamma`, `beta`: `[channels]`
///
/// # Panics
/// If `groups` does not divide the channels.
pub fn group_norm(x: Tensor<4>, groups: usize, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<4> {
    check(&x, groups);
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::group_norm::group_norm(x, groups, gamma, beta, epsilon);
    }
    composed(x, groups, gamma, beta, epsilon)
}

/// `ReLU(residual + GN(x))`, the end of a residual block (He et al. 2016, fig. 2), or `ReLU(GN(x))` without a residual. See [`group_norm`].
///
/// # Shapes
/// - `x`, `residual`: `[batch, rows, columns, channels]`; returns the same
/// - `gamma`, `beta`: `[channels]`
///
/// # Panics
/// If `groups` does not divide the channels.
pub fn group_norm_relu(
    x: Tensor<4>,
    residual: Option<Tensor<4>>,
    groups: usize,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<4> {
    check(&x, groups);
    #[cfg(feature = "flex")]
    if flex::takes(&x) {
        return flex::group_norm::group_norm_relu(x, residual, groups, gamma, beta, epsilon);
    }
    composed_relu(x, residual, groups, gamma, beta, epsilon)
}

fn check(x: &Tensor<4>, groups: usize) {
    let [.., channels] = x.dims();
    assert!(groups > 0 && channels.is_multiple_of(groups), "{groups} groups of {channels} channels");
}

fn composed(x: Tensor<4>, groups: usize, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<4> {
    let [batch, rows, columns, channels] = x.dims();
    let grouped = x.reshape([batch, rows * columns, groups, channels / groups]);
    let mean = |x: Tensor<4>| x.mean_dim(3).mean_dim(1);
    let centred = grouped.clone() - mean(grouped);
    let deviation = (mean(centred.clone().powi_scalar(2)) + epsilon).sqrt();
    (centred / deviation).reshape([batch, rows, columns, channels]) * gamma.unsqueeze() + beta.unsqueeze()
}

fn composed_relu(
    x: Tensor<4>,
    residual: Option<Tensor<4>>,
    groups: usize,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> Tensor<4> {
    let y = composed(x, groups, gamma, beta, epsilon);
    relu(match residual {
        Some(residual) => residual + y,
        None => y,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let device = Device::flex();
        // Two places of four channels in two groups: 1, 3, 5, 7 and 2, 2, 4, 4.
        let x = Tensor::<4>::from_data([[[[1.0, 3.0, 2.0, 2.0], [5.0, 7.0, 4.0, 4.0]]]], &device);
        let gamma = Tensor::<1>::from_data([1.0, 2.0, 1.0, 3.0], &device);
        let beta = Tensor::<1>::from_data([0.0, 1.0, 0.0, -1.0], &device);
        let (a, b) = (5f32.sqrt(), 1f32);
        let expected =
            [[-3.0 / a, 1.0 - 2.0 / a, -b, -1.0 - 3.0 * b], [1.0 / a, 1.0 + 6.0 / a, b, -1.0 + 3.0 * b]];
        let residual = Tensor::<4>::from_data([[[[0.0, 0.0, 3.0, 5.0], [0.5, -9.0, 0.0, 1.0]]]], &device);
        let after = [[0.0, 1.0 - 2.0 / a, 3.0 - b, 1.0], [0.5 + 1.0 / a, 0.0, b, 3.0]];
        let tolerance = Tolerance::<f32>::absolute(1e-6);
        for form in [group_norm, composed] {
            let found = form(x.clone(), 2, gamma.clone(), beta.clone(), 0.0);
            found.into_data().assert_approx_eq(&TensorData::from([[expected]]), tolerance);
        }
        for form in [group_norm_relu, composed_relu] {
            let found = form(x.clone(), Some(residual.clone()), 2, gamma.clone(), beta.clone(), 0.0);
            found.into_data().assert_approx_eq(&TensorData::from([[after]]), tolerance);
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for (batch, columns, channels, groups) in
            [(1, 1, 2, 1), (3, 7, 6, 2), (2, 100, 16, 2), (5, 64, 64, 8), (2, 9, 300, 3), (2, 5, 4, 4)]
        {
            let leaf = |len: usize, phase: f32, shift: f32| {
                let values: Vec<f32> =
                    (0..len).map(|i| (i as f32 * 0.71 + phase).sin() * 2.0 + shift).collect();
                Tensor::<1>::from_data(values.as_slice(), &device)
            };
            let (n, shape) = (batch * 3 * columns * channels, [batch, 3, columns, channels]);
            let run = |fused: bool, ends: Option<bool>| {
                let x = leaf(n, 0.3, 0.7).reshape(shape).require_grad();
                let residual = leaf(n, 1.9, -0.2).reshape(shape).require_grad();
                let gamma = leaf(channels, 5.0, 1.0).require_grad();
                let beta = leaf(channels, 7.0, 0.0).require_grad();
                let past = ends.and_then(|has_residual| has_residual.then(|| residual.clone()));
                let (x_in, gamma_in, beta_in) = (x.clone(), gamma.clone(), beta.clone());
                let y = match (ends, fused) {
                    (None, true) => group_norm(x_in, groups, gamma_in, beta_in, 1e-5),
                    (None, false) => composed(x_in, groups, gamma_in, beta_in, 1e-5),
                    (_, true) => group_norm_relu(x_in, past, groups, gamma_in, beta_in, 1e-5),
                    (_, false) => composed_relu(x_in, past, groups, gamma_in, beta_in, 1e-5),
                };
                let weights = leaf(n, 11.0, 0.0).reshape(shape);
                let grads = (y.clone() * weights).sum().backward();
                let mut all = vec![y.into_data()];
                all.extend([&x, &residual].into_iter().filter_map(|x| Some(x.grad(&grads)?.into_data())));
                all.extend([&gamma, &beta].map(|x| x.grad(&grads).unwrap().into_data()));
                all
            };
            for ends in [None, Some(false), Some(true)] {
                let (fused, composed) = (run(true, ends), run(false, ends));
                assert_eq!(fused.len(), 4 + usize::from(ends == Some(true)));
                assert_eq!(fused.len(), composed.len());
                for (fused, composed) in fused.iter().zip(composed) {
                    fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(3e-4, 3e-4));
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn threads_change_no_bit() {
        let device = Device::flex().autodiff();
        let random = |n: usize| Tensor::<1>::random([n], burn::tensor::Distribution::Default, &device);
        let x = random(7 * 50 * 12).reshape([7, 5, 10, 12]).require_grad();
        let (gamma, beta) = (random(12).require_grad(), random(12));
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let y = group_norm_relu(x.clone(), Some(x.clone()), 3, gamma.clone(), beta.clone(), 1e-5);
                let grads = y.clone().powi_scalar(2).sum().backward();
                [y.into_data(), x.grad(&grads).unwrap().into_data(), gamma.grad(&grads).unwrap().into_data()]
            })
        };
        let one = run(1);
        assert_eq!(one, run(2));
        assert_eq!(one, run(3));
    }
}
