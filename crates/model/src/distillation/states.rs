use burn::tensor::Tensor;

/// `1 − cos(s, t)`, summed over the rows, `[1]` (Sanh et al. 2019, "DistilBERT", §2).
///
/// # Shapes
/// - `student`, `teacher`: `[rows, features]`
pub fn cosine_distance(student: Tensor<2>, teacher: Tensor<2>) -> Tensor<1> {
    let [n_rows, _] = student.dims();
    let product = |a: &Tensor<2>, b: &Tensor<2>| (a.clone() * b.clone()).sum_dim(1);
    // The least square keeps a row of zeros from being divided by.
    let squares = product(&student, &student) * product(&teacher, &teacher);
    let cosines = product(&student, &teacher) / squares.clamp_min(1e-24).sqrt();
    cosines.sum().neg() + n_rows as f64
}

#[cfg(test)]
mod tests {
    use super::super::outputs::tests::{assert_close, of};
    use super::*;
    use burn::tensor::Device;

    /// The loss and its gradient are those of PyTorch's `CosineEmbeddingLoss` in double precision.
    #[test]
    fn the_cosine_loss_is_pytorchs() {
        let gradient = [-0.1225946, -0.2136649, 0.5989624, -0.4286344, 0.0454014, 0.0479394];
        assert_close(of(cosine_distance), 2.198_494_07, gradient);
    }

    #[test]
    fn a_row_of_zeros_is_at_distance_one() {
        let device = Device::flex();
        let rows = |rows: [[f32; 2]; 2]| Tensor::<2>::from_data(rows, &device);
        let distance = cosine_distance(rows([[0.0, 0.0], [1.0, 2.0]]), rows([[1.0, 0.0], [2.0, 4.0]]));
        assert!((distance.into_scalar::<f32>() - 1.0).abs() < 1e-6);
    }
}
