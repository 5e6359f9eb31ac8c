//! The terms of a loss.

use std::borrow::Cow;

/// A term of a loss, at a step of a run: a mean, and what it counts in the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// What metrics call it; the same at every step.
    pub name: Cow<'static, str>,
    /// The mean's factor in the loss. Metrics have the mean as it is, and the loss with the factors.
    pub weight: f64,
}

impl Term {
    /// A term that counts as it is.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), weight: 1.0 }
    }

    /// The term with this weight in place of its own.
    pub fn with_weight(self, weight: f64) -> Self {
        Self { weight, ..self }
    }
}

/// The loss of terms with these means.
pub(crate) fn weighted(terms: &[Term], means: &[f64]) -> f64 {
    means.iter().zip(terms).map(|(mean, term)| mean * term.weight).sum()
}
