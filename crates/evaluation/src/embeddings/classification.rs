//! Classification of vectors by a linear probe.

use super::{LogisticConfig, LogisticRegression, Vectors};
use crate::Result;
use crate::confusion::ConfusionMatrix;
use crate::figures::Figures;
use crate::scores::{Average, ZeroDivision};

/// The result of a linear probe.
#[derive(Clone, Debug)]
pub struct LinearProbe {
    /// The classifier.
    pub classifier: LogisticRegression,
    /// The probability of each class for each test vector.
    pub probabilities: Vec<Vec<f64>>,
    /// The predicted class of each test vector.
    pub predicted: Vec<usize>,
    /// `accuracy` and `f1_macro`.
    pub figures: Figures,
}

/// Fits a [`LogisticRegression`] to training vectors and predicts the classes of test vectors. The F1 is
/// scikit-learn's `f1_score(average="macro")`.
///
/// # Errors
/// Those of [`LogisticRegression::fit`].
///
/// # Panics
/// If the numbers of labels and vectors differ, a label is not below `n_classes`, or the widths
/// differ.
pub fn linear_probe(
    (train, train_labels): (Vectors, &[usize]),
    (test, test_labels): (Vectors, &[usize]),
    n_classes: usize,
    config: LogisticConfig,
    step_done: &mut dyn FnMut(usize),
) -> Result<LinearProbe> {
    assert_eq!(test.len(), test_labels.len(), "a label for each vector");
    let classifier = LogisticRegression::fit(train, train_labels, n_classes, config, step_done)?;
    let probabilities: Vec<Vec<f64>> = test.iter().map(|vector| classifier.probabilities(vector)).collect();
    let predicted: Vec<usize> = test.iter().map(|vector| classifier.predict(vector)).collect();
    let mut matrix = ConfusionMatrix::new(n_classes);
    test_labels.iter().zip(&predicted).for_each(|(gold, predicted)| matrix.add(*gold, *predicted));
    let f1_macro = matrix.average(Average::Macro, ZeroDivision::Zero).f1;
    let figures = Figures::new(test.len(), [("accuracy", matrix.accuracy()), ("f1_macro", f1_macro)]);
    Ok(LinearProbe { classifier, probabilities, predicted, figures })
}
