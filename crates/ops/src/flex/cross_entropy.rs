//! Cross-entropy: one pass over the logits, whose memory the gradient reuses.

use super::vector::{exp, max, sum, vectorised};
use super::{Input, dense, indices, op, output, rows, tensor, values, values_mut};
use crate::CrossEntropy;
use burn::tensor::{Int, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;
use std::sync::Arc;

vectorised! {
    /// `log Σ exp(x)`
    fn log_sum_exp(x: &[f32]) -> f32 {
        let greatest = max(x);
        greatest + sum([x], |[x]| exp(x - greatest)).ln()
    }

    fn total(x: &[f32]) -> f32 {
        sum([x], |[x]| x)
    }

    fn weighted_total(x: &[f32], weights: &[f32]) -> f32 {
        let weights = &weights[..x.len()];
        sum([x, weights], |[x, weight]| x * weight)
    }

    /// Logits to `gradient · (weight · softmax − spread)`.
    fn row_backward(x: &mut [f32], log_sum: f32, weight: f32, spread: f32, gradient: f32) {
        for x in x {
            *x = (exp(*x - log_sum) * weight - spread) * gradient;
        }
    }

    /// As above, with each class's share of the spread.
    fn weighted_row_backward(
        x: &mut [f32], log_sum: f32, weight: f32, spread: f32, shares: &[f32], gradient: f32
    ) {
        for (x, share) in x.iter_mut().zip(shares) {
            *x = (exp(*x - log_sum) * weight - spread * share) * gradient;
        }
    }
}

/// The target for a label: `right` for the label plus `spread · share_c` for each class `c`, both times the
/// class weights.
#[derive(Debug, Clone)]
struct Target {
    smoothing: f32,
    weights: Option<Arc<[f32]>>,
    /// The sum of the weights, or the number of classes without them.
    total: f32,
}

impl Target {
    fn new(options: &CrossEntropy, n_classes: usize) -> Self {
        let weights = options.class_weights.clone();
        let total = weights.as_ref().map_or(n_classes as f32, |weights| weights.iter().sum());
        Self { smoothing: options.label_smoothing as f32, weights, total }
    }

    /// The label's part.
    fn right(&self, label: usize) -> f32 {
        (1.0 - self.smoothing) * self.weights.as_ref().map_or(1.0, |weights| weights[label])
    }

    /// Each class's part, before its weight.
    fn spread(&self, n_classes: usize) -> f32 {
        self.smoothing / n_classes as f32
    }

    fn loss(&self, x: &[f32], label: usize, log_sum: f32) -> f32 {
        let right = self.right(label) * (log_sum - x[label]);
        if self.smoothing == 0.0 {
            return right;
        }
        let logits = match &self.weights {
            Some(weights) => weighted_total(x, weights),
            None => total(x),
        };
        right + self.spread(x.len()) * (self.total * log_sum - logits)
    }

    /// Logits to their gradient.
    fn backward(&self, x: &mut [f32], label: usize, log_sum: f32, gradient: f32) {
        let (right, spread) = (self.right(label), self.spread(x.len()));
        let weight = right + spread * self.total;
        match &self.weights {
            Some(shares) => weighted_row_backward(x, log_sum, weight, spread, shares, gradient),
            None => row_backward(x, log_sum, weight, spread, gradient),
        }
        x[label] -= right * gradient;
    }
}

#[derive(Debug, Clone)]
struct State {
    logits: FlexTensor,
    /// `None` for ignored rows.
    labels: Vec<Option<usize>>,
    log_sums: Vec<f32>,
    target: Target,
}

#[derive(Debug)]
struct Loss;

impl Backward<Flex, 1> for Loss {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("cross_entropy_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let State { mut logits, labels, log_sums, target } = ops.state;
        let [Some(parent)] = ops.parents else {
            return;
        };
        let (_, n_classes) = rows(&logits);
        // In place: nothing else holds the logits any more in a training step.
        let rows = values_mut(&mut logits).par_chunks_exact_mut(n_classes).zip(&labels);
        rows.zip(&log_sums).zip(values(&gradient)).for_each(
            |(((x, label), log_sum), gradient)| match label {
                Some(label) => target.backward(x, *label, *log_sum, *gradient),
                None => x.fill(0.0),
            },
        );
        grads.register::<Flex>(parent.id, logits);
    }
}

pub(crate) fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>, options: &CrossEntropy) -> Tensor<1> {
    op!("cross_entropy");
    let [n, n_classes] = logits.dims();
    let labels: Vec<Option<usize>> = match options.ignored_label {
        None => indices(labels).into_iter().map(Some).collect(),
        Some(ignored) => {
            let labels = labels.into_data();
            let label = |label: i64| usize::try_from(label).expect("a label is not negative");
            labels.iter::<i64>().map(|id| (id != ignored).then(|| label(id))).collect()
        }
    };
    assert_eq!(labels.len(), n, "one label for each row of logits");
    assert!(labels.iter().flatten().all(|label| *label < n_classes), "a label is below {n_classes}");
    let target = Target::new(options, n_classes);
    let Input { value: logits, node } = Input::dense(logits);
    let (losses, log_sums): (Vec<f32>, Vec<f32>) = values(&logits)
        .par_chunks_exact(n_classes)
        .zip(&labels)
        .map(|(x, label)| {
            let Some(label) = label else {
                return (0.0, 0.0);
            };
            let log_sum = log_sum_exp(x);
            let loss = target.loss(x, *label, log_sum);
            (loss, log_sum)
        })
        .unzip();
    let losses = tensor(losses, Shape::new([n]));
    output(Loss, [node], losses, || State { logits, labels, log_sums, target })
}
