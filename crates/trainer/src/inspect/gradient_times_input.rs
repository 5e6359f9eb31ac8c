//! The gradient times the word embedding.

use super::explained::{Explained, summed};
use crate::Result;

/// `Σ_d x_id ∂F/∂x_id` of each token `i`, where `x` are the word embeddings (Shrikumar et al. 2016).
///
/// # Errors
/// A model whose weights have no gradient.
pub(super) fn gradient_times_input(explained: &Explained<'_>) -> Result<[Vec<f64>; 2]> {
    let words = explained.words();
    let gradients = explained.gradients(&words)?;
    Ok(explained
        .split(gradients.into_iter().zip(words).map(|(gradient, words)| summed(gradient, words)).collect()))
}
