//! The examples of a part of a corpus, with their special tokens.

use crate::corruption::Original;
use crate::plan::Plan;
use crate::prepared::PreparedCorpus;
use crate::sampler::{Example, ExampleSampler, Room};
use crate::special::SpecialPieces;
use crate::split::Documents;
use crate::{DataError, Result};
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Part of a prepared corpus as examples; each is a function of the seed, the epoch and its place in the
/// epoch.
///
/// Objectives are applied elsewhere: [`PretrainingData`](crate::PretrainingData) masks examples. For your own
/// objective, hold a `CorpusExamples` in a type that implements [`Assemble`](crate::Assemble).
pub struct CorpusExamples {
    documents: Documents,
    sampler: Box<dyn ExampleSampler>,
    special: SpecialPieces,
    seq_len: usize,
    seed: u64,
    /// Folder for plans in use.
    cache: PathBuf,
    copies: u64,
}

impl fmt::Debug for CorpusExamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CorpusExamples")
            .field("documents", &self.documents)
            .field("seq_len", &self.seq_len)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// An example's tokens, including special ones: `begin, first segment, end, second segment, end`, omitting
/// pieces the tokenizer lacks and a missing second segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExampleTokens {
    /// `[len]`: the pieces.
    pub ids: Vec<u32>,
    /// `[len]`: 0 in the first segment, 1 in the second.
    pub token_type_ids: Vec<i32>,
    /// `[len]`: whether a token is the first of its word.
    pub word_starts: Vec<bool>,
    /// `[len]`: whether a token is not special.
    pub maskable: Vec<bool>,
    /// `[len]`: each token's sentence number in the corpus, modulo 2³²; a special token has that of the token
    /// before, or 0.
    pub sentences: Vec<u32>,
}

impl ExampleTokens {
    /// The tokens as a corruption takes them.
    pub fn original(&self) -> Original<'_> {
        Original::new(&self.ids, &self.word_starts, &self.maskable)
    }

    fn push(&mut self, id: u32, starts_word: bool, sentence: u32) {
        self.ids.push(id);
        self.word_starts.push(starts_word);
        self.sentences.push(sentence);
    }

    fn push_special(&mut self, id: u32) {
        self.push(id, true, self.sentences.last().copied().unwrap_or(0));
    }
}

impl CorpusExamples {
    /// Examples of at most `seq_len` tokens, cut from `documents` by `sampler`. Plans go to unnamed files in `cache`.
    ///
    /// # Errors
    /// The sampler's error for the documents; [`DataError::NoSpecial`] for pairs if the tokenizer lacks
    /// begin or end pieces; [`DataError::SeqLen`] for a length with no room besides special tokens.
    pub fn new(
        documents: Documents,
        sampler: Box<dyn ExampleSampler>,
        special: SpecialPieces,
        seq_len: usize,
        seed: u64,
        cache: PathBuf,
    ) -> Result<Self> {
        let pairs = sampler.has_pairs();
        if pairs && special.begin.is_none() {
            return Err(DataError::NoSpecial {
                name: "start ([CLS] or <s>, or one named by `examples.begin`)",
            });
        }
        if pairs && special.end.is_none() {
            return Err(DataError::NoSpecial {
                name: "separator ([SEP] or </s>, or one named by `examples.end`)",
            });
        }
        // A token at least in each segment.
        let segments = if pairs { 2 } else { 1 };
        let least = special.around(segments) + segments;
        if seq_len < least {
            return Err(DataError::SeqLen { seq_len, least });
        }
        sampler.check(&documents)?;
        Ok(Self { documents, sampler, special, seq_len, seed, cache, copies: 0 })
    }

    /// Repeats the examples of `copies` epochs: epoch `e` repeats epoch `e mod copies`, with the random
    /// numbers of that [source epoch](Self::source_epoch). 0 samples afresh every epoch.
    pub fn with_static_copies(mut self, copies: u64) -> Self {
        self.copies = copies;
        self
    }

    /// The documents.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The special pieces around the text.
    pub fn special(&self) -> &SpecialPieces {
        &self.special
    }

    /// The longest example, in tokens, including special ones.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The seed for all randomness in the examples.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the examples are pairs with a label.
    pub fn has_pairs(&self) -> bool {
        self.sampler.has_pairs()
    }

    /// The epoch whose examples an epoch repeats; without static copies, the epoch itself.
    pub fn source_epoch(&self, epoch: u64) -> u64 {
        match self.copies {
            0 => epoch,
            copies => epoch % copies,
        }
    }

    /// The examples of an epoch.
    ///
    /// # Errors
    /// The sampler's; [`DataError::NoExamples`] if there is none; files that cannot be written;
    /// [`DataError::Stopped`] soon after `stop` is set.
    pub fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<Plan> {
        let (room, epoch) = (Room::new(self.seq_len, &self.special), self.source_epoch(epoch));
        Plan::new(&self.documents, self.sampler.as_ref(), room, self.seed, epoch, &self.cache, stop)
    }

    /// An example's tokens.
    pub fn tokens(&self, example: &Example) -> ExampleTokens {
        let special = &self.special;
        let mut tokens = ExampleTokens::default();
        special.begin.iter().for_each(|piece| tokens.push_special(*piece));
        self.append(example.first.clone(), &mut tokens);
        special.end.iter().for_each(|piece| tokens.push_special(*piece));
        let first_len = tokens.ids.len();
        if !example.second.is_empty() {
            self.append(example.second.clone(), &mut tokens);
            special.end.iter().for_each(|piece| tokens.push_special(*piece));
        }
        tokens.token_type_ids = (0..tokens.ids.len()).map(|at| i32::from(at >= first_len)).collect();
        tokens.maskable = tokens.ids.iter().map(|id| !special.is_special(*id)).collect();
        tokens
    }

    /// Appends the tokens of a range, skipping documents of the other part, with a separator
    /// between documents.
    fn append(&self, range: Range<u64>, to: &mut ExampleTokens) {
        let corpus: &PreparedCorpus = self.documents.corpus();
        let mut first = true;
        for (document, tokens) in corpus.documents_of(range) {
            if !self.documents.contains(document) {
                continue;
            }
            if let Some(separator) = self.special.separator.filter(|_| !first) {
                to.push_special(separator);
            }
            first = false;
            for (number, sentence) in corpus.sentences_of(tokens) {
                let number = number as u32;
                corpus.tokens(sentence).for_each(|(id, starts_word)| to.push(id, starts_word, number));
            }
        }
    }
}
