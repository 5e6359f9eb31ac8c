//! Byte-pair encoding: characters joined pair by pair, in the order the pairs were learnt (Sennrich
//! et al. 2016).

mod linear;
mod merge;
mod pairs;
mod symbols;

use std::sync::OnceLock;

use rand_pcg::rand_core::Rng;
use serde::{Deserialize, Serialize};

use self::{
    linear::Linear,
    merge::Dropout,
    pairs::{Merge, Pairs},
    symbols::Alphabet,
};
use super::{Piece, Vocab};
use crate::{Error, Result, pre_tokenizers::byte_to_char};

/// Settings of a [`Bpe`] model, named as in `tokenizer.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BpeConfig {
    /// The probability, 0 to 1, of skipping each possible merge, so that a text has many encodings
    /// (Provilkov et al. 2020, "BPE-Dropout"); see
    /// [`Tokenizer::encode_sampled`](crate::Tokenizer::encode_sampled).
    pub dropout: Option<f32>,
    /// Stands for characters outside the vocabulary; without it they are dropped.
    pub unk_token: Option<String>,
    /// Begins every piece inside a word.
    pub continuing_subword_prefix: Option<String>,
    /// Ends every piece at the end of a word.
    pub end_of_word_suffix: Option<String>,
    /// Whether neighbouring unknown characters become one unknown token.
    pub fuse_unk: bool,
    /// Whether unknown characters become the pieces of their bytes, `<0x00>` to `<0xFF>`, if the
    /// vocabulary has all of them.
    pub byte_fallback: bool,
    /// Whether a word that is a piece is kept whole, regardless of the merges.
    pub ignore_merges: bool,
}

/// A BPE model, of characters or (with the byte-level pre-tokenizer) of bytes.
#[derive(Debug, Clone)]
pub struct Bpe {
    vocab: Vocab,
    /// The pairs of pieces, in the order they were learnt.
    merges: Vec<(u32, u32)>,
    pairs: Pairs,
    config: BpeConfig,
    alphabet: Alphabet,
    /// The merges of two bytes, if the byte level need not write them as characters.
    byte_pairs: Option<Box<[Merge]>>,
    /// Tables for long words, made on first use; `None` if the merges do not allow them.
    linear: OnceLock<Option<Box<Linear>>>,
}

impl Bpe {
    /// A model from its vocabulary and the pairs, first learnt first.
    ///
    /// # Errors
    /// A merge (named by its 0-based number) or the unknown token is not in the vocabulary.
    pub fn new<A: AsRef<str>, B: AsRef<str>>(
        vocab: Vocab,
        merges: impl IntoIterator<Item = (A, B)>,
        config: BpeConfig,
    ) -> Result<Self> {
        let mut pairs = Vec::new();
        for (rank, (a, b)) in merges.into_iter().enumerate() {
            let id = |piece: &str| {
                vocab.id(piece).ok_or_else(|| {
                    Error::invalid(
                        format!("model.merges[{rank}]"),
                        format!("{piece:?} is not in the vocabulary"),
                    )
                })
            };
            pairs.push((id(a.as_ref())?, id(b.as_ref())?));
        }
        Self::from_ids(vocab, pairs, config)
    }

    pub(crate) fn from_ids(vocab: Vocab, merges: Vec<(u32, u32)>, config: BpeConfig) -> Result<Self> {
        if let Some(dropout) = config.dropout.filter(|p| !(0.0..=1.0).contains(p)) {
            let message = format!("{dropout} is not a probability, 0 to 1");
            return Err(Error::invalid("model.dropout", message));
        }
        let mut pairs = Pairs::with_capacity(merges.len());
        let prefix = config.continuing_subword_prefix.as_deref().unwrap_or("");
        let mut joined = String::new();
        for (rank, &(a, b)) in merges.iter().enumerate() {
            let at = || format!("model.merges[{rank}]");
            let text = |id| vocab.token(id).unwrap_or_default();
            let rest = text(b).get(prefix.len()..).ok_or_else(|| {
                let message = format!("its second piece {:?} is shorter than the prefix {prefix:?}", text(b));
                Error::invalid(at(), message)
            })?;
            joined.clear();
            joined.push_str(text(a));
            joined.push_str(rest);
            let id = vocab.id(&joined).ok_or_else(|| {
                Error::invalid(at(), format!("its result {joined:?} is not in the vocabulary"))
            })?;
            pairs.insert(a, b, Merge { rank: rank as u32, id });
        }
        let unk = match &config.unk_token {
            Some(unk) => Some(vocab.id(unk).ok_or_else(|| {
                Error::invalid("model.unk_token", format!("{unk:?} is not in the vocabulary"))
            })?),
            None => None,
        };
        let alphabet = Alphabet::new(&vocab, unk, config.byte_fallback);
        let plain = config.continuing_subword_prefix.is_none() && config.end_of_word_suffix.is_none();
        let byte_pairs = alphabet.byte_level().filter(|_| plain).map(|ids| {
            let all = ids.iter().flat_map(|&a| ids.iter().map(move |&b| (a, b)));
            all.map(|(a, b)| pairs.get(a, b).unwrap_or(Merge::NONE)).collect()
        });
        Ok(Self { vocab, merges, pairs, config, alphabet, byte_pairs, linear: OnceLock::new() })
    }

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The settings.
    pub fn config(&self) -> &BpeConfig {
        &self.config
    }

