//! T5's span corruption.

use super::Sentinels;
use super::shares::choose;
use crate::corruption::{Corrupted, Corruption, Edits, Original, ReplacementCounts};
use crate::random::Random;
use std::ops::Range;

/// Span corruption (Raffel et al. 2020, §3.1.4 and §3.3.4): each span is replaced by its own sentinel; the
/// target is each sentinel followed by its span, then a last sentinel.
///
/// ```text
/// text    Thank you for inviting me to your party last week
/// source  Thank you <extra_id_0> me to your party <extra_id_1> week
/// target  <extra_id_0> for inviting <extra_id_1> last <extra_id_2>
/// ```
///
/// As in T5's `random_spans_noise_mask`, `round(n·density)` of `n` tokens are in `round(n·density /
/// mean_span)` spans. The tokens inside and outside spans are each partitioned uniformly at random into
/// that many parts, which alternate; so a text begins with an unchanged token and ends with a span.
///
/// Deviations:
/// - The last sentinel of the target is the paper's. T5's code leaves it out, since nothing follows the last span.
/// - Special tokens within a text stay; one inside a span divides the span.
#[derive(Debug, Clone)]
pub struct SpanCorruption {
    sentinels: Sentinels,
    density: f64,
    mean_span: f64,
}

impl SpanCorruption {
    /// Corrupts a share of the tokens (T5: 0.15) in spans of `mean_span` tokens on average (T5: 3).
    ///
    /// If a text has more spans than sentinels (one is reserved for the end of the target), the remaining
    /// tokens stay unchanged: see [`needed`](Self::needed).
    ///
    /// # Panics
    /// If `density` is not between 0 and 1, or `mean_span` is below 1.
    pub fn new(sentinels: Sentinels, density: f64, mean_span: f64) -> Self {
        assert!(density > 0.0 && density < 1.0, "a density is between 0 and 1");
        assert!(mean_span >= 1.0, "a span has a token or more");
        Self { sentinels, density, mean_span }
    }

    /// The number of noise tokens and of spans in `n` tokens.
    fn counts(density: f64, mean_span: f64, n: usize) -> (usize, usize) {
        if n < 2 {
            return (0, 0);
        }
        // Both kinds of token occur.
        let noise = ((n as f64 * density).round_ties_even() as usize).clamp(1, n - 1);
        let spans = ((noise as f64 / mean_span).round_ties_even() as usize).max(1);
        (noise, spans.min(noise).min(n - noise))
    }

    /// Number of sentinels needed for texts of at most `n` tokens.
    pub fn needed(density: f64, mean_span: f64, n: usize) -> usize {
        1 + (0..=n).map(|n| Self::counts(density, mean_span, n).1).max().unwrap_or(0)
    }

    /// The longest target for texts of at most `n` tokens.
    pub fn longest_target(density: f64, mean_span: f64, n: usize) -> usize {
        let target = |n| {
            let (noise, spans) = Self::counts(density, mean_span, n);
            noise + spans + 1
        };
        (0..=n).map(target).max().unwrap_or(1)
    }

    /// The spans of `n` tokens.
    fn spans(&self, n: usize, random: &mut Random) -> Vec<Range<usize>> {
        let (noise, spans) = Self::counts(self.density, self.mean_span, n);
        if spans == 0 {
            return Vec::new();
        }
        let (dropped, kept) = (segments(noise, spans, random), segments(n - noise, spans, random));
        let mut at = 0;
        let spans = kept.into_iter().zip(dropped).map(|(kept, dropped)| {
            let start = at + kept;
            at = start + dropped;
            start..at
        });
        spans.collect()
    }

