//! Unigram: the most probable segmentation of a text, where each piece has a probability (Kudo 2018,
//! "Subword Regularization").

use std::ops::Range;

use rand::Rng;

use super::{
    Piece, Vocab,
    lattice::{Lattice, Step},
    trie::{NONE, Trie},
};
use crate::{Error, Result, Span};

/// A Unigram model: pieces with log probabilities.
///
/// A character that is not a piece is unknown. Adjacent unknown characters become one unknown token or, with
/// `byte_fallback`, one token `<0x…>` per byte if the vocabulary has all of them. A model without an unknown
/// token drops unknown characters (the reference fails).
#[derive(Debug, Clone)]
pub struct Unigram {
    vocab: Vocab,
    /// Log probabilities, by id.
    scores: Vec<f64>,
    trie: Trie,
    min_score: f64,
    unk_id: Option<u32>,
    byte_fallback: bool,
    /// The ids of `<0x00>` to `<0xFF>`.
    bytes: Box<[Option<u32>]>,
    sampling: Option<Sampling>,
}

/// How segmentations are sampled instead of taking the most probable one: subword regularisation
/// (Kudo 2018, section 3.2), with SentencePiece's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Smoothing: a segmentation is drawn in proportion to its probability to this power. 0 is uniform; the
    /// paper uses 0.1 to 0.5.
    pub alpha: f64,
    /// Draw from this many of the most probable segmentations (the paper's `l`); `None` draws from
    /// all (`l = ∞`).
    pub nbest: Option<usize>,
}

impl Sampling {
    /// The maximum `nbest`: memory grows with it, as in SentencePiece, which has the same limit.
    pub const MOST: usize = 512;
}

/// A segmentation of a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Segmentation {
    /// The ids of its pieces.
    pub ids: Vec<u32>,
    /// Their byte ranges; tokens for the bytes of an unknown stretch all have its range.
    pub offsets: Vec<Span>,
    /// Its log probability: the sum of those of its pieces.
    pub log_prob: f64,
}

impl Unigram {
    /// A model from its pieces with their log probabilities; ids are 0, 1, ….
    ///
    /// # Errors
    /// A piece is repeated; a log probability is not finite; there is no piece `unk_id`.
    pub fn new<T: Into<String>>(
        pieces: impl IntoIterator<Item = (T, f64)>,
        unk_id: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Self> {
        let mut vocab = Vocab::default();
        let mut scores = Vec::new();
        for (id, (piece, score)) in pieces.into_iter().enumerate() {
            let piece = piece.into();
            if !score.is_finite() {
                let message = format!("the score of {piece:?} is {score}; expected a finite number");
                return Err(Error::invalid(format!("model.vocab[{id}]"), message));
            }
            vocab.insert(piece, u32::try_from(id).unwrap_or(u32::MAX))?;
            scores.push(score);
        }
        if let Some(unk) = unk_id
            && vocab.token(unk).is_none()
        {
            let message =
                format!("{unk} is not the id of a piece; there are {}, numbered from 0", vocab.len());
            return Err(Error::invalid("model.unk_id", message));
        }
        let trie = Trie::new(vocab.iter().map(|(id, piece)| (piece.as_bytes(), id)).collect());
        let min_score = scores.iter().copied().fold(f64::INFINITY, f64::min);
        let bytes = (0..=255u8).map(|byte| vocab.id(&format!("<0x{byte:02X}>"))).collect();
        Ok(Self { vocab, scores, trie, min_score, unk_id, byte_fallback, bytes, sampling: None })
    }

    /// The pieces and their ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pieces with their log probabilities, by id.
    pub fn scored(&self) -> impl Iterator<Item = (&str, f64)> {
        self.vocab.iter().zip(&self.scores).map(|((_, piece), &score)| (piece, score))
    }

    /// The id of the unknown token.
    pub fn unk_id(&self) -> Option<u32> {
        self.unk_id
    }

    /// Whether unknown characters become bytes.
    pub fn byte_fallback(&self) -> bool {
        self.byte_fallback
    }

    /// The same model, sampling segmentations when a generator is given; see
    /// [`Tokenizer::encode_sampled`](crate::Tokenizer::encode_sampled).
    ///
    /// # Errors
    /// `alpha` is negative or not finite; `nbest` is 0 or beyond [`Sampling::MOST`].
    pub fn with_sampling(mut self, sampling: Option<Sampling>) -> Result<Self> {
        self.set_sampling(sampling)?;
        Ok(self)
    }

    pub(crate) fn set_sampling(&mut self, sampling: Option<Sampling>) -> Result<()> {
        if let Some(Sampling { alpha, nbest }) = sampling {
            if !(alpha.is_finite() && alpha >= 0.0) {
                return Err(Error::invalid(
                    "sampling.alpha",
                    format!("{alpha} is not a number of 0 or more"),
                ));
            }
            if let Some(n) = nbest.filter(|n| !(1..=Sampling::MOST).contains(n)) {
                let message = format!("{n} ways; expected 1 to {}, or none for all of them", Sampling::MOST);
                return Err(Error::invalid("sampling.nbest", message));
            }
        }
        self.sampling = sampling;
        Ok(())
    }

    /// How segmentations are sampled, if they are.
    pub fn sampling(&self) -> Option<Sampling> {
        self.sampling
    }

    fn lattice(&self) -> Lattice<'_> {
        Lattice::new(&self.trie, &self.scores, self.unk_id.unwrap_or(NONE), self.min_score)
    }

