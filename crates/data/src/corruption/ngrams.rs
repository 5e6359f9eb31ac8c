//! ALBERT's masking: n-grams of whole words.

use super::lengths::Lengths;
use super::replacement::{Budget, FateOf, Replacement};
use super::words::{self, Start};
use super::{Corrupted, Corruption, Original};
use crate::random::Random;

/// ALBERT's n-gram masking (Lan et al. 2020, §4.1; google-research/albert, `create_masked_lm_predictions`).
///
/// ```text
/// p(n) = (1/n) / Σ_{k=1..N} (1/k)
/// ```
///
/// Words start n-grams in random order. Near a segment's end `p` is renormalised over the possible lengths;
/// an n-gram that exceeds the remaining budget is shortened; one that overlaps another is skipped. Each token
/// is independently masked, replaced at random, or kept, as in the reference.
///
/// Deviations:
/// - No n-gram crosses a special token, so none spans two segments, as in the reference.
/// - A sequence whose words all exceed the number of pieces to predict still gets predictions.
/// - No special token is drawn as a replacement.
pub(super) struct NGramMasking {
    budget: Budget,
    max_ngram: usize,
    lengths: Lengths,
    replacement: Replacement,
}

impl NGramMasking {
    pub fn new(budget: Budget, max_ngram: usize, replacement: Replacement) -> Self {
        Self { budget, max_ngram, lengths: Lengths::harmonic(max_ngram), replacement }
    }

    /// Number of words of an n-gram.
    fn length(&self, start: &Start<'_>, random: &mut Random) -> usize {
        let drawn = self.lengths.draw_at_most(start.touching(self.max_ngram), random);
        let fits = |n: &usize| start.span(*n).len() <= start.wanted;
        let n = (1..=drawn).rev().find(fits).unwrap_or(0);
        if start.meets_another(n) { 0 } else { n }
    }
}

impl Corruption for NGramMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let ngrams = words::spans(original, self.budget, random, |start, random| self.length(start, random));
        self.replacement.replace(original, ngrams, FateOf::Token, random)
    }
}

#[cfg(test)]
mod tests {
    use crate::corruption::tests::{MASK, assert_share, corruption, sequence};
    use crate::corruption::{MaskStats, MaskUnit, MaskingConfig, Original};
    use crate::random::Random;
    use proptest::prelude::*;

    fn ngrams() -> MaskingConfig {
        MaskingConfig { unit: MaskUnit::NGram, ..MaskingConfig::default() }
    }

    proptest! {
        #[test]
        fn ngrams_are_whole_words_within_the_budget(
            (ids, starts, maskable) in sequence(),
            probability in 0.0..=1.0f64,
            max_ngram in 1..6usize,
            max_predictions in 0..12usize,
            seed: u64,
        ) {
            let config =
                MaskingConfig { probability, max_predictions, max_ngram: Some(max_ngram), ..ngrams() };
            let original = Original::new(&ids, &starts, &maskable);
            let corrupted = corruption(&config).corrupt(&original, &mut Random::new(seed));
            let most = if max_predictions > 0 { max_predictions } else { usize::MAX };
            let wanted = ((ids.len() as f64 * probability).round() as usize).max(1).min(most);
            let predicted: usize = corrupted.spans().iter().map(|span| span.original.len()).sum();
            prop_assert!(predicted <= wanted || corrupted.spans().len() == 1 && predicted <= most);
            prop_assert_eq!(predicted == 0, !maskable.contains(&true));
            let mut end = 0;
            for span in corrupted.spans() {
                prop_assert_eq!(&span.original, &span.corrupted);
                let span = span.original.clone();
                prop_assert!(end <= span.start && !span.is_empty());
                end = span.end;
                prop_assert!(span.clone().all(|at| maskable[at]));
                prop_assert!(starts[span.start] || span.start == 0 || !maskable[span.start - 1]);
                // Only the one word of a sequence of long words is cut.
                let whole = end == ids.len() || starts[end] || !maskable[end];
                prop_assert!(whole || predicted == most && corrupted.spans().len() == 1);
                prop_assert!(span.clone().skip(1).filter(|at| starts[*at]).count() < max_ngram);
            }
        }
    }

    #[test]
    fn lengths_and_fates_are_the_papers() {
        let (n, rounds) = (3_000, 300);
        let (ids, starts) = (vec![9; n], vec![true; n]);
        let original = Original::new(&ids, &starts, &starts);
        // A low share, so that n-grams seldom meet.
        let corruption = corruption(&MaskingConfig { probability: 0.02, ..ngrams() });
        let (mut random, mut stats) = (Random::derive(4, &[]), MaskStats::default());
        let (mut lengths, mut mixed) = ([0u64; 4], 0);
        for _ in 0..rounds {
            let corrupted = corruption.corrupt(&original, &mut random);
            stats.add(&original, &corrupted);
            for span in corrupted.spans() {
                lengths[span.original.len()] += 1;
                let ids = &corrupted.ids()[span.corrupted.clone()];
                mixed += u64::from(ids.contains(&MASK) && ids.iter().any(|id| *id != MASK));
            }
        }
        assert_eq!(stats.predicted, 60 * rounds);
        let total: u64 = lengths.iter().sum();
        let share = |count: u64| count as f64 / total as f64;
        // The last one is cut at the budget, and longer ones meet others a little more often.
        for (n, expected) in [(1, 6.0 / 11.0), (2, 3.0 / 11.0), (3, 2.0 / 11.0)] {
            assert!(
                (share(lengths[n]) - expected).abs() < 0.025,
                "{n}: {}, expected {expected}",
                share(lengths[n])
            );
        }
        // Each token has a fate of its own.
        assert_share(stats.masked, stats.predicted, 0.8);
        assert_share(stats.random, stats.predicted, 0.1);
        assert_share(stats.kept, stats.predicted, 0.1);
        assert!(mixed > 1_000, "{mixed} n-grams have masks and others");
    }
}