    /// The merged pairs, in the order they were learnt.
    pub fn merges(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |id| self.vocab.token(id).unwrap_or_default();
        self.merges.iter().map(move |&(a, b)| (text(a), text(b)))
    }

    /// The probability of skipping a merge, if any.
    pub(crate) fn dropout(&self) -> Option<f32> {
        self.config.dropout.filter(|p| *p > 0.0)
    }

    /// Appends the pieces of `word`; with a generator, dropout applies.
    pub(crate) fn pieces(&self, word: &str, rng: Option<&mut dyn Rng>, out: &mut Vec<Piece>) {
        let dropout = self.dropout_with(rng);
        if dropout.is_none() && self.whole(word, word.len(), out) {
            return;
        }
        let first = out.len();
        self.symbols(word, out);
        let merge = |_, a, b| self.pairs.get(a, b).unwrap_or(Merge::NONE);
        self.join(dropout, merge, out, first);
    }

    /// Whether [`byte_pieces`](Self::byte_pieces) works.
    pub(crate) fn spells_bytes(&self) -> bool {
        self.byte_pairs.is_some()
    }

    /// Appends the pieces of `word` written in the characters for bytes, with ends in `word` itself.
    pub(crate) fn byte_pieces(&self, word: &str, rng: Option<&mut dyn Rng>, out: &mut Vec<Piece>) {
        let (Some(ids), Some(pairs)) = (self.alphabet.byte_level(), &self.byte_pairs) else {
            return;
        };
        let dropout = self.dropout_with(rng);
        if self.config.ignore_merges && dropout.is_none() {
            let written: String = word.bytes().map(byte_to_char).collect();
            if self.whole(&written, word.len(), out) {
                return;
            }
        }
        let first = out.len();
        let bytes = word.as_bytes();
        out.extend(
            bytes.iter().enumerate().map(|(i, byte)| Piece { id: ids[usize::from(*byte)], end: i + 1 }),
        );
        let merge = |i, _, _| pairs[usize::from(bytes[i]) << 8 | usize::from(bytes[i + 1])];
        self.join(dropout, merge, out, first);
    }