    /// Appends the pieces of `word`; with a generator, sampling applies.
    pub(crate) fn pieces(&self, word: &str, rng: Option<&mut dyn Rng>, out: &mut Vec<Piece>) {
        let mut writer = Writer::new(self, word, out);
        let step = |step| writer.step(step);
        match rng.zip(self.sampling) {
            None => _ = self.lattice().best(word, NONE, step),
            Some((mut rng, Sampling { alpha, nbest: None })) => {
                self.lattice().sample(word, alpha, &mut rng, step);
            }
            Some((mut rng, Sampling { alpha, nbest: Some(n) })) => {
                self.lattice().sample_nbest(word, n, alpha, &mut rng).1.into_iter().for_each(step);
            }
        }
        writer.finish();
    }

    /// The `n` most probable segmentations of `text`, best first; fewer if there are no more.
    ///
    /// ```
    /// use cloze_tokenizer::Unigram;
    ///
    /// // Kudo (2018), table 1: one text, many segmentations.
    /// let pieces = [("<unk>", 0.0), ("Hello", -6.0), ("He", -4.0), ("ll", -4.5), ("llo", -5.0), ("o", -3.0)];
    /// let model = Unigram::new(pieces, Some(0), false)?;
    /// let best = model.nbest("Hello", 3);
    /// assert_eq!((best[0].ids.as_slice(), best[0].log_prob), ([1].as_slice(), -6.0));
    /// assert_eq!((best[1].ids.as_slice(), best[1].log_prob), ([2, 4].as_slice(), -9.0));
    /// assert_eq!(best[2].offsets, [(0, 2), (2, 4), (4, 5)]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn nbest(&self, text: &str, n: usize) -> Vec<Segmentation> {
        let paths = self.lattice().nbest(text, n).into_iter();
        paths.map(|(log_prob, steps)| self.segmentation(text, steps, log_prob)).collect()
    }

    /// A segmentation of `text`, sampled in proportion to its probability to the power of `alpha` (Kudo
    /// 2018, section 3.2, over all segmentations: `l = ∞`): 0 is uniform, 1 follows the model, and
    /// larger values favour the best one.
    ///
    /// ```
    /// use cloze_tokenizer::Unigram;
    /// use rand_pcg::Pcg64Mcg;
    ///
    /// let model = Unigram::new([("<unk>", 0.0), ("a", -1.0), ("aa", -2.0)], Some(0), false)?;
    /// let mut rng = Pcg64Mcg::new(1);
    /// let drawn: Vec<_> = (0..30).map(|_| model.sample("aa", 1.0, &mut rng).ids).collect();
    /// assert!(drawn.contains(&vec![2]) && drawn.contains(&vec![1, 1]));
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn sample(&self, text: &str, alpha: f64, rng: &mut impl Rng) -> Segmentation {
        let mut steps = Vec::new();
        let log_prob = self.lattice().sample(text, alpha, rng, |step| steps.push(step));
        self.segmentation(text, steps, log_prob)
    }

    /// The same over the `n` most probable segmentations only (Kudo 2018, section 3.2, `l = n`).
    ///
    /// ```
    /// use cloze_tokenizer::Unigram;
    /// use rand_pcg::Pcg64Mcg;
    ///
    /// let model = Unigram::new([("<unk>", 0.0), ("a", -1.0), ("aa", -2.5)], Some(0), false)?;
    /// let mut rng = Pcg64Mcg::new(1);
    /// assert!((0..30).all(|_| model.sample_nbest("aa", 1, 0.0, &mut rng).ids == [1, 1]));
    /// assert!((0..30).any(|_| model.sample_nbest("aa", 2, 0.0, &mut rng).ids == [2]));
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn sample_nbest(&self, text: &str, n: usize, alpha: f64, rng: &mut impl Rng) -> Segmentation {
        let (log_prob, steps) = self.lattice().sample_nbest(text, n, alpha, rng);
        self.segmentation(text, steps, log_prob)
    }

    fn segmentation(&self, text: &str, steps: Vec<Step>, log_prob: f64) -> Segmentation {
        let mut pieces = Vec::with_capacity(steps.len());
        let mut writer = Writer::new(self, text, &mut pieces);
        steps.into_iter().for_each(|step| writer.step(step));
        writer.finish();
        let mut range = (0, 0);
        let offsets = pieces.iter().map(|piece| {
            if piece.end > range.1 {
                range = (range.1, piece.end);
            }
            range
        });
        Segmentation { offsets: offsets.collect(), ids: pieces.iter().map(|p| p.id).collect(), log_prob }
    }
}

