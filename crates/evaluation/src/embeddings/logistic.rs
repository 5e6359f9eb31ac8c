//! Logistic regression with an L2 penalty.

use rayon::prelude::*;

use super::{Vectors, lbfgs};
use crate::{EvaluationError, Result};

/// Vectors whose losses one thread sums. Fixed chunks make the sum independent of the number of threads.
const TOGETHER: usize = 256;

/// Settings of [`LogisticRegression::fit`]. Defaults: scikit-learn's `C`, and a tolerance tight enough to
/// reach the minimum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogisticConfig {
    /// Inverse regularisation strength: smaller values mean a stronger penalty.
    pub c: f64,
    /// Maximum L-BFGS steps.
    pub max_iterations: usize,
    /// The largest gradient component at which the minimum counts as reached.
    pub tolerance: f64,
}

impl Default for LogisticConfig {
    fn default() -> Self {
        Self { c: 1.0, max_iterations: 1000, tolerance: 1e-8 }
    }
}

/// A linear classifier: softmax over the classes, or a logistic function for two.
///
/// Its weights minimise `(1/n) Σ cross-entropy + ‖W‖² / (2·C·n)`, with unpenalised biases: the objective of
/// scikit-learn's `LogisticRegression(C)`. It is strictly convex in the weights, so both find the same ones.
#[derive(Clone, Debug, PartialEq)]
pub struct LogisticRegression {
    /// For each class, or for the second of two: its weights, then its bias.
    parameters: Vec<f64>,
    width: usize,
    n_classes: usize,
    objective: f64,
    iterations: usize,
    is_converged: bool,
}

impl LogisticRegression {
    /// Fits a classifier of vectors into classes numbered from 0. `step_done` is called after each
    /// step.
    ///
    /// # Errors
    /// [`EvaluationError::ClassWithoutExamples`] for a class below `n_classes` that does not occur;
    /// [`EvaluationError::OneClass`].
    ///
    /// # Panics
    /// If the numbers of labels and vectors differ, a label is not below `n_classes`, or `config.c` is not
    /// above 0.
    pub fn fit(
        vectors: Vectors,
        labels: &[usize],
        n_classes: usize,
        config: LogisticConfig,
        step_done: &mut dyn FnMut(usize),
    ) -> Result<Self> {
        assert_eq!(vectors.len(), labels.len(), "a label for each vector");
        assert!(config.c > 0.0, "C is {}", config.c);
        let mut occurs = vec![false; n_classes];
        labels.iter().for_each(|label| occurs[*label] = true);
        if let Some(class) = occurs.iter().position(|occurs| !occurs) {
            return Err(EvaluationError::ClassWithoutExamples { class });
        }
        if n_classes < 2 {
            return Err(EvaluationError::OneClass);
        }
        let width = vectors.width();
        let rows = if n_classes == 2 { 1 } else { n_classes };
        let objective = |parameters: &[f64], gradient: &mut [f64]| {
            objective(vectors, labels, config.c, parameters, gradient)
        };
        let start = vec![0.0; rows * (width + 1)];
        let found = lbfgs::minimize(start, config.max_iterations, config.tolerance, objective, step_done);
        Ok(Self {
            parameters: found.point,
            width,
            n_classes,
            objective: found.value,
            iterations: found.iterations,
            is_converged: found.is_converged,
        })
    }

    /// The probability of each class.
    ///
    /// # Panics
    /// If the vector has another width.
    pub fn probabilities(&self, vector: &[f32]) -> Vec<f64> {
        assert_eq!(vector.len(), self.width, "a vector of another width");
        let mut scores: Vec<f64> =
            self.parameters.chunks_exact(self.width + 1).map(|row| score(row, vector)).collect();
        if self.n_classes == 2 {
            scores.insert(0, 0.0);
        }
        softmax(&mut scores);
        scores
    }

