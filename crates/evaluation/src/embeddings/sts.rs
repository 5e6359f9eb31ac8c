//! Semantic textual similarity: correlation of pairs' similarities with human scores.

use super::{Similarity, Vectors};
use crate::correlation::{pearson, spearman};
use crate::figures::Figures;

/// The similarity of each pair of vectors.
///
/// # Panics
/// If the numbers of vectors differ.
pub fn scores(first: Vectors, second: Vectors, similarity: Similarity) -> Vec<f64> {
    assert_eq!(first.len(), second.len(), "pairs of vectors");
    first.iter().zip(second.iter()).map(|(first, second)| similarity.of(first, second)).collect()
}

/// Correlations of similarities with `gold`, named as in sentence-transformers' `EmbeddingSimilarityEvaluator`:
/// `spearman_cosine`, `pearson_cosine`, and so on for each similarity. The first one is the main figure.
///
/// # Panics
/// If the numbers of vectors and scores differ, or there is no similarity.
pub fn sts_figures(first: Vectors, second: Vectors, gold: &[f64], similarities: &[Similarity]) -> Figures {
    let of_one = |similarity: &Similarity| {
        let (name, scores) = (similarity.name(), scores(first, second, *similarity));
        [
            (format!("spearman_{name}"), spearman(&scores, gold)),
            (format!("pearson_{name}"), pearson(&scores, gold)),
        ]
    };
    Figures::new(gold.len(), similarities.iter().flat_map(of_one))
}
