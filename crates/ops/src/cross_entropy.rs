use burn::tensor::{Int, Tensor, activation};

#[cfg(feature = "flex")]
use crate::flex;

/// Cross-entropy of each row, `−log softmax(logits)[label]`, in nats.
///
/// # Shapes
/// - `logits`: `[n, n_classes]`; `labels`: `[n]`, each in `0..n_classes`; returns `[n]`
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropy::default().forward(logits, labels)
}

/// Cross-entropy with label smoothing and rows that do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CrossEntropy {
    /// The share `ε` of the target spread over all classes, the right one among them (Szegedy et al. 2016,
    /// §7; as in PyTorch).
    pub label_smoothing: f64,
    /// Rows with this label have loss 0 and no gradient.
    pub ignored_label: Option<i64>,
}

impl CrossEntropy {
    /// The loss of each row, in nats.
    ///
    /// # Shapes
    /// - `logits`: `[n, n_classes]`; `labels`: `[n]`, each in `0..n_classes` or the ignored one; returns `[n]`
    pub fn forward(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        #[cfg(feature = "flex")]
        if flex::takes(&logits) {
            return flex::cross_entropy::cross_entropy(logits, labels, *self);
        }
        self.composed(logits, labels)
    }

    fn composed(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        let [n, n_classes] = logits.dims();
        let log_probs = activation::log_softmax(logits, 1);
        let ignored = self.ignored_label.map(|label| labels.clone().equal_elem(label));
        let labels = match &ignored {
            Some(ignored) => labels.mask_fill(ignored.clone(), 0),
            None => labels,
        };
        let right = log_probs.clone().gather(1, labels.reshape([n, 1])).reshape([n]).neg();
        let loss = match self.label_smoothing {
            0.0 => right,
            share => {
                let all = log_probs.sum_dim(1).reshape([n]).neg();
                right.mul_scalar(1.0 - share) + all.mul_scalar(share / n_classes as f64)
            }
        };
        match ignored {
            Some(ignored) => loss.mask_fill(ignored, 0.0),
            None => loss,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData, Tolerance};

    #[test]
    fn of_uniform_logits_it_is_the_log_of_the_classes() {
        let device = Device::flex();
        let logits = Tensor::<2>::zeros([2, 8], &device);
        let labels = Tensor::<1, Int>::from_data([0, 7], &device);
        let expected = TensorData::from([8f32.ln(), 8f32.ln()]);
        let loss = cross_entropy(logits.clone(), labels.clone());
        loss.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        let composed = CrossEntropy::default().composed(logits, labels);
        composed.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for (n, n_classes) in [(1, 1), (3, 2), (7, 33), (20, 1_000)] {
            let values: Vec<f32> = (0..n * n_classes).map(|i| (i as f32 * 0.37).sin() * 5.0).collect();
            let labels: Vec<i32> =
                (0..n).map(|i| if i % 3 == 2 { -100 } else { i * 7 % n_classes }).collect();
            for label_smoothing in [0.0, 0.1] {
                let loss = CrossEntropy { label_smoothing, ignored_label: Some(-100) };
                let run = |fused: bool| {
                    let logits = TensorData::new(values.clone(), [n, n_classes]);
                    let logits = Tensor::<2>::from_data(logits, &device).require_grad();
                    let labels = Tensor::<1, Int>::from_data(labels.as_slice(), &device);
                    let y = match fused {
                        true => loss.forward(logits.clone(), labels),
                        false => loss.composed(logits.clone(), labels),
                    };
                    let weights: Vec<f32> = (0..n).map(|i| 1.0 + i as f32).collect();
                    let weights = Tensor::<1>::from_data(weights.as_slice(), &device);
                    let grads = (y.clone() * weights).sum().backward();
                    (y.into_data(), logits.grad(&grads).unwrap().into_data())
                };
                let ((y, dx), (expected, expected_dx)) = (run(true), run(false));
                y.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(1e-5, 1e-5));
                dx.assert_approx_eq::<f32>(&expected_dx, Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }
}