    /// The most probable class; ties go to the first.
    ///
    /// # Panics
    /// If the vector has another width.
    pub fn predict(&self, vector: &[f32]) -> usize {
        let all = self.probabilities(vector).into_iter().enumerate();
        all.fold((0, -1.0), |best, new| if new.1 > best.1 { new } else { best }).0
    }

    /// The weights of a class, or of the second of two for the class 0; its bias is the last number.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn parameters(&self, class: usize) -> &[f64] {
        &self.parameters[class * (self.width + 1)..][..self.width + 1]
    }

    /// The minimum of the objective.
    pub fn objective(&self) -> f64 {
        self.objective
    }

    /// Number of steps taken.
    pub fn iterations(&self) -> usize {
        self.iterations
    }

    /// Whether the minimum was reached.
    pub fn is_converged(&self) -> bool {
        self.is_converged
    }
}

/// `w·x + b`, for a row of weights and bias.
fn score(row: &[f64], vector: &[f32]) -> f64 {
    let (bias, weights) = row.split_last().expect("a row ends with its bias");
    weights.iter().zip(vector).map(|(weight, value)| weight * f64::from(*value)).sum::<f64>() + bias
}

/// Turns scores into probabilities and returns their log-sum-exp.
fn softmax(scores: &mut [f64]) -> f64 {
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = (*score - most).exp());
    let sum: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
    most + sum.ln()
}

/// The objective and its gradient.
fn objective(vectors: Vectors, labels: &[usize], c: f64, parameters: &[f64], gradient: &mut [f64]) -> f64 {
    let row_len = vectors.width() + 1;
    let rows = parameters.len() / row_len;
    let starts: Vec<usize> = (0..vectors.len()).step_by(TOGETHER).collect();
    let part = |start: &usize| {
        let mut loss = 0.0;
        let mut slopes = vec![0.0; parameters.len()];
        let mut scores = Vec::with_capacity(rows + 1);
        let places = *start..(start + TOGETHER).min(vectors.len());
        for (place, label) in places.clone().zip(&labels[places]) {
            let (vector, label) = (vectors.get(place), *label);
            scores.clear();
            // Of two classes the first one's score is 0.
            scores.extend((rows == 1).then_some(0.0));
            scores.extend(parameters.chunks_exact(row_len).map(|row| score(row, vector)));
            let right = scores[label];
            loss += softmax(&mut scores) - right;
            scores[label] -= 1.0;
            let errors = &scores[usize::from(rows == 1)..];
            for (slopes, error) in slopes.chunks_exact_mut(row_len).zip(errors) {
                slopes.iter_mut().zip(vector).for_each(|(slope, value)| *slope += error * f64::from(*value));
                slopes[row_len - 1] += error;
            }
        }
        (loss, slopes)
    };
    let parts: Vec<(f64, Vec<f64>)> = starts.par_iter().map(part).collect();
    let n = vectors.len() as f64;
    gradient.fill(0.0);
    let mut loss = 0.0;
    for (part, slopes) in &parts {
        loss += part;
        gradient.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope);
    }
    let mut squares = 0.0;
    for (place, (slope, parameter)) in gradient.iter_mut().zip(parameters).enumerate() {
        *slope /= n;
        if place % row_len < row_len - 1 {
            *slope += parameter / (c * n);
            squares += parameter * parameter;
        }
    }
    loss / n + squares / (2.0 * c * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_cannot_be_learnt_are_refused() {
        let values = [0.0_f32, 1.0, 2.0];
        let vectors = Vectors::new(&values, 1).unwrap();
        let fit = |labels: &[usize], n_classes| {
            let config = LogisticConfig::default();
            LogisticRegression::fit(vectors, labels, n_classes, config, &mut |_| ()).unwrap_err().to_string()
        };
        assert_eq!(fit(&[0, 0, 0], 1), "there is one class only; expected two or more");
        assert_eq!(fit(&[0, 2, 2], 3), "class 1 has no examples; expected one or more of each class");
    }
}
