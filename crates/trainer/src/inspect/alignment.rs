//! Words of a source and of its target that belong together.

use super::attention::entropy_of;
use super::matrix::Matrix;
use crate::translate::WordAlignment;
use cloze_evaluation::inspection::{Alignment, Token};

/// The alignment by the attention of the last layer, the mean of its heads: row `i` is the step that reads the target's token
/// `i` and writes the next one. A word's attention is the mean over its pieces, of a source word the sum, as in
/// [`Translation::alignment`](crate::translate::Translation::alignment).
pub(super) fn alignment(attention: &Matrix, source: &[Token], target: &[Token]) -> Alignment {
    let n_words =
        |tokens: &[Token]| tokens.iter().filter_map(|token| token.word).max().map_or(0, |last| last + 1);
    let (n_source, n_target) = (n_words(source), n_words(target));
    let mut weights = vec![(vec![0.0; n_source], 0_usize); n_target];
    for (step, token) in target.iter().enumerate().skip(1) {
        let Some(word) = token.word else { continue };
        let (sums, count) = &mut weights[word];
        *count += 1;
        for (share, token) in attention.mean_of_rows(&[step - 1]).iter().zip(source) {
            if let Some(word) = token.word {
                sums[word] += share;
            }
        }
    }
    let mean =
        |(sums, count): (Vec<f64>, usize)| sums.into_iter().map(|sum| sum / count.max(1) as f64).collect();
    let weights: Vec<Vec<f64>> = weights.into_iter().map(mean).collect();
    let entropy = |row: &Vec<f64>| {
        let sum: f64 = row.iter().sum();
        row.iter().map(|share| entropy_of(share / sum.max(f64::MIN_POSITIVE))).sum()
    };
    let entropies = weights.iter().map(entropy).collect();
    let floats = weights.into_iter().map(|row| row.into_iter().map(|share| share as f32).collect()).collect();
    Alignment { pairs: WordAlignment { weights: floats }.pairs(), entropies }
}
