use burn::tensor::Tensor;

#[cfg(feature = "flex")]
use crate::flex;

/// One step of an exponential moving average, `decay · average + (1 − decay) · value`, without autodiff. The
/// average's memory is reused if nothing else holds it.
///
/// # Shapes
/// - all: `[n]`
pub fn moving_average(average: Tensor<1>, value: Tensor<1>, decay: f64) -> Tensor<1> {
    #[cfg(feature = "flex")]
    if flex::takes(&average) && flex::takes(&value) {
        return flex::ema::moving_average(average, value, decay);
    }
    composed(average, value, decay)
}

fn composed(average: Tensor<1>, value: Tensor<1>, decay: f64) -> Tensor<1> {
    average.mul_scalar(decay) + value.mul_scalar(1.0 - decay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn it_moves_towards_the_value() {
        let device = Device::flex();
        // More than one task's part, and a rest.
        let numbers =
            |scale: f32| -> Vec<f32> { (0..300_001).map(|i| (i as f32 * 0.7).sin() * scale).collect() };
        let (average, value) = (numbers(2.0), numbers(-1.0));
        let expected: Vec<f32> = average.iter().zip(&value).map(|(a, v)| 0.9 * a + 0.1 * v).collect();
        let tensor = |numbers: &[f32]| Tensor::<1>::from_data(numbers, &device);
        let shared = tensor(&average);
        for form in [moving_average, composed] {
            let found = form(shared.clone(), tensor(&value), 0.9).into_data();
            found.assert_approx_eq::<f32>(&TensorData::from(&expected[..]), Tolerance::absolute(1e-6));
        }
        assert_eq!(shared.into_data(), TensorData::from(&average[..]), "what others hold stays");
    }
}
