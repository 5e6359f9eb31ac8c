use burn::tensor::{Int, Tensor, TensorData, activation};
use std::sync::Arc;

#[cfg(feature = "cube")]
use crate::cube;
#[cfg(feature = "flex")]
use crate::flex;

/// Cross-entropy of each row, `−log softmax(logits)[label]`, in nats.
///
/// # Shapes
/// - `logits`: `[n, n_classes]`; `labels`: `[n]`, each in `0..n_classes`; returns `[n]`
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropy::default().forward(logits, labels)
}

/// Cross-entropy with class weights, label smoothing and ignored rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CrossEntropy {
    /// The share `ε` of the target spread over all classes, including the correct one (Szegedy et al.
    /// 2016, §7; as in PyTorch).
    pub label_smoothing: f64,
    /// Rows with this label have loss 0 and no gradient.
    pub ignored_label: Option<i64>,
    /// The weight of each class's part of a target, `n_classes` numbers; `None` means 1 for all.
    pub class_weights: Option<Arc<[f32]>>,
}

impl CrossEntropy {
    /// The loss of each row, in nats: for a target `t` and class weights `w`, `−Σ w_c · t_c · log p_c`, as
    /// PyTorch's `CrossEntropyLoss(weight, label_smoothing = ε, reduction = "none")`. The mean that PyTorch
    /// takes is the sum divided by [`total_weight`](Self::total_weight).
    ///
    /// # Shapes
    /// - `logits`: `[n, n_classes]`; `labels`: `[n]`, each in `0..n_classes` or the ignored one; returns `[n]`
    ///
    /// # Panics
    /// Unless there are `n_classes` class weights.
    pub fn forward(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        if let Some(weights) = &self.class_weights {
            let (n_weights, n_classes) = (weights.len(), logits.dims()[1]);
            assert_eq!(n_weights, n_classes, "{n_weights} class weights for {n_classes} classes");
        }
        #[cfg(feature = "flex")]
        if flex::takes(&logits) {
            return flex::cross_entropy::cross_entropy(logits, labels, self);
        }
        #[cfg(feature = "cube")]
        if cube::takes(&logits) {
            return cube::cross_entropy::cross_entropy(logits, labels, self);
        }
        self.composed(logits, labels)
    }

    /// The denominator of a mean over rows with these labels: the sum of the labels' class weights, or the
    /// number of labels without class weights. Ignored labels do not count.
    ///
    /// # Panics
    /// If a label has no class weight.
    pub fn total_weight(&self, labels: impl IntoIterator<Item = i64>) -> f64 {
        let counted = labels.into_iter().filter(|label| Some(*label) != self.ignored_label);
        match &self.class_weights {
            Some(weights) => counted.map(|label| f64::from(weights[label as usize])).sum(),
            None => counted.count() as f64,
        }
    }

    fn composed(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        let [n, n_classes] = logits.dims();
        let log_probs = activation::log_softmax(logits, 1);
        let ignored = self.ignored_label.map(|label| labels.clone().equal_elem(label));
        let labels = match &ignored {
            Some(ignored) => labels.mask_fill(ignored.clone(), 0),
            None => labels,
        };
        let weights = self.class_weights.as_ref().map(|weights| {
            Tensor::<1>::from_data(TensorData::new(weights.to_vec(), [n_classes]), &log_probs.device())
        });
        let right = log_probs.clone().gather(1, labels.clone().reshape([n, 1])).reshape([n]).neg();
        let right = match &weights {
            Some(weights) => right * weights.clone().select(0, labels),
            None => right,
        };
        let loss = match self.label_smoothing {
            0.0 => right,
            share => {
                let all = match weights {
                    Some(weights) => log_probs * weights.unsqueeze::<2>(),
                    None => log_probs,
                };
                let all = all.sum_dim(1).reshape([n]).neg();
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

    #[test]
    fn weights_and_smoothing_are_torchs() {
        // torch 2.9: x = tensor([[.5, -1.2, 2.], [1.5, .3, -.7], [-.4, .8, .1], [0., 1., -2.]]), y = tensor([2,
        // 0, 1, -100]); CrossEntropyLoss(weight=tensor([.5, 2., 1.25]), label_smoothing=e, reduction=r)(x, y).
        let device = Device::flex().autodiff();
        let x = [[0.5f32, -1.2, 2.0], [1.5, 0.3, -0.7], [-0.4, 0.8, 0.1], [0.0, 1.0, -2.0]];
        let labels = [2i32, 0, 1, -100];
        for (label_smoothing, rows, mean, first_gradient) in [
            (
                0.0,
                [0.292745f32, 0.172503, 1.173105, 0.000000],
                0.436894f32,
                [0.058847f32, 0.010750, -0.069598],
            ),
            (
                0.2,
                [0.769412f32, 0.567587, 1.183455, 0.000000],
                0.672121f32,
                [0.049958f32, -0.024805, -0.025153],
            ),
        ] {
            let class_weights = Some(Arc::from([0.5, 2.0, 1.25]));
            let loss = CrossEntropy { label_smoothing, ignored_label: Some(-100), class_weights };
            let total = loss.total_weight(labels.map(i64::from));
            assert_eq!(total, 3.75);
            type Form = fn(&CrossEntropy, Tensor<2>, Tensor<1, Int>) -> Tensor<1>;
            for form in [CrossEntropy::forward as Form, CrossEntropy::composed] {
                let logits = Tensor::<2>::from_data(x, &device).require_grad();
                let found = form(&loss, logits.clone(), Tensor::from_data(labels, &device));
                let found_mean = found.clone().sum() / total;
                let gradient = logits.grad(&found_mean.clone().backward()).unwrap();
                for (found, expected) in [
                    (found.into_data(), TensorData::from(rows)),
                    (found_mean.into_data(), TensorData::from([mean])),
                    (gradient.slice(0..1).into_data(), TensorData::from([first_gradient])),
                ] {
                    found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
                }
            }
        }
    }

    #[cfg(feature = "flex")]
    #[test]
    fn fused_and_composed_agree() {
        let device = Device::flex().autodiff();
        for (n, n_classes) in [(1, 1), (3, 2), (7, 33), (20, 1_000)] {
            let values: Vec<f32> = (0..n * n_classes).map(|i| (i as f32 * 0.37).sin() * 5.0).collect();
            let labels: Vec<i32> =
                (0..n).map(|i| if i % 3 == 2 { -100 } else { i * 7 % n_classes }).collect();
            let class_weights: Arc<[f32]> = (0..n_classes).map(|c| 0.5 + (c % 5) as f32 * 0.3).collect();
            for (label_smoothing, weighted) in [(0.0, false), (0.1, false), (0.0, true), (0.1, true)] {
                let class_weights = weighted.then(|| class_weights.clone());
                let loss = CrossEntropy { label_smoothing, ignored_label: Some(-100), class_weights };
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
