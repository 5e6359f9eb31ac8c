//! Pair classification: which pairs match, by a threshold on their similarity.

use super::{Similarity, Vectors, scores};
use crate::confusion::ConfusionMatrix;
use crate::figures::Figures;

/// How well a score threshold separates matching pairs from others.
///
/// A pair is predicted to match if its score is at least the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairScores {
    /// The best accuracy of any threshold.
    pub accuracy: f64,
    /// The threshold of the best accuracy.
    pub accuracy_threshold: f64,
    /// The best F1 of any threshold.
    pub f1: f64,
    /// The threshold of the best F1.
    pub f1_threshold: f64,
    /// The precision at that threshold.
    pub precision: f64,
    /// The recall at that threshold.
    pub recall: f64,
    /// The area under the precision–recall steps, as scikit-learn's `average_precision_score`.
    pub average_precision: f64,
    /// Matthews' correlation at the threshold of the best F1.
    pub matthews: f64,
}

/// The scores of a threshold, as computed by sentence-transformers' `BinaryClassificationEvaluator`.
///
/// As there, thresholds lie between neighbouring scores, so none below all scores is tried. Tied pairs keep
/// their order, and a threshold may split them: with many ties the accuracy is optimistic. If no threshold
/// helps, the accuracy threshold is -1 and the F1 threshold 0. Negate distances; sentence-transformers 3 to 5
/// sort negated distances the wrong way round, and this does not.
///
/// # Panics
/// If the numbers of labels and scores differ, or a score is NaN.
pub fn pair_scores(scores: &[f64], together: &[bool]) -> PairScores {
    assert_eq!(scores.len(), together.len(), "a label for each score");
    assert!(!scores.iter().any(|score| score.is_nan()), "a score is NaN");
    let mut rows: Vec<(f64, bool)> = scores.iter().copied().zip(together.iter().copied()).collect();
    rows.sort_by(|(a, _), (b, _)| (b + 0.0).total_cmp(&(a + 0.0)));
    let n_together = together.iter().filter(|together| **together).count();
    let mut best = PairScores {
        accuracy: 0.0,
        accuracy_threshold: -1.0,
        f1: 0.0,
        f1_threshold: 0.0,
        precision: 0.0,
        recall: 0.0,
        average_precision: average_precision(&rows, n_together),
        matthews: 0.0,
    };
    let mut right = 0;
    for (place, pair) in rows.windows(2).enumerate() {
        right += usize::from(pair[0].1);
        let above = place + 1;
        let threshold = (pair[0].0 + pair[1].0) / 2.0;
        let negatives_below = rows.len() - n_together - (above - right);
        let accuracy = (right + negatives_below) as f64 / rows.len() as f64;
        if accuracy > best.accuracy {
            (best.accuracy, best.accuracy_threshold) = (accuracy, threshold);
        }
        if right == 0 {
            continue;
        }
        let (precision, recall) = (right as f64 / above as f64, right as f64 / n_together as f64);
        let f1 = 2.0 * precision * recall / (precision + recall);
        if f1 > best.f1 {
            (best.f1, best.f1_threshold, best.precision, best.recall) = (f1, threshold, precision, recall);
        }
    }
    let mut matrix = ConfusionMatrix::new(2);
    rows.iter().for_each(|(score, together)| {
        matrix.add(usize::from(*together), usize::from(*score >= best.f1_threshold));
    });
    best.matthews = matrix.matthews();
    best
}

/// The mean, over matching pairs, of the precision among all pairs that score at least as high; 0 without
/// any.
pub(crate) fn average_precision(rows: &[(f64, bool)], n_together: usize) -> f64 {
    let (mut above, mut right, mut sum) = (0, 0, 0.0);
    for equal in rows.chunk_by(|a, b| a.0 == b.0) {
        let new = equal.iter().filter(|(_, together)| *together).count();
        above += equal.len();
        right += new;
        sum += new as f64 / n_together.max(1) as f64 * (right as f64 / above as f64);
    }
    sum
}

/// The [`PairScores`] of each similarity, named as in sentence-transformers: `cosine_ap`, `cosine_accuracy`,
/// `cosine_accuracy_threshold`, `cosine_f1`, `cosine_f1_threshold`, `cosine_precision`, `cosine_recall`, `cosine_mcc`. The
/// average precision of the first one is the main figure.
///
/// # Panics
/// If the numbers of vectors and labels differ, or there is no similarity.
pub fn pair_figures(
    first: Vectors,
    second: Vectors,
    together: &[bool],
    similarities: &[Similarity],
) -> Figures {
    let of_one = |similarity: &Similarity| {
        let found = pair_scores(&scores(first, second, *similarity), together);
        let figures = [
            ("ap", found.average_precision),
            ("accuracy", found.accuracy),
            ("accuracy_threshold", found.accuracy_threshold),
            ("f1", found.f1),
            ("f1_threshold", found.f1_threshold),
            ("precision", found.precision),
            ("recall", found.recall),
            ("mcc", found.matthews),
        ];
        figures.map(|(name, value)| (format!("{}_{name}", similarity.name()), value))
    };
    Figures::new(together.len(), similarities.iter().flat_map(of_one))
}
