//! Similarity of words.

use super::WordVectors;
use crate::correlation::{pearson, spearman};
use crate::embeddings::Similarity;

/// How cosines of pairs of words correlate with people's scores. NaN for fewer than two pairs, or where nothing varies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WordSimilarity {
    /// Spearman's correlation, the usual figure.
    pub spearman: f64,
    /// Pearson's correlation.
    pub pearson: f64,
    /// Pairs whose words both have vectors: the others are left out.
    pub found: usize,
}

/// Compares cosines of pairs with their scores, as gensim's `KeyedVectors.evaluate_word_pairs` does.
pub fn word_similarity<T: AsRef<str>>(vectors: &WordVectors, pairs: &[(T, T, f64)]) -> WordSimilarity {
    let scored = |(a, b, score): &(T, T, f64)| {
        let [a, b] = [vectors.find(a.as_ref())?, vectors.find(b.as_ref())?];
        Some((Similarity::Cosine.of(vectors.get(a), vectors.get(b)), *score))
    };
    let (cosines, scores): (Vec<f64>, Vec<f64>) = pairs.iter().filter_map(scored).unzip();
    WordSimilarity {
        spearman: spearman(&cosines, &scores),
        pearson: pearson(&cosines, &scores),
        found: cosines.len(),
    }
}