    /// The target for a corrupted text: each sentinel followed by the tokens it stands for, then the last
    /// sentinel.
    ///
    /// Without spans there is no last sentinel.
    pub fn target(&self, original: &Original<'_>, corrupted: &Corrupted) -> Vec<u32> {
        let mut target = Vec::new();
        for span in corrupted.spans() {
            target.extend(&corrupted.ids()[span.corrupted.clone()]);
            target.extend(&original.ids[span.original.clone()]);
        }
        target.extend(self.sentinels.ids().get(corrupted.spans().len()));
        target
    }
}

impl Corruption for SpanCorruption {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let places: Vec<usize> = (0..original.len()).filter(|place| original.maskable[*place]).collect();
        let (mut edits, mut counts) = (Edits::new(original.ids), ReplacementCounts::default());
        let spans = self.spans(places.len(), random);
        let parts = spans.iter().flat_map(|span| places[span.clone()].chunk_by(|a, b| a + 1 == *b));
        // The last one is for the target's end.
        let most = self.sentinels.len().saturating_sub(1);
        for (part, sentinel) in parts.zip(&self.sentinels.ids()[..most]) {
            let span = part[0]..part[part.len() - 1] + 1;
            counts.masked += span.len() as u64;
            counts.in_spans += span.len() as u64;
            counts.span_masks += 1;
            edits.replace(span, &[*sentinel]);
        }
        edits.finish().with_counts(counts)
    }
}

