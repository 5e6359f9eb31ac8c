use burn::tensor::Tensor;

/// Group normalisation (Wu & He 2018): the channels of each image are divided into groups, and each group is brought to mean 0 and
/// variance 1 over all places, then scaled and shifted by channel. Unlike batch normalisation, no image sees another.
///
/// # Shapes
/// - `x`: `[batch, places, channels]`; returns the same
/// - `gamma`, `beta`: `[channels]`
///
/// # Panics
/// If `groups` does not divide the channels.
pub fn group_norm(x: Tensor<3>, groups: usize, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<3> {
    let [batch, places, channels] = x.dims();
    assert!(groups > 0 && channels.is_multiple_of(groups), "{groups} groups of {channels} channels");
    let grouped = x.reshape([batch, places, groups, channels / groups]);
    let mean = |x: Tensor<4>| x.mean_dim(3).mean_dim(1);
    let centred = grouped.clone() - mean(grouped);
    let deviation = (mean(centred.clone().powi_scalar(2)) + epsilon).sqrt();
    (centred / deviation).reshape([batch, places, channels]) * gamma.unsqueeze() + beta.unsqueeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let device = Device::flex();
        // Two places of four channels in two groups: 1, 3, 5, 7 and 2, 2, 4, 4.
        let x = Tensor::<3>::from_data([[[1.0, 3.0, 2.0, 2.0], [5.0, 7.0, 4.0, 4.0]]], &device);
        let gamma = Tensor::<1>::from_data([1.0, 2.0, 1.0, 3.0], &device);
        let beta = Tensor::<1>::from_data([0.0, 1.0, 0.0, -1.0], &device);
        let (a, b) = (5f32.sqrt(), 1f32);
        let expected =
            [[-3.0 / a, 1.0 - 2.0 / a, -b, -1.0 - 3.0 * b], [1.0 / a, 1.0 + 6.0 / a, b, -1.0 + 3.0 * b]];
        let found = group_norm(x, 2, gamma, beta, 0.0);
        let tolerance = Tolerance::<f32>::absolute(1e-6);
        found.into_data().assert_approx_eq(&TensorData::from([expected]), tolerance);
    }
}
