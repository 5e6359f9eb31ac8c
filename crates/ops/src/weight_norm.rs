use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// Added to the square of each length, so that a zero column stays zero.
pub(crate) const LEAST: f64 = 1e-24;

/// Weight normalisation, `W = g · V / ‖V‖` for each output feature (Salimans & Kingma 2016, "Weight
/// Normalization", eq. 2): parameterises a weight by direction and length.
///
/// # Shapes
/// - `v`: `[d_in, d_out]`, each column a direction; `g`: `[d_out]`; returns `[d_in, d_out]`
///
/// # Panics
/// If the numbers of lengths and columns differ.
pub fn weight_norm(v: Tensor<2>, g: Tensor<1>) -> Tensor<2> {
    assert_eq!(v.dims()[1], g.dims()[0], "a length for each output feature");
    #[cfg(feature = "flex")]
    if flex::takes(&v) {
        return flex::weight_norm::weight_norm(v, g);
    }
    composed(v, g)
}

fn composed(v: Tensor<2>, g: Tensor<1>) -> Tensor<2> {
    let squares = (v.clone() * v.clone()).sum_dim(0);
    v * (g.unsqueeze::<2>() / squares.add_scalar(LEAST).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn by_hand() {
        let device = Device::flex();
        let v = Tensor::<2>::from_data([[3.0, 0.0, 1.0], [-4.0, 0.0, 0.0]], &device);
        let g = Tensor::<1>::from_data([10.0, 7.0, -2.0], &device);
        let expected = TensorData::from([[6f32, 0.0, -2.0], [-8.0, 0.0, 0.0]]);
        for form in [weight_norm, composed] {
            let w = form(v.clone(), g.clone()).into_data();
            w.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
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
                let v = Tensor::<2>::from_data(TensorData::new(values, [500, 96]), &device).require_grad();
                let g = Tensor::<1>::ones([96], &device).require_grad();
                let w = weight_norm(v.clone(), g.clone());
                let grads = (w.clone() * w.clone().sin()).sum().backward();
                let g = g.grad(&grads).unwrap().into_data();
                [w.into_data(), v.grad(&grads).unwrap().into_data(), g]
            })
        };
        assert!(run(1) == run(2) && run(1) == run(3));
    }
}
