use crate::IntegerMatrix;
use burn::tensor::{Int, Tensor};

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;

/// Rows of a table by their index.
///
/// # Shapes
/// - `weight`: `[n, d]`; `ids`: `[batch, len]`, each below `n`; returns `[batch, len, d]`
pub fn embedding(weight: Tensor<2>, ids: Tensor<2, Int>) -> Tensor<3> {
    #[cfg(feature = "flex")]
    if flex::takes(&weight) {
        return flex::embedding::embedding(weight, ids);
    }
    #[cfg(feature = "cube")]
    if cube::takes_in_training(&weight) && ids.shape().num_elements() > 0 {
        return cube::embedding::embedding(weight, ids);
    }
    burn::tensor::module::embedding(weight, ids)
}

/// Rows of a table of integers by their index, as FP32: for inference on flex, where only the rows that are looked up are
/// read from a mapped file; none elsewhere.
///
/// # Shapes
/// - `table`: `[n, d]`; `ids`: `[batch, len]`, each below `n`; returns `[batch, len, d]`
pub fn embedding_integer(table: &IntegerMatrix, ids: Tensor<2, Int>) -> Option<Tensor<3>> {
    #[cfg(feature = "flex")]
    if flex::is_flex(&ids.device()) {
        return Some(flex::integer::embedding(table, ids));
    }
    let _ = (table, ids);
    None
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        let (n, d, batch, len) = (11, 5, 3, 40);
        let values: Vec<f32> = (0..n * d).map(|i| (i as f32 * 0.37).sin()).collect();
        let ids: Vec<i32> = (0..batch * len).map(|i| i * i % n).collect();
        let run = |form: fn(Tensor<2>, Tensor<2, Int>) -> Tensor<3>| {
            let weight =
                Tensor::<2>::from_data(TensorData::new(values.clone(), [n, d]), &device).require_grad();
            let y =
                form(weight.clone(), Tensor::from_data(TensorData::new(ids.clone(), [batch, len]), &device));
            let grads = (y.clone() * y.clone().sin()).sum().backward();
            [y.into_data(), weight.grad(&grads).unwrap().into_data()]
        };
        let (fused, composed) = (run(embedding), run(burn::tensor::module::embedding));
        for (fused, composed) in fused.iter().zip(composed) {
            fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-5, 1e-5));
        }
    }

    #[test]
    fn rows_of_integers_are_dequantised() {
        let numbers: Vec<f32> = (0..11 * 32).map(|i| (i as f32 * 0.37).sin()).collect();
        let ids: Vec<i32> = (0..80).map(|i| i * i % 11).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, 40]), &Device::flex());
        for table in [IntegerMatrix::int8(&numbers, [11, 32], 127), IntegerMatrix::q4_0(&numbers, [11, 32])] {
            let table = table.unwrap();
            let floats = TensorData::new(table.dequantized(), [11, 32]);
            let expected = embedding(Tensor::from_data(floats, &Device::flex()), ids.clone());
            let found = embedding_integer(&table, ids.clone()).unwrap();
            assert_eq!(found.into_data(), expected.into_data());
        }
    }

    #[test]
    fn a_table_that_is_the_output_layer_too_has_the_sum_of_both_gradients() {
        let device = Device::flex().autodiff();
        let (n, d) = (11, 5);
        let values: Vec<f32> = (0..n * d).map(|i| (i as f32 * 0.37).sin()).collect();
        let ids = Tensor::<2, Int>::from_data([[3, 0, 3, 10], [1, 3, 7, 7]], &device);
        let run = |fused: bool| {
            let weight =
                Tensor::<2>::from_data(TensorData::new(values.clone(), [n, d]), &device).require_grad();
            let logits = match fused {
                true => crate::linear_tied(embedding(weight.clone(), ids.clone()), weight.clone(), None),
                false => {
                    let states = burn::tensor::module::embedding(weight.clone(), ids.clone());
                    states.matmul(weight.clone().transpose().unsqueeze())
                }
            };
            let grads = logits.clone().sin().sum().backward();
            [logits.into_data(), weight.grad(&grads).unwrap().into_data()]
        };
        for (fused, composed) in run(true).iter().zip(run(false)) {
            fused.assert_approx_eq::<f32>(&composed, Tolerance::rel_abs(1e-5, 1e-5));
        }
    }
}
