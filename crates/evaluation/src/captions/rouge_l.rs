//! ROUGE-L of captions (Lin 2004), as in pycocoevalcap.

use super::{CaptionScores, pairs};
use crate::Result;
use crate::translation::{numbered, words};

/// How many times more recall counts than precision.
const BETA: f64 = 1.2;

/// ROUGE-L (Lin 2004, section 3), the F-score of the longest common subsequence of tokens:
///
/// ```text
/// P = max over references of LCS(candidate, reference) / tokens of the candidate
/// R = max over references of LCS(candidate, reference) / tokens of the reference
/// ROUGE-L = (1 + β²) · P · R / (R + β² · P),  β = 1.2
/// ```
///
/// The corpus score is the mean over images. As in pycocoevalcap, P and R may come from different references, which
/// differs from the paper, and a candidate without tokens scores 1 beside a reference without tokens, otherwise 0.
/// Time grows with the product of the lengths of a caption and its reference.
///
/// # Errors
/// As [`bleu`](super::bleu).
pub fn rouge_l<S: AsRef<str>>(
    candidates: &[impl AsRef<str>],
    references: &[impl AsRef<[S]>],
) -> Result<CaptionScores> {
    let pairs = pairs(candidates, references)?;
    Ok(CaptionScores::mean_of(
        pairs.iter().map(|(candidate, references)| score(candidate, references)).collect(),
    ))
}

fn score(candidate: &str, references: &[&str]) -> f64 {
    let (candidate, references) =
        numbered(words(candidate), references.iter().map(|reference| words(reference)));
    if candidate.is_empty() {
        return if references.iter().any(Vec::is_empty) { 1.0 } else { 0.0 };
    }
    let (mut precision, mut recall) = (0.0_f64, 0.0_f64);
    for reference in references.iter().filter(|reference| !reference.is_empty()) {
        let common = common_len(&candidate, reference) as f64;
        precision = precision.max(common / candidate.len() as f64);
        recall = recall.max(common / reference.len() as f64);
    }
    if precision == 0.0 {
        return 0.0;
    }
    (1.0 + BETA * BETA) * precision * recall / (recall + BETA * BETA * precision)
}

/// The length of the longest common subsequence.
fn common_len(one: &[u32], other: &[u32]) -> usize {
    // `row[j]` is the length for the tokens of `one` so far and the first `j` of `other`.
    let mut row = vec![0; other.len() + 1];
    for token in one {
        let mut before = 0;
        for (place, of_other) in other.iter().enumerate() {
            let above = row[place + 1];
            row[place + 1] = if token == of_other { before + 1 } else { above.max(row[place]) };
            before = above;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The longest of all subsequences of `one` that `other` has.
    fn slow(one: &[u32], other: &[u32]) -> usize {
        let is_in_other = |kept: u32| {
            let mut rest = other.iter();
            let mut kept = (0..one.len()).filter(|place| kept >> place & 1 == 1);
            kept.all(|place| rest.any(|token| *token == one[place]))
        };
        let sizes = (0..1_u32 << one.len()).filter(|kept| is_in_other(*kept)).map(u32::count_ones);
        sizes.max().unwrap_or(0) as usize
    }

    proptest! {
        #[test]
        fn the_longest_common_subsequence_is_found(
            one in proptest::collection::vec(0..3_u32, 0..9),
            other in proptest::collection::vec(0..3_u32, 0..9),
        ) {
            prop_assert_eq!(common_len(&one, &other), slow(&one, &other));
        }
    }
}