/// Turns the steps of a path into pieces: merges unknown ones or spells them in bytes.
struct Writer<'a> {
    model: &'a Unigram,
    text: &'a str,
    out: &'a mut Vec<Piece>,
    /// Where the next step begins.
    start: usize,
    /// The pending unknown stretch.
    unknown: Range<usize>,
}

impl<'a> Writer<'a> {
    fn new(model: &'a Unigram, text: &'a str, out: &'a mut Vec<Piece>) -> Self {
        Self { model, text, out, start: 0, unknown: 0..0 }
    }

    #[inline]
    fn step(&mut self, Step { id, end }: Step) {
        if Some(id) == self.model.unk_id {
            self.unknown.end = end;
        } else {
            self.finish();
            if id == NONE {
                self.unknown = self.start..end;
                self.finish();
            } else {
                self.out.push(Piece { id, end });
            }
            self.unknown = end..end;
        }
        self.start = end;
    }

    /// Writes the pending unknown stretch.
    fn finish(&mut self) {
        if self.unknown.is_empty() {
            return;
        }
        let text = &self.text[self.unknown.clone()];
        let end = self.unknown.end;
        let byte = |byte: u8| self.model.bytes[usize::from(byte)];
        // Joined, it may be a piece: the unknown token itself, written out.
        if let Some(id) = self.model.vocab.id(text) {
            self.out.push(Piece { id, end });
        } else if self.model.byte_fallback && text.bytes().all(|b| byte(b).is_some()) {
            self.out.extend(text.bytes().filter_map(byte).map(|id| Piece { id, end }));
        } else if let Some(id) = self.model.unk_id {
            self.out.push(Piece { id, end });
        }
        self.unknown = end..end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(byte_fallback: bool, unk: Option<u32>) -> Unigram {
        let pieces = [("<unk>", 0.0), ("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0), ("cd", 1.0)];
        let pieces = pieces.into_iter().chain([("ab", 2.0), ("abc", 5.0), ("abcd", 10.0)]);
        let bytes = ["<0xC3>", "<0xA9>"].map(|b| (b, 0.0));
        Unigram::new(pieces.chain(bytes), unk, byte_fallback).unwrap()
    }

    fn run(model: &Unigram, text: &str) -> Vec<(u32, usize)> {
        let mut out = Vec::new();
        model.pieces(text, None, &mut out);
        out.into_iter().map(|p| (p.id, p.end)).collect()
    }

    #[test]
    fn unknown_characters_are_joined_or_spelt_in_bytes() {
        let plain = model(false, Some(0));
        assert_eq!(run(&plain, "abcdacdxx"), [(8, 4), (1, 5), (5, 7), (0, 9)]);
        assert_eq!(run(&plain, "é<unk>a"), [(0, 7), (1, 8)]);
        assert_eq!(run(&plain, ""), []);
        let bytes = model(true, Some(0));
        assert_eq!(run(&bytes, "éa"), [(9, 2), (10, 2), (1, 3)]);
        assert_eq!(run(&bytes, "éx"), [(0, 3)], "one byte is missing");
        assert_eq!(bytes.nbest("éa", 1)[0].offsets, [(0, 2), (0, 2), (2, 3)]);
    }

    #[test]
    fn without_an_unknown_token() {
        assert_eq!(run(&model(false, None), "xaxé"), [(1, 2)]);
        assert_eq!(run(&model(true, None), "xaé"), [(1, 2), (9, 4), (10, 4)]);
        let empty = Unigram::new(Vec::<(&str, f64)>::new(), None, true).unwrap();
        assert_eq!(run(&empty, "a"), []);
    }

    #[test]
    fn bad_pieces_are_refused() {
        let error = |pieces: &[(&str, f64)], unk| {
            Unigram::new(pieces.iter().copied(), unk, false).unwrap_err().to_string()
        };
        assert!(error(&[("a", f64::NAN)], None).starts_with("model.vocab[0]: the score of \"a\" is NaN"));
        assert!(error(&[("a", 0.0), ("a", 1.0)], None).contains("comes twice"));
        let sampling = |alpha, nbest| {
            model(false, None).with_sampling(Some(Sampling { alpha, nbest })).unwrap_err().to_string()
        };
        assert!(sampling(-0.5, None).starts_with("sampling.alpha: -0.5"));
        assert!(sampling(f64::NAN, None).starts_with("sampling.alpha: NaN"));
        assert!(sampling(1.0, Some(0)).starts_with("sampling.nbest: 0 ways; expected 1 to 512"));
        assert!(sampling(1.0, Some(513)).starts_with("sampling.nbest: 513 ways"));
        assert_eq!(
            error(&[("a", 0.0)], Some(1)),
            "model.unk_id: 1 is not the id of a piece; there are 1, numbered from 0"
        );
    }
}
