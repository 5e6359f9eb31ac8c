//! Text infilling: spans replaced by one mask each.

use super::shares::{choose, rounded, tokens_or_words};
use crate::corruption::lengths::Lengths;
use crate::corruption::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;

/// Text infilling (Lewis et al. 2020, §2.2): spans with lengths from a Poisson distribution are replaced by
/// one mask each, so that the model must infer how many tokens are missing. A span of length 0 inserts a
/// mask.
///
/// ```text
/// ℓ ~ Poisson(λ), λ = 3, until 30 % of a document's tokens are in spans
/// ```
///
/// The last span is cut to the remaining budget, as in fairseq. All ways to place the spans, without
/// overlaps, are equally likely.
///
/// Deviations from fairseq, where the paper does not say:
/// - Spans do not overlap; fairseq joins adjacent ones.
/// - A share of 30 % is exact on average for documents of any length; fairseq rounds up.
#[derive(Debug, Clone)]
pub struct Infilling {
    mask: u32,
    share: f64,
    lengths: Lengths,
    whole_words: bool,
}

impl Infilling {
    /// Replaces a share of the tokens, from 0 to 1, in spans of `mean_span` tokens on average.
    ///
    /// # Panics
    /// If `mean_span` is not from 1 to 100.
    pub fn new(mask: u32, share: f64, mean_span: f64) -> Self {
        assert!((1.0..=100.0).contains(&mean_span), "spans have a mean from 1 to 100");
        Self { mask, share, lengths: Lengths::poisson(mean_span), whole_words: false }
    }

    /// If `whole_words`, counts lengths and the share in words, and never cuts a word.
    pub fn with_whole_words(mut self, whole_words: bool) -> Self {
        self.whole_words = whole_words;
        self
    }
}

impl Corruption for Infilling {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        let units = tokens_or_words(original, self.whole_words);
        // A document has no special token within.
        for units in units.chunk_by(|a, b| a.end == b.start) {
            let masked = rounded(units.len(), self.share, random);
            let (mut left, mut lengths) = (masked, Vec::new());
            while left > 0 {
                let length = self.lengths.draw(random).min(left);
                left -= length;
                lengths.push(length);
            }
            // What is left over and the spans, one after another.
            let places = choose(lengths.len(), units.len() - masked + lengths.len(), random);
            let (mut next, mut lengths) = (0, lengths.into_iter());
            for is_span in places {
                let length = if is_span { lengths.next().unwrap_or(0) } else { 1 };
                if is_span {
                    let start = units.get(next).map_or(units[units.len() - 1].end, |unit| unit.start);
                    let end = (next + length).checked_sub(1).map_or(start, |last| units[last].end);
                    let span = start..end.max(start);
                    counts.masked += span.len() as u64;
                    counts.in_spans += span.len() as u64;
                    counts.span_masks += 1;
                    edits.replace(span, &[self.mask]);
                }
                next += length;
            }
        }
        edits.finish().with_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MASK, apart, documents, plain};
    use super::*;
    use crate::corruption::noise::{Noise, NoisyText};
    use crate::corruption::tests::assert_share;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn spans_become_one_mask_and_all_else_stays(
            text in documents(), share in 0.0..=1.0f64, mean in 1.0..6.0f64, words: bool, seed: u64,
        ) {
            let original = text.original();
            let noise = Infilling::new(MASK, share, mean).with_whole_words(words);
            let corrupted = noise.corrupt(&original, &mut Random::new(seed));
            let mut masked = 0;
            for span in corrupted.spans() {
                prop_assert_eq!(&corrupted.ids()[span.corrupted.clone()], &[MASK]);
                let span = span.original.clone();
                masked += span.len() as u64;
                prop_assert!(span.clone().all(|place| original.maskable[place]));
                if words && !span.is_empty() {
                    let begins = |place: usize| original.word_starts.get(place).is_none_or(|starts| *starts);
                    prop_assert!(begins(span.start) && begins(span.end));
                }
            }
            let counts = corrupted.counts();
            let span_masks = corrupted.spans().len() as u64;
            prop_assert_eq!(counts, ReplacementCounts { masked, in_spans: masked, span_masks, ..Default::default() });
            let mut noisy = text.clone();
            noisy.take(&corrupted);
            let ((before, special), (after, kept)) = (apart(&text), apart(&noisy));
            prop_assert_eq!(special, kept);
            prop_assert_eq!(before.len(), after.len());
            for (before, after) in before.iter().zip(&after) {
                let left = after.iter().filter(|id| **id != MASK).count();
                if !words {
                    // The two whole numbers around the share.
                    prop_assert!(((before.len() - left) as f64 - share * before.len() as f64).abs() < 1.0);
                }
                prop_assert!(after.iter().filter(|id| **id != MASK).is_sorted());
            }
        }
    }

    #[test]
    fn thirty_percent_in_spans_of_three() {
        // So long that the last span, which is cut, counts little.
        let (text, noise, mut random) = (plain(20_000, 10), Infilling::new(MASK, 0.3, 3.0), Random::new(1));
        let (mut lengths, mut total) = (BTreeMap::<usize, u64>::new(), ReplacementCounts::default());
        let mut halves = [0u64; 2];
        for _ in 0..20 {
            let corrupted = noise.corrupt(&text.original(), &mut random);
            total += corrupted.counts();
            for span in corrupted.spans() {
                *lengths.entry(span.original.len()).or_default() += 1;
                halves[usize::from(span.original.start >= 10_000)] += 1;
            }
        }
        assert_eq!(total.masked, 20 * 6_000, "30 %");
        let mean = total.masked as f64 / total.span_masks as f64;
        assert!((mean - 3.0).abs() < 0.05, "{mean}");
        for (length, p) in [(0, 0.0498), (1, 0.1494), (2, 0.2240), (3, 0.2240), (5, 0.1008)] {
            assert_share(lengths[&length], total.span_masks, p);
        }
        assert_share(halves[0], total.span_masks, 0.5);
    }

    #[test]
    fn every_placing_is_as_likely() {
        // One of four tokens in a span of one: the mask stands anywhere.
        let noise = Infilling { lengths: Lengths::geometric(1.0, 1), ..Infilling::new(MASK, 0.25, 3.0) };
        let (mut counts, mut random) = ([0u64; 4], Random::new(5));
        for _ in 0..20_000 {
            let mut text: NoisyText = plain(4, 4);
            noise.apply(&mut text, &mut random);
            counts[text.ids().iter().position(|id| *id == MASK).unwrap()] += 1;
        }
        counts.into_iter().for_each(|count| assert_share(count, 20_000, 0.25));
    }
}
