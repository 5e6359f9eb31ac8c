//! Cross-entropy: one pass over the logits, whose memory the gradient takes over.

use super::vector::{exp, max, sum, vectorised};
use super::{Input, dense, indices, op, output, rows, tensor, values, values_mut};
use crate::CrossEntropy;
use burn::tensor::{Int, Shape, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_flex::{Flex, FlexTensor};
use rayon::prelude::*;

vectorised! {
    /// `log Σ exp(x)`
    fn log_sum_exp(x: &[f32]) -> f32 {
        let greatest = max(x);
        greatest + sum(x.len(), |i| exp(x[i] - greatest)).ln()
    }

    fn total(x: &[f32]) -> f32 {
        sum(x.len(), |i| x[i])
    }

    /// Logits to `gradient · (softmax − spread)`.
    fn row_backward(x: &mut [f32], log_sum: f32, spread: f32, gradient: f32) {
        for x in x {
            *x = (exp(*x - log_sum) - spread) * gradient;
        }
    }
}

#[derive(Debug, Clone)]
struct State {
    logits: FlexTensor,
    /// None where the row does not count.
    labels: Vec<Option<usize>>,
    log_sums: Vec<f32>,
    smoothing: f32,
}

#[derive(Debug)]
struct Loss;

impl Backward<Flex, 1> for Loss {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        op!("cross_entropy_backward");
        let gradient = dense(grads.consume::<Flex>(&ops.node));
        let State { mut logits, labels, log_sums, smoothing } = ops.state;
        let [Some(parent)] = ops.parents else {
            return;
        };
        let (_, n_classes) = rows(&logits);
        let spread = smoothing / n_classes as f32;
        // In place: nothing else holds the logits any more in a training step.
        let rows = values_mut(&mut logits).par_chunks_exact_mut(n_classes).zip(&labels);
        rows.zip(&log_sums).zip(values(&gradient)).for_each(
            |(((x, label), log_sum), gradient)| match label {
                Some(label) => {
                    row_backward(x, *log_sum, spread, *gradient);
                    x[*label] -= (1.0 - smoothing) * gradient;
                }
                None => x.fill(0.0),
            },
        );
        grads.register::<Flex>(parent.id, logits);
    }
}

pub(crate) fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>, options: CrossEntropy) -> Tensor<1> {
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
    let smoothing = options.label_smoothing as f32;
    let Input { value: logits, node } = Input::dense(logits);
    let (losses, log_sums): (Vec<f32>, Vec<f32>) = values(&logits)
        .par_chunks_exact(n_classes)
        .zip(&labels)
        .map(|(x, label)| {
            let Some(label) = label else {
                return (0.0, 0.0);
            };
            let log_sum = log_sum_exp(x);
            let right = log_sum - x[*label];
            let loss = match smoothing {
                0.0 => right,
                _ => (1.0 - smoothing) * right + smoothing * (log_sum - total(x) / n_classes as f32),
            };
            (loss, log_sum)
        })
        .unzip();
    let losses = tensor(losses, Shape::new([n]));
    output(Loss, [node], losses, || State { logits, labels, log_sums, smoothing })
}
