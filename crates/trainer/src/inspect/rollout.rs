//! Attention rollout (Abnar & Zuidema 2020).

use super::matrix::Matrix;

/// `R = Ã_L ⋯ Ã_1` with `Ã = (mean over heads of A + I) / 2`: the rows from which an answer is read, averaged.
///
/// `layers` are the means over heads, from the first layer on.
pub(super) fn rollout(layers: &[Matrix], read_from: &[usize]) -> Vec<f64> {
    product(layers).mean_of_rows(read_from)
}

fn product(layers: &[Matrix]) -> Matrix {
    let n = layers.first().map_or(0, |layer| layer.n_rows());
    layers
        .iter()
        .fold(Matrix::identity(n), |below, layer| layer.plus(&Matrix::identity(n)).scaled(0.5).times(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_shares_and_nothing_later_is_seen() {
        // Causal attention of three layers.
        let layer = |phase: f64| {
            let row = |i: usize| {
                let raw: Vec<f64> = (0..5)
                    .map(|j| if j <= i { (1.3 * (i + 2 * j) as f64 + phase).sin().exp() } else { 0.0 })
                    .collect();
                let sum: f64 = raw.iter().sum();
                raw.into_iter().map(move |share| share / sum)
            };
            Matrix::new((0..5).flat_map(row).collect(), 5)
        };
        let layers = [layer(0.1), layer(0.9), layer(2.3)];
        let whole = product(&layers);
        for i in 0..5 {
            let row = whole.mean_of_rows(&[i]);
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            assert!(row[i + 1..].iter().all(|share| *share == 0.0));
            assert!(row[i] >= 0.125 - 1e-12, "a token keeps half of itself in each layer");
        }
    }

    /// Two layers by hand: Ã₁ = [[.75, .25], [.5, .5]], Ã₂ = [[.5, .5], [.25, .75]].
    #[test]
    fn the_last_layer_stands_first() {
        let layers = [Matrix::new(vec![0.5, 0.5, 1.0, 0.0], 2), Matrix::new(vec![0.0, 1.0, 0.5, 0.5], 2)];
        assert_eq!(rollout(&layers, &[0]), [0.625, 0.375]);
        assert_eq!(rollout(&layers, &[0, 1]), [0.59375, 0.40625]);
    }
}