/// The lengths of `k` non-empty parts of `n` things, drawn uniformly from all such partitions.
fn segments(n: usize, k: usize, random: &mut Random) -> Vec<usize> {
    let mut lengths = vec![1];
    for cut in choose(k - 1, n - 1, random) {
        match lengths.last_mut() {
            Some(length) if !cut => *length += 1,
            _ => lengths.push(1),
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::super::tests::{documents, plain};
    use super::*;
    use crate::corruption::tests::assert_share;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FIRST: u32 = 10_000;

    fn corruption(sentinels: u32, density: f64, mean_span: f64) -> SpanCorruption {
        SpanCorruption::new(Sentinels::new((FIRST..FIRST + sentinels).collect()), density, mean_span)
    }

    /// Replaces each sentinel by its tokens in the target.
    fn restored(source: &[u32], target: &[u32]) -> Vec<u32> {
        let mut spans = BTreeMap::new();
        for span in target.chunk_by(|_, next| *next < FIRST) {
            assert!(spans.insert(span[0], &span[1..]).is_none(), "a sentinel is there once");
        }
        let mut restored = Vec::new();
        for id in source {
            match spans.get(id) {
                Some(span) => restored.extend(*span),
                None => restored.push(*id),
            }
        }
        restored
    }

    proptest! {
        #[test]
        fn source_and_target_have_the_text_between_them(
            text in documents(), density in 0.01..0.99f64, mean in 1.0..5.0f64, seed: u64,
        ) {
            let original = text.original();
            let corruption = corruption(200, density, mean);
            let corrupted = corruption.corrupt(&original, &mut Random::new(seed));
            let target = corruption.target(&original, &corrupted);
            prop_assert_eq!(&restored(corrupted.ids(), &target)[..], original.ids);
            let used: Vec<u32> = corrupted.ids().iter().copied().filter(|id| *id >= FIRST).collect();
            let n = used.len() as u32;
            prop_assert_eq!(used, (FIRST..FIRST + n).collect::<Vec<_>>());
            prop_assert_eq!(target.last(), Some(&(FIRST + n)));
            let masked = original.len() as u64 + u64::from(n) - corrupted.ids().len() as u64;
            let counts = ReplacementCounts { masked, in_spans: masked, span_masks: u64::from(n), ..Default::default() };
            prop_assert_eq!(corrupted.counts(), counts);
        }

        #[test]
        fn a_text_begins_with_a_token_and_ends_with_a_span(n in 2..200usize, density in 0.01..0.99f64, seed: u64) {
            let (text, corruption) = (plain(n, n), corruption(200, density, 3.0));
            let corrupted = corruption.corrupt(&text.original(), &mut Random::new(seed));
            prop_assert!(corrupted.ids()[0] < FIRST && corrupted.ids()[corrupted.ids().len() - 1] >= FIRST);
            prop_assert!(corrupted.ids().windows(2).all(|pair| pair[0] < FIRST || pair[1] < FIRST));
            let needed = SpanCorruption::needed(density, 3.0, n);
            prop_assert!(corrupted.spans().len() < needed);
            let target = corruption.target(&text.original(), &corrupted).len();
            prop_assert!(target <= SpanCorruption::longest_target(density, 3.0, n));
        }
    }

    #[test]
    fn numbers_are_those_of_the_papers_code() {
        // round(n · 0.15) and round(that / 3), both halves to even, as `random_spans_noise_mask` has them; 568 is what T5
        // cuts for an input of 512 tokens with the end piece, 114 for the target.
        for (n, expected) in [
            (1, (0, 0)),
            (2, (1, 1)),
            (10, (2, 1)),
            (50, (8, 3)),
            (100, (15, 5)),
            (128, (19, 6)),
            (568, (85, 28)),
        ] {
            assert_eq!(SpanCorruption::counts(0.15, 3.0, n), expected, "{n}");
        }
        assert_eq!(SpanCorruption::counts(0.9, 1.0, 10), (9, 1), "no more spans than tokens between them");
        assert_eq!((568 - 85 + 28 + 1, 85 + 28 + 1), (512, 114));
        assert_eq!(SpanCorruption::needed(0.15, 3.0, 568), 29);
        assert_eq!(SpanCorruption::longest_target(0.15, 3.0, 568), 114);
    }

    #[test]
    fn every_segmentation_is_as_likely() {
        let (mut found, mut random) = (BTreeMap::<Vec<usize>, u64>::new(), Random::new(3));
        for _ in 0..20_000 {
            *found.entry(segments(5, 3, &mut random)).or_default() += 1;
        }
        assert_eq!(found.len(), 6, "{found:?}");
        for (lengths, count) in found {
            assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (3, 5));
            assert_share(count, 20_000, 1.0 / 6.0);
        }
        assert_eq!((segments(1, 1, &mut random), segments(4, 4, &mut random)), (vec![1], vec![1; 4]));
    }

    #[test]
    fn fifteen_percent_in_spans_of_three() {
        let (text, corruption, mut random) = (plain(512, 9), corruption(100, 0.15, 3.0), Random::new(8));
        let mut total = ReplacementCounts::default();
        let mut at = [0u64; 4];
        for _ in 0..500 {
            let corrupted = corruption.corrupt(&text.original(), &mut random);
            total += corrupted.counts();
            for span in corrupted.spans() {
                at[span.original.start / 128] += 1;
            }
        }
        assert_eq!((total.masked, total.span_masks), (500 * 77, 500 * 26));
        // 25 spans of 26 are anywhere; the last is at the end.
        at[3] -= 500;
        let spread = at.iter().sum::<u64>();
        at.iter().for_each(|count| assert!((*count as f64 / spread as f64 - 0.25).abs() < 0.02, "{at:?}"));
    }

    #[test]
    fn without_enough_sentinels_the_rest_stays() {
        let (text, corruption) = (plain(100, 9), corruption(3, 0.15, 3.0));
        let corrupted = corruption.corrupt(&text.original(), &mut Random::new(1));
        assert_eq!(corrupted.spans().len(), 2);
        let target = corruption.target(&text.original(), &corrupted);
        assert_eq!(target.last(), Some(&(FIRST + 2)));
        assert_eq!(restored(corrupted.ids(), &target), text.ids());
        let none = SpanCorruption::new(Sentinels::default(), 0.15, 3.0);
        let corrupted = none.corrupt(&text.original(), &mut Random::new(1));
        assert_eq!((corrupted.ids(), none.target(&text.original(), &corrupted)), (text.ids(), vec![]));
    }
}