    fn dropout_with<'a>(&self, rng: Option<&'a mut dyn Rng>) -> Option<Dropout<'a>> {
        rng.zip(self.dropout()).map(|(rng, probability)| Dropout { probability, rng })
    }

    /// With `ignore_merges`, keeps the word of `len` bytes whole if it is a piece.
    fn whole(&self, word: &str, len: usize, out: &mut Vec<Piece>) -> bool {
        let id = if self.config.ignore_merges { self.vocab.id(word) } else { None };
        out.extend(id.map(|id| Piece { id, end: len }));
        id.is_some()
    }

    /// Merges the symbols from `first` on, according to `merge` (see [`merge::by_scan`]).
    #[inline]
    fn join(
        &self,
        dropout: Option<Dropout>,
        merge: impl Fn(usize, u32, u32) -> Merge,
        out: &mut Vec<Piece>,
        first: usize,
    ) {
        if dropout.is_none() && out.len() - first <= merge::SCAN {
            merge::by_scan(&self.pairs, merge, out, first);
            return;
        }
        let done = dropout.is_none() && self.linear().is_some_and(|l| l.merge(&self.pairs, out, first));
        if !done {
            merge::by_queue(&self.pairs, out, first, dropout);
        }
    }

    fn linear(&self) -> Option<&Linear> {
        let tables = self.linear.get_or_init(|| {
            let merges = self.merges.iter().map(|&(a, b)| (a, b, self.pairs.get(a, b).map_or(a, |m| m.id)));
            let is_symbol = |id| self.is_symbol(id);
            Linear::new(&self.pairs, merges, self.vocab.id_bound(), is_symbol).map(Box::new)
        });
        tables.as_deref()
    }

    /// Whether a piece may be a character's symbol before any merge.
    fn is_symbol(&self, id: u32) -> bool {
        let text = self.vocab.token(id).unwrap_or_default();
        let (prefix, suffix) = (&self.config.continuing_subword_prefix, &self.config.end_of_word_suffix);
        let starts = [Some(text), prefix.as_deref().and_then(|prefix| text.strip_prefix(prefix))];
        let one = |text: &str| text.chars().nth(1).is_none();
        let bare = |text: &str| {
            one(text) || suffix.as_deref().is_some_and(|s| text.strip_suffix(s).is_some_and(one))
        };
        starts.into_iter().flatten().any(bare) || self.alphabet.stand_ins().any(|other| other == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(bpe: &Bpe, word: &str) -> Vec<(u32, usize)> {
        let mut out = Vec::new();
        bpe.pieces(word, None, &mut out);
        out.iter().map(|p| (p.id, p.end)).collect()
    }

    fn vocab() -> Vocab {
        Vocab::from_tokens(["a", "b", "ab", "abb", "<unk>", "c"]).unwrap()
    }

    #[test]
    fn merges_in_learnt_order() {
        let bpe = Bpe::new(vocab(), [("a", "b"), ("ab", "b")], BpeConfig::default()).unwrap();
        assert_eq!(ids(&bpe, "abbab"), [(3, 3), (2, 5)]);
        assert_eq!(ids(&bpe, "xab"), [(2, 2)], "no unknown token: dropped");
    }

    #[test]
    fn unknown_characters() {
        let config = BpeConfig { unk_token: Some("<unk>".into()), ..BpeConfig::default() };
        let bpe = Bpe::new(vocab(), [("a", "b")], config.clone()).unwrap();
        assert_eq!(ids(&bpe, "xéab"), [(4, 1), (4, 3), (2, 5)]);
        let fused = BpeConfig { fuse_unk: true, ..config };
        let bpe = Bpe::new(vocab(), [("a", "b")], fused).unwrap();
        assert_eq!(ids(&bpe, "xéab"), [(4, 3), (2, 5)]);
    }

    #[test]
    fn bytes_of_unknown_characters() {
        let vocab = Vocab::from_tokens(["a", "<unk>", "<0xC3>", "<0xA9>", "<0xC4>"]).unwrap();
        let config =
            BpeConfig { unk_token: Some("<unk>".into()), byte_fallback: true, ..BpeConfig::default() };
        let bpe = Bpe::new(vocab, Vec::<(&str, &str)>::new(), config).unwrap();
        assert_eq!(ids(&bpe, "aéa"), [(0, 1), (2, 2), (3, 3), (0, 4)]);
        assert_eq!(ids(&bpe, "ĉ"), [(1, 2)], "one byte of two is no piece");
    }

    #[test]
    fn long_words_are_merged_alike() {
        let merges = [("a", "b"), ("ab", "b")];
        let bpe = Bpe::new(vocab(), merges, BpeConfig::default()).unwrap();
        assert!(bpe.linear().is_some());
        assert_eq!(ids(&bpe, &"abb".repeat(100)), (1..=100).map(|i| (3, 3 * i)).collect::<Vec<_>>());
        let backwards = Bpe::new(vocab(), merges.into_iter().rev(), BpeConfig::default()).unwrap();
        assert!(backwards.linear().is_none());
        assert_eq!(ids(&backwards, &"abb".repeat(100)), ids(&bpe, &"abb".repeat(100)));
    }

    #[test]
    fn dropout_needs_a_probability_and_a_generator() {
        let config = BpeConfig { dropout: Some(1.0), ..BpeConfig::default() };
        let bpe = Bpe::new(vocab(), [("a", "b")], config).unwrap();
        assert_eq!(ids(&bpe, "ab"), [(2, 2)]);
        let mut out = Vec::new();
        let mut rng: rand_pcg::Pcg64Mcg = rand_pcg::rand_core::SeedableRng::seed_from_u64(0);
        bpe.pieces("ab", Some(&mut rng), &mut out);
        assert_eq!(out.len(), 2);
        let config = BpeConfig { dropout: Some(1.5), ..BpeConfig::default() };
        let error = Bpe::new(vocab(), [("a", "b")], config).unwrap_err();
        assert_eq!(error.to_string(), "model.dropout: 1.5 is not a probability, 0 to 1");
    }

    #[test]
    fn suffix_and_prefix() {
        let config = BpeConfig { end_of_word_suffix: Some("</w>".into()), ..BpeConfig::default() };
        let vocab = Vocab::from_tokens(["l", "o</w>", "lo</w>"]).unwrap();
        let bpe = Bpe::new(vocab, [("l", "o</w>")], config).unwrap();
        assert_eq!(ids(&bpe, "lo"), [(2, 2)]);
        assert_eq!(ids(&bpe, "llo"), [(0, 1), (2, 3)]);
    }

    #[test]
    fn a_merge_outside_the_vocabulary_is_named() {
        let error = Bpe::new(vocab(), [("a", "b"), ("b", "c")], BpeConfig::default()).unwrap_err();
        assert_eq!(error.to_string(), "model.merges[1]: its result \"bc\" is not in the vocabulary");
    }
}
