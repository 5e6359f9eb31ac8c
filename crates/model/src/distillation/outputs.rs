use burn::tensor::Tensor;
use burn::tensor::activation::{log_sigmoid, log_softmax, softmax};

/// The logit of a choice that is not there. [`soft_targets`] takes any smaller one, such as −∞, for this, so that its
/// share is 0 and not NaN.
pub const ABSENT: f32 = -1e30;

/// `T²·KL(softmax(t/T) ‖ softmax(s/T))`, summed over the rows, `[1]` (Hinton, Vinyals & Dean 2015, §2). `T²` makes
/// up for gradients that shrink with `1/T²`.
///
/// # Shapes
/// - `student`, `teacher`: `[rows, classes]`
pub fn soft_targets(student: Tensor<2>, teacher: Tensor<2>, temperature: f64) -> Tensor<1> {
    let of = |logits: Tensor<2>| logits.clamp_min(ABSENT) / temperature;
    let (student, teacher) = (of(student), of(teacher));
    let (log_q, log_p) = (log_softmax(student, 1), log_softmax(teacher.clone(), 1));
    (softmax(teacher, 1) * (log_p - log_q)).sum() * temperature.powi(2)
}

/// The same for labels that do not exclude each other: `T²·KL` of the two-sided choices `σ(t/T)` and `σ(s/T)`,
/// averaged over the labels and summed over the rows, `[1]`.
///
/// # Shapes
/// - `student`, `teacher`: `[rows, labels]`
pub fn soft_labels(student: Tensor<2>, teacher: Tensor<2>, temperature: f64) -> Tensor<1> {
    let [_, n_labels] = student.dims();
    let (student, teacher) = (student / temperature, teacher / temperature);
    let side = |student: Tensor<2>, teacher: Tensor<2>| {
        let log_p = log_sigmoid(teacher);
        log_p.clone().exp() * (log_p - log_sigmoid(student))
    };
    let divergence = side(student.clone(), teacher.clone()) + side(-student, -teacher);
    divergence.sum() * (temperature.powi(2) / n_labels as f64)
}

/// The squared difference, averaged over the features and summed over the rows, `[1]`: for numbers and vectors.
///
/// # Shapes
/// - `student`, `teacher`: `[rows, features]`
pub fn squared_distance(student: Tensor<2>, teacher: Tensor<2>) -> Tensor<1> {
    let [_, width] = student.dims();
    (student - teacher).powi_scalar(2).sum() / width as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use burn::tensor::Device;

    const STUDENT: [[f32; 3]; 2] = [[1.5, -0.3, 0.2], [0.1, 2.0, -1.0]];
    const TEACHER: [[f32; 3]; 2] = [[0.5, 0.7, -2.0], [3.0, -1.0, 0.0]];

    /// A loss and its gradient with respect to the student.
    pub fn of(loss: impl Fn(Tensor<2>, Tensor<2>) -> Tensor<1>) -> (f32, Vec<f32>) {
        let device = Device::flex().autodiff();
        let student = Tensor::<2>::from_data(STUDENT, &device).require_grad();
        let loss = loss(student.clone(), Tensor::from_data(TEACHER, &device));
        let gradients = loss.backward();
        let gradient = student.grad(&gradients).unwrap();
        (loss.into_scalar(), gradient.into_data().iter::<f32>().collect())
    }

    pub fn assert_close(found: (f32, Vec<f32>), loss: f64, gradient: [f64; 6]) {
        assert!((f64::from(found.0) - loss).abs() < 1e-5, "{} {loss}", found.0);
        for (found, expected) in found.1.iter().zip(gradient) {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    /// Losses and gradients are PyTorch's in double precision: `kl_div(log_softmax(s/T), softmax(t/T))·T²`; the
    /// difference of two `binary_cross_entropy_with_logits`; `mse_loss`.
    #[test]
    fn losses_and_gradients_are_pytorchs() {
        let soft = of(|student, teacher| soft_targets(student, teacher, 2.0));
        let gradient = [0.2007796, -0.5025631, 0.3017835, -0.9917874, 1.0430881, -0.0513008];
        assert_close(soft, 3.379_571_48, gradient);
        let labels = of(|student, teacher| soft_labels(student, teacher, 2.0));
        let gradient = [0.0780015, -0.0826983, 0.1706918, -0.2033847, 0.2356786, -0.0816396];
        assert_close(labels, 0.936_479_05, gradient);
        let gradient = [0.6666667, -0.6666667, 1.4666667, -1.9333333, 2.0, -0.6666667];
        assert_close(of(squared_distance), 8.416_666_67, gradient);
    }

    #[test]
    fn a_choice_that_is_not_there_counts_nothing() {
        let device = Device::flex();
        let with =
            |logits: [f32; 2]| Tensor::<2>::from_data([[logits[0], logits[1], f32::NEG_INFINITY]], &device);
        let loss: f32 = soft_targets(with([1.5, -0.3]), with([0.5, 0.7]), 2.0).into_scalar();
        assert!((f64::from(loss) - 0.486_945_61).abs() < 1e-5, "{loss}");
        let same: f32 = soft_targets(with([1.5, -0.3]), with([1.5, -0.3]), 3.0).into_scalar();
        assert_eq!(same, 0.0);
    }
}
