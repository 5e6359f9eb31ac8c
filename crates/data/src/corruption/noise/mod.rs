//! Noises: changes to a text that an encoder–decoder learns to undo.

mod deletion;
mod infilling;
mod insertion;
mod reordering;
mod rotation;
mod sentence_permutation;
mod sentinels;
mod shares;
mod span_corruption;
mod substitution;
mod text;
mod token_masking;

pub use deletion::Deletion;
pub use infilling::Infilling;
pub use insertion::Insertion;
pub use reordering::Reordering;
pub use rotation::Rotation;
pub use sentence_permutation::SentencePermutation;
pub use sentinels::Sentinels;
pub use span_corruption::SpanCorruption;
pub use substitution::Substitution;
pub use text::NoisyText;
pub use token_masking::TokenMasking;

use super::{Corruption, ReplacementCounts};
use crate::random::Random;

/// Changes a text; special tokens stay in place. Noises are applied one after another, as BART combines them
/// (Lewis et al. 2020, §2.2).
///
/// Every [`Corruption`] is a noise too: masking by words or spans, or your own. Implement this trait for
/// noise that moves sentences or whole documents.
///
/// ```
/// use cloze_data::{Noise, NoiseCounts, NoisyText, Original, Random};
///
/// /// Reads each document backwards.
/// struct Backwards;
///
/// impl Noise for Backwards {
///     fn apply(&self, text: &mut NoisyText, _: &mut Random) -> NoiseCounts {
///         for stretch in text.stretches() {
///             let parts: Vec<_> = stretch.clone().rev().map(|token| token..token + 1).collect();
///             text.rearrange(&stretch, &parts);
///         }
///         NoiseCounts::default()
///     }
/// }
///
/// let (ids, movable) = ([2, 11, 12, 13, 3], [false, true, true, true, false]);
/// let mut text = NoisyText::new(&Original::new(&ids, &[true; 5], &movable), &[0; 5]);
/// Backwards.apply(&mut text, &mut Random::new(1));
/// assert_eq!(text.ids(), [2, 13, 12, 11, 3]);
/// ```
pub trait Noise: Send + Sync {
    /// Changes the text. The result depends on the text and `random` alone.
    fn apply(&self, text: &mut NoisyText, random: &mut Random) -> NoiseCounts;
}

/// Counts of what noises did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoiseCounts {
    /// Token counts by operation.
    pub tokens: ReplacementCounts,
    /// Sentences moved within their document.
    pub moved_sentences: u64,
    /// Documents rotated by one token or more.
    pub rotated: u64,
}

impl std::ops::AddAssign for NoiseCounts {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.moved_sentences += other.moved_sentences;
        self.rotated += other.rotated;
    }
}

impl<C: Corruption> Noise for C {
    fn apply(&self, text: &mut NoisyText, random: &mut Random) -> NoiseCounts {
        let corrupted = self.corrupt(&text.original(), random);
        text.take(&corrupted);
        NoiseCounts { tokens: corrupted.counts(), ..NoiseCounts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corruption::{Original, RandomFrom};
    use crate::unigram::UnigramCounts;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// The begin, the end, and the mask.
    pub const SPECIAL: [u32; 2] = [1, 2];
    pub const MASK: u32 = 4;

    /// Documents of sentences of words of pieces, whose ids all differ: a special token before, between and behind them.
    pub fn documents() -> impl Strategy<Value = NoisyText> {
        let words = prop::collection::vec(1..4usize, 1..6);
        let documents = prop::collection::vec(prop::collection::vec(words, 1..5), 0..3);
        documents.prop_map(|documents| {
            let (mut ids, mut starts, mut sentences) = (vec![SPECIAL[0]], vec![true], vec![0]);
            let (mut id, mut sentence) = (100, 0);
            for document in documents {
                for words in document {
                    for pieces in words {
                        starts.extend((0..pieces).map(|piece| piece == 0));
                        ids.extend(id..id + pieces as u32);
                        sentences.extend(vec![sentence; pieces]);
                        id += pieces as u32;
                    }
                    sentence += 1;
                }
                ids.push(SPECIAL[1]);
                starts.push(true);
                sentences.push(sentence);
            }
            let movable: Vec<bool> = ids.iter().map(|id| !SPECIAL.contains(id)).collect();
            NoisyText::new(&Original::new(&ids, &starts, &movable), &sentences)
        })
    }

    /// One document of `n` tokens, each a word and a sentence of `sentence` tokens, without special tokens.
    pub fn plain(n: usize, sentence: usize) -> NoisyText {
        let ids: Vec<u32> = (100..100 + n as u32).collect();
        let sentences: Vec<u32> = (0..n).map(|at| (at / sentence) as u32).collect();
        NoisyText::new(&Original::new(&ids, &vec![true; n], &vec![true; n]), &sentences)
    }

    /// The pieces of each stretch, and all that is special, in order.
    pub fn apart(text: &NoisyText) -> (Vec<Vec<u32>>, Vec<u32>) {
        let stretches = text.stretches().into_iter().map(|stretch| text.ids()[stretch].to_vec());
        let special = text.ids().iter().copied().filter(|id| SPECIAL.contains(id));
        (stretches.collect(), special.collect())
    }

    proptest! {
        /// Whatever the sequence of noises, special tokens stay, and only masks and random pieces are new.
        #[test]
        fn noises_combine(text in documents(), seed: u64) {
            let unigram = Arc::new(UnigramCounts::from_counts(&[1; 60]));
            let (from, special) = (RandomFrom::Uniform, (0..50).collect::<Vec<u32>>());
            let noises: [&dyn Noise; 8] = [
                &SentencePermutation::new(1.0), &Rotation::new(1.0), &Infilling::new(MASK, 0.3, 3.0),
                &Reordering::new(3), &Deletion::new(0.2), &Insertion::new(0.2, from, unigram.clone(), special.clone()),
                &Substitution::new(0.2, from, unigram, special), &TokenMasking::new(MASK, 0.2),
            ];
            let (mut random, mut noisy, mut counts) = (Random::new(seed), text.clone(), NoiseCounts::default());
            for noise in noises {
                counts += noise.apply(&mut noisy, &mut random);
            }
            prop_assert_eq!(apart(&noisy).1, apart(&text).1);
            let known = |id: &u32| *id == MASK || (50..60).contains(id) || text.ids().contains(id);
            prop_assert!(noisy.ids().iter().all(known));
            let mut kept: Vec<u32> = noisy.ids().iter().copied().filter(|id| *id >= 100).collect();
            kept.sort_unstable();
            prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]), "nothing is there twice");
            let left = noisy.original().len() as i64 - text.original().len() as i64;
            let tokens = counts.tokens;
            let infilled = tokens.span_masks as i64;
            // A mask replaces a token with a token, or a span with one.
            let spans: i64 = left + tokens.deleted as i64 - tokens.inserted as i64;
            prop_assert!(spans <= infilled && -spans <= tokens.masked as i64, "{counts:?}");
        }
    }
}
