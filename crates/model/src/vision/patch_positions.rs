use burn::tensor::{Device, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// Where a patch's position comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PatchPositions {
    /// A learned vector for each place.
    #[default]
    Learned,
    /// Sines and cosines of the column and of the row, half of the features each (He et al. 2022, appendix A.1). They are
    /// not learned.
    Sinusoidal,
    /// None: the model sees a set of patches.
    None,
}

/// The positions `[1, n_pieces + rows · columns, d_model]` of MAE's code, whose pieces have zeros: first the sines and
/// cosines of a patch's column, then those of its row.
pub(crate) fn sinusoids(n_pieces: usize, grid: [usize; 2], d_model: usize) -> Vec<f32> {
    let mut values = vec![0.0; n_pieces * d_model];
    let quarter = d_model / 4;
    for place in 0..grid[0] * grid[1] {
        for position in [place % grid[1], place / grid[1]] {
            let angle = |feature: usize| position as f64 / 10_000f64.powf(feature as f64 / quarter as f64);
            values.extend((0..quarter).map(|feature| angle(feature).sin() as f32));
            values.extend((0..quarter).map(|feature| angle(feature).cos() as f32));
        }
    }
    values
}

/// Positions of a grid resized to another one, bicubically and by the target's size, as PyTorch's `interpolate` with `size`
/// and without `align_corners`. A factor instead of the size rounds to a wrong grid for some sizes.
///
/// # Shapes
/// - `positions`: `[1, from rows · columns, d_model]`; returns `[1, to rows · columns, d_model]`
pub(super) fn resized(positions: Tensor<3>, from: [usize; 2], to: [usize; 2]) -> Tensor<3> {
    let ([_, _, d_model], device) = (positions.dims(), positions.device());
    // Two products, each with one axis' weights.
    let rows = bicubic(from[0], to[0], &device).matmul(positions.reshape([from[0], from[1] * d_model]));
    let columns = rows.reshape([to[0], from[1], d_model]).swap_dims(0, 1).reshape([from[1], to[0] * d_model]);
    let both = bicubic(from[1], to[1], &device).matmul(columns).reshape([to[1], to[0], d_model]);
    both.swap_dims(0, 1).reshape([1, to[0] * to[1], d_model])
}

/// The weights of the old places for each new one, `[to, from]`.
fn bicubic(from: usize, to: usize, device: &Device) -> Tensor<2> {
    // Keys' cubic convolution with PyTorch's constant.
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let mut weights = vec![0f32; to * from];
    for (place, row) in weights.chunks_exact_mut(from).enumerate() {
        let source = (place as f64 + 0.5) * (from as f64 / to as f64) - 0.5;
        let (first, t) = (source.floor(), source - source.floor());
        for (offset, weight) in [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)].into_iter().enumerate() {
            // Beyond the border its place is repeated.
            let place = (first + offset as f64 - 1.0).clamp(0.0, (from - 1) as f64) as usize;
            row[place] += weight as f32;
        }
    }
    Tensor::from_data(TensorData::new(weights, [to, from]), device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Tolerance;

    #[test]
    fn resized_positions_are_torchs() {
        // torch 2.15: x = torch.sin(torch.arange(12.)).reshape(1, 1, 3, 4)
        // torch.nn.functional.interpolate(x, size=(2, 5), mode="bicubic", align_corners=False)
        let device = Device::flex();
        let values: Vec<f32> = (0..12).map(|i| (i as f32).sin()).collect();
        let positions = Tensor::<3>::from_data(TensorData::new(values, [1, 12, 1]), &device);
        let found = resized(positions.clone(), [3, 4], [2, 5]);
        let expected = TensorData::new(RESIZED.to_vec(), [1, 10, 1]);
        found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
        // One that is as large is the same.
        let same = resized(positions.clone(), [3, 4], [3, 4]);
        same.into_data().assert_approx_eq::<f32>(&positions.into_data(), Tolerance::absolute(1e-6));
    }

    const RESIZED: [f32; 10] = [
        -0.270_408_42,
        0.183_788_57,
        0.606_505_1,
        0.585_462_6,
        0.296_017_35,
        0.599_270_65,
        0.247_958_26,
        -0.285_866_35,
        -0.610_532_3,
        -0.611_340_9,
    ];

    #[test]
    fn sinusoids_are_those_of_mae() {
        // transformers 4.57.6: get_2d_sincos_pos_embed(8, 2, add_cls_token=True)[[0, 2, 3]]
        let values = sinusoids(1, [2, 2], 8);
        let row = |place: usize| &values[8 * place..8 * (place + 1)];
        assert_eq!(row(0), [0.0; 8]);
        for (found, expected) in [(row(2), SINUSOIDS[0]), (row(3), SINUSOIDS[1])] {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        }
    }

    const SINUSOIDS: [[f32; 8]; 2] = [
        [0.841_470_96, 0.009_999_833, 0.540_302_3, 0.999_95, 0.0, 0.0, 1.0, 1.0],
        [0.0, 0.0, 1.0, 1.0, 0.841_470_96, 0.009_999_833, 0.540_302_3, 0.999_95],
    ];
}
