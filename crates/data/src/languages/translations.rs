//! Sentences concatenated with their translations.

use crate::corruption::{Corruption, Original};
use crate::labelled::{BatchSize, Buckets};
use crate::parallel::{OnBadPair, PairReport, PairSettings, ParallelFiles, PreparedPairs};
use crate::pretraining::PretrainingBatch;
use crate::random::Random;
use crate::sight::Sight;
use crate::special::SpecialPieces;
use crate::tokens::TokenBatch;
use crate::{DataError, Progress, Result};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Random stream of these masks.
const MASKS: u64 = 0x71A5;

/// Parallel text in two languages, for translation language modelling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranslationFiles {
    /// The names of the source's and the target's language, two of `corpus.languages`.
    pub languages: [String; 2],
    /// The files.
    pub text: ParallelFiles,
    /// What to do with an unusable pair, as one with an empty side. Default `"error"`.
    #[serde(default)]
    pub on_bad_pair: OnBadPair,
    /// The largest share of the pairs that `on_bad_pair = "skip"` may leave out, from 0 to 1; more are an error, which names
    /// the first ones. One pair may always be left out. Default 0.05.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skipped: Option<f64>,
}

/// Sentences concatenated with their translations: `begin x end begin y end`, omitting pieces that the
/// tokenizer lacks, with positions from 0 in both sentences (Conneau & Lample 2019, §3.4). A masked word of
/// one can be predicted from the other.
///
/// A batch has pairs of similar length. A pair that is too long is cut at the end of its longer
/// sentence.
#[derive(Debug)]
pub struct Translations {
    pairs: PreparedPairs,
    languages: [String; 2],
    token_types: [i32; 2],
    buckets: Buckets,
    special: SpecialPieces,
    seq_len: usize,
}

impl Translations {
    /// Prepares the pairs of `files`, as sequences of at most `seq_len` tokens in batches of about `batch_tokens`, counted
    /// with padding.
    ///
    /// # Errors
    /// Those of [`PreparedPairs::prepare`]; [`DataError::SeqLen`] for a length with no room besides
    /// special tokens.
    #[expect(clippy::too_many_arguments, reason = "each is said by another section of a config")]
    pub fn prepare(
        files: &TranslationFiles,
        tokenizer: &Tokenizer,
        special: SpecialPieces,
        seq_len: usize,
        batch_tokens: usize,
        seed: u64,
        cache: &Path,
        progress: &dyn Progress,
    ) -> Result<(Self, PairReport)> {
        let around = 2 * special.around(1);
        if seq_len < around + 2 {
            return Err(DataError::SeqLen { seq_len, least: around + 2 });
        }
        let [source, target] = &files.languages;
        let settings = PairSettings::new([source, target], [tokenizer; 2], usize::MAX)
            .on_bad_pair(files.on_bad_pair, files.max_skipped)
            .without_special();
        let (pairs, report) = PreparedPairs::prepare(&files.text, Path::new(""), &settings, cache, progress)?;
        let room = seq_len - around;
        let length = |pair| around + cut(pairs.lengths(pair), room).iter().sum::<usize>();
        let lengths = (0..pairs.len()).map(length).collect();
        let buckets = Buckets::new(lengths, BatchSize::Tokens(batch_tokens), seed);
        let (languages, token_types) = (files.languages.clone(), [0, 0]);
        Ok((Self { pairs, languages, token_types, buckets, special, seq_len }, report))
    }

    /// Gives the tokens of each sentence the type of its language, see
    /// [`PretrainingData::with_language`](crate::PretrainingData::with_language). Without it all have the type 0.
    pub fn with_languages(self, token_types: [i32; 2]) -> Self {
        Self { token_types, ..self }
    }

    /// The names of the languages.
    pub fn languages(&self) -> &[String; 2] {
        &self.languages
    }

    /// Number of pairs, at least one.
    pub fn n_pairs(&self) -> u64 {
        self.pairs.len() as u64
    }

    /// A string that identifies these pairs.
    pub fn key(&self) -> &str {
        self.pairs.key()
    }

    /// The batches of one pass over the pairs, as pair indices.
    pub(super) fn pass(&self, seed: u64) -> Vec<Vec<usize>> {
        self.buckets.epoch(seed)
    }

    /// The batch of some pairs, masked on both sides; `seed` differs for each batch.
    pub(super) fn batch(&self, pairs: &[usize], corruption: &dyn Corruption, seed: u64) -> PretrainingBatch {
        let pad_id = self.special.pad.unwrap_or(0) as i32;
        let tokens = TokenBatch::new().with_pad_id(pad_id).with_max_len(self.seq_len);
        let mut batch = PretrainingBatch { tokens, ..PretrainingBatch::default() };
        for pair in pairs {
            let SideBySide { ids, token_types, positions } = self.tokens(*pair);
            let maskable: Vec<bool> = ids.iter().map(|id| !self.special.is_special(*id)).collect();
            let words = vec![true; ids.len()];
            let original = Original::new(&ids, &words, &maskable);
            let mut random = Random::derive(seed, &[MASKS, *pair as u64]);
            let corrupted = corruption.corrupt(&original, &mut random);
            batch.stats.examples += 1;
            batch.stats.tokens += corrupted.ids().len() as u64;
            batch.push(&original, &token_types, Some(&positions), &corrupted, &mut random, Sight::All);
        }
        batch.stats.padding = batch.tokens.n_padding() as u64;
        batch
    }

    fn tokens(&self, pair: usize) -> SideBySide {
        let mut tokens = SideBySide::default();
        let room = self.seq_len - 2 * self.special.around(1);
        let lengths = cut(self.pairs.lengths(pair), room);
        let (source, target) = (self.pairs.source(pair), self.pairs.target(pair));
        tokens.add(source.take(lengths[0]), &self.special, self.token_types[0]);
        tokens.add(target.take(lengths[1]), &self.special, self.token_types[1]);
        tokens
    }
}

/// A sentence and its translation as one sequence.
#[derive(Default)]
struct SideBySide {
    ids: Vec<u32>,
    token_types: Vec<i32>,
    positions: Vec<i32>,
}

impl SideBySide {
    fn add(&mut self, text: impl Iterator<Item = u32>, special: &SpecialPieces, token_type: i32) {
        let before = self.ids.len();
        self.ids.extend(special.begin);
        self.ids.extend(text);
        self.ids.extend(special.end);
        self.positions.extend(0..(self.ids.len() - before) as i32);
        self.token_types.resize(self.ids.len(), token_type);
    }
}

/// The lengths to which two sentences are cut to fit `room` together: the longer one is cut, or both if each
/// exceeds half.
fn cut([first, second]: [usize; 2], room: usize) -> [usize; 2] {
    let half = room / 2;
    match (first <= half, second <= room - half) {
        _ if first + second <= room => [first, second],
        (true, _) => [first, room - first],
        (false, true) => [room - second, second],
        (false, false) => [half, room - half],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_sentences_fit_and_the_longer_one_is_cut(first in 1usize..60, second in 1usize..60, room in 2usize..80) {
            let [a, b] = cut([first, second], room);
            prop_assert!(a >= 1 && b >= 1 && a <= first && b <= second && a + b <= room);
            prop_assert_eq!(a + b, room.min(first + second));
            // What is cut is not left shorter than what is not, but for one token.
            prop_assert!((a == first || a + 1 >= b) && (b == second || b >= a));
        }
    }
}
