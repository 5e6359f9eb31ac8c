//! SpanBERT's masking: spans of whole words.

use super::lengths::Lengths;
use super::replacement::{Budget, FateOf, Replacement};
use super::words::{self, Start};
use super::{Corrupted, Corruption, Original};
use crate::random::Random;

/// SpanBERT's span masking (Joshi et al. 2020, §3.1).
///
/// ```text
/// ℓ ~ Geometric(p), at most ℓ_max words; the start: any word that is not masked yet; until 15 % of the tokens are masked
/// ```
///
/// The lengths are renormalised over `1..=ℓ_max` as in facebookresearch/SpanBERT, which gives the paper's mean of 3.8
/// words. A span as a whole is masked, replaced at random, or kept.
///
/// Deviations:
/// - A span ends before a word of another span, so that spans never overlap (the reference joins them);
///   before a special token; and before a word longer than the remaining budget (the reference cuts the
///   word).
/// - Starts are uniform over words, as in the paper; the reference draws a token and goes back to its word's
///   start.
/// - The share is of all tokens and rounded, as for the other units; the reference excludes special ones and
///   rounds up.
/// - A sequence whose words all exceed the number of pieces to predict still gets predictions.
pub(super) struct SpanMasking {
    budget: Budget,
    lengths: Lengths,
    replacement: Replacement,
}

impl SpanMasking {
    pub fn new(budget: Budget, p: f64, max_span: usize, replacement: Replacement) -> Self {
        Self { budget, lengths: Lengths::geometric(p, max_span), replacement }
    }

    /// Number of words of a span.
    fn length(&self, start: &Start<'_>, random: &mut Random) -> usize {
        // A word that starts no span now is taken or too long, and stays so.
        if start.meets_another(1) {
            return 0;
        }
        let most = start.touching(self.lengths.draw(random));
        let fits = |n: &usize| !start.meets_another(*n) && start.span(*n).len() <= start.wanted;
        (1..=most).take_while(fits).count()
    }
}

impl Corruption for SpanMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let spans = words::spans(original, self.budget, random, |start, random| self.length(start, random));
        self.replacement.replace(original, spans, FateOf::Span, random)
    }
}

#[cfg(test)]
mod tests {
    use crate::corruption::tests::{MASK, assert_share, corruption, sequence};
    use crate::corruption::{MaskStats, MaskUnit, MaskingConfig, Original};
    use crate::random::Random;
    use proptest::prelude::*;

    fn spans() -> MaskingConfig {
        MaskingConfig { unit: MaskUnit::Span, ..MaskingConfig::default() }
    }

    proptest! {
        #[test]
        fn spans_are_whole_words_with_one_fate(
            (ids, starts, maskable) in sequence(),
            probability in 0.0..=1.0f64,
            max_span in 1..12usize,
            seed: u64,
        ) {
            let config = MaskingConfig { probability, max_span: Some(max_span), ..spans() };
            let original = Original::new(&ids, &starts, &maskable);
            let corrupted = corruption(&config).corrupt(&original, &mut Random::new(seed));
            let wanted = ((ids.len() as f64 * probability).round() as usize).max(1);
            let (mut end, mut predicted) = (0, 0);
            for span in corrupted.spans() {
                prop_assert_eq!(&span.original, &span.corrupted);
                let span = span.original.clone();
                prop_assert!(end <= span.start && !span.is_empty());
                end = span.end;
                predicted += span.len();
                prop_assert!(span.clone().all(|at| maskable[at]));
                prop_assert!(starts[span.start] || span.start == 0 || !maskable[span.start - 1]);
                prop_assert!(end == ids.len() || starts[end] || !maskable[end]);
                let words = 1 + span.clone().skip(1).filter(|at| starts[*at]).count();
                prop_assert!(words <= max_span);
                let masks = span.clone().filter(|at| corrupted.ids()[*at] == MASK).count();
                prop_assert!(masks == 0 || masks == span.len());
            }
            prop_assert!(predicted <= wanted || corrupted.spans().len() == 1);
            prop_assert_eq!(predicted == 0, !maskable.contains(&true));
            // More would have been masked had there been a word that fits.
            if predicted < wanted {
                let words = super::words::words(&original);
                let replaced = |at: usize| corrupted.spans().iter().any(|span| span.original.contains(&at));
                let fits = |word: &std::ops::Range<usize>| word.len() <= wanted - predicted;
                prop_assert!(!words.iter().any(|word| fits(word) && !replaced(word.start)));
            }
        }
    }

    #[test]
    fn lengths_starts_and_fates_are_the_papers() {
        // 2,000 words of one token and a low share, so that spans seldom meet.
        let (n, rounds) = (2_000, 400);
        let (ids, starts) = (vec![9; n], vec![true; n]);
        let original = Original::new(&ids, &starts, &starts);
        let corruption = corruption(&MaskingConfig { probability: 0.05, ..spans() });
        let (mut random, mut stats) = (Random::derive(4, &[]), MaskStats::default());
        let (mut lengths, mut quarters, mut fates) = ([0u64; 11], [0u64; 4], [0u64; 3]);
        for _ in 0..rounds {
            let corrupted = corruption.corrupt(&original, &mut random);
            stats.add(&original, &corrupted);
            for span in corrupted.spans() {
                lengths[span.original.len()] += 1;
                quarters[span.original.start * 4 / n] += 1;
                let id = corrupted.ids()[span.corrupted.start];
                // A random piece is the original one once in 55 times.
                fates[if id == MASK {
                    0
                } else if id == 9 {
                    2
                } else {
                    1
                }] += 1;
            }
        }
        assert_eq!(stats.predicted, 100 * rounds);
        let total: u64 = lengths.iter().sum();
        let mean = stats.predicted as f64 / total as f64;
        // The last span of a sequence is cut at the budget, and a few meet another: 3.80 becomes about 3.6.
        assert!((3.5..3.75).contains(&mean), "{mean} words");
        assert!(lengths[1] > lengths[2] && lengths[2] > lengths[3] && lengths[3] > lengths[5]);
        assert!(lengths[10] > 0 && lengths[0] == 0);
        for quarter in quarters {
            assert_share(quarter, total, 0.25);
        }
        assert_share(fates[0], total, 0.8);
        assert!(fates[1].abs_diff(fates[2]) < total / 50, "{fates:?}");
        // Fates are drawn a span, so tokens follow them more loosely than a binomial.
        let share = |n: u64| n as f64 / stats.predicted as f64;
        assert!((share(stats.masked) - 0.8).abs() < 0.02, "{stats:?}");
        assert!((share(stats.random) - 0.1).abs() < 0.02, "{stats:?}");
    }

    #[test]
    fn fifteen_percent_of_a_usual_sequence_are_masked() {
        let (ids, maskable) = (vec![9; 512], vec![true; 512]);
        let starts: Vec<bool> = (0..512).map(|at| at % 3 != 1).collect();
        let original = Original::new(&ids, &starts, &maskable);
        let (corruption, mut random) = (corruption(&spans()), Random::derive(1, &[]));
        let (mut tokens, mut touching, mut count) = (0, 0, 0);
        for _ in 0..300 {
            let corrupted = corruption.corrupt(&original, &mut random);
            tokens += corrupted.spans().iter().map(|span| span.original.len()).sum::<usize>();
            count += corrupted.spans().len();
            let pairs = corrupted.spans().windows(2);
            touching += pairs.filter(|pair| pair[0].original.end == pair[1].original.start).count();
        }
        assert_eq!(tokens, 300 * 77, "15 % of 512, each time");
        assert!(touching > 50, "{touching} of {count} spans stand beside another and stay apart");
    }
}
