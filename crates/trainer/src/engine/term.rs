//! The terms of a loss.

use std::borrow::Cow;

/// A term of a loss at a step of a run: a mean and its weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// Its name in metrics; the same at every step.
    pub name: Cow<'static, str>,
    /// The mean's factor in the loss. Metrics show the unweighted mean, and the weighted loss.
    pub weight: f64,
}

impl Term {
    /// A term with weight 1.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), weight: 1.0 }
    }

    /// The term with this weight.
    pub fn with_weight(self, weight: f64) -> Self {
        Self { weight, ..self }
    }
}

/// The loss of terms with these means.
pub(crate) fn weighted(terms: &[Term], means: &[f64]) -> f64 {
    means.iter().zip(terms).map(|(mean, term)| mean * term.weight).sum()
}
