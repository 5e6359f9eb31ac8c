//! BLEU of captions (Papineni et al. 2002), as in pycocoevalcap.

use super::{CaptionScores, MAX_ORDER, pairs};
use crate::Result;
use crate::translation::{count, matches, numbered, words};

/// Added to the n-grams of a caption and to the length of references, which may be zero.
const SMALL: f64 = 1e-9;

/// Added to matches and to the length of captions: a score without matches is tiny, and its logarithm finite.
const TINY: f64 = 1e-15;

/// BLEU-1 to BLEU-4 (Papineni et al. 2002), in this order:
///
/// ```text
/// BLEU-N = min(1, exp(1 − r / c)) · (p₁ · … · p_N)^(1/N)
/// p_n    = (n-grams of candidates that are in references, at most as often as in one of them) / (n-grams of candidates)
/// ```
///
/// where c is the length of the candidate in tokens, and r that of the reference whose length is closest, the shorter
/// one of two that are as close. The corpus score has the sums of all images in place of each number.
///
/// This is the BLEU of pycocoevalcap, with `option="closest"`: 1e-15 is added to matches and to c, and 1e-9 to
/// n-grams and to r. It has no other smoothing, so a caption without a match of four tokens has a BLEU-4 of nearly
/// zero. [`translation::Bleu`](crate::translation::Bleu) is sacreBLEU's, with its tokenization and smoothing.
///
/// # Errors
/// [`EvaluationError::NoLines`](crate::EvaluationError::NoLines) without candidates,
/// [`EvaluationError::CaptionCount`](crate::EvaluationError::CaptionCount) for another number of images with
/// references, and [`EvaluationError::NoReference`](crate::EvaluationError::NoReference).
pub fn bleu<S: AsRef<str>>(
    candidates: &[impl AsRef<str>],
    references: &[impl AsRef<[S]>],
) -> Result<[CaptionScores; MAX_ORDER]> {
    let mut scores: [CaptionScores; MAX_ORDER] = Default::default();
    let mut all = Counts::default();
    for (candidate, references) in pairs(candidates, references)? {
        let counts = Counts::of(candidate, &references);
        scores.iter_mut().zip(counts.scores()).for_each(|(scores, score)| scores.images.push(score));
        all.add(&counts);
    }
    scores.iter_mut().zip(all.scores()).for_each(|(scores, score)| scores.corpus = score);
    Ok(scores)
}

/// What BLEU is computed from, of one image or of many.
#[derive(Default)]
struct Counts {
    /// Tokens of the candidate.
    len: u64,
    /// Tokens of the reference that is closest in length.
    reference_len: u64,
    /// The candidate's n-grams that its references have, by order.
    matches: [u64; MAX_ORDER],
    /// The candidate's n-grams, by order.
    ngrams: [u64; MAX_ORDER],
}

impl Counts {
    fn of(candidate: &str, references: &[&str]) -> Self {
        let (candidate, references) =
            numbered(words(candidate), references.iter().map(|reference| words(reference)));
        let len = candidate.len();
        let closest = references.iter().map(Vec::len).min_by_key(|other| (len.abs_diff(*other), *other));
        let mut counts =
            Self { len: len as u64, reference_len: closest.unwrap_or(0) as u64, ..Self::default() };
        let found = matches(&candidate, &references, MAX_ORDER);
        counts.matches.iter_mut().zip(found).for_each(|(matches, found)| *matches = found);
        for (order, ngrams) in (1..).zip(&mut counts.ngrams) {
            *ngrams = count(len, order) as u64;
        }
        counts
    }

    fn add(&mut self, other: &Self) {
        self.len += other.len;
        self.reference_len += other.reference_len;
        self.matches.iter_mut().zip(other.matches).for_each(|(sum, more)| *sum += more);
        self.ngrams.iter_mut().zip(other.ngrams).for_each(|(sum, more)| *sum += more);
    }

    /// BLEU-1 to BLEU-4.
    fn scores(&self) -> [f64; MAX_ORDER] {
        let ratio = (self.len as f64 + TINY) / (self.reference_len as f64 + SMALL);
        let brevity_penalty = if ratio < 1.0 { (1.0 - 1.0 / ratio).exp() } else { 1.0 };
        let mut product = 1.0;
        std::array::from_fn(|place| {
            product *= (self.matches[place] as f64 + TINY) / (self.ngrams[place] as f64 + SMALL);
            product.powf(1.0 / (place + 1) as f64) * brevity_penalty
        })
    }
}
