//! Vocabulary statistics.

use std::cmp::Reverse;

use crate::{Model, Tokenizer};

/// How a vocabulary distinguishes pieces at the beginning of a word from those inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordMark {
    /// Pieces inside a word begin with this, such as `##`.
    Continuing(String),
    /// Pieces at the beginning of a word begin with this, such as `Ġ` or `▁`.
    Beginning(String),
    /// Pieces at the end of a word end with this, such as `</w>`.
    Ending(String),
}

/// The result of [`Tokenizer::statistics`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Total number of tokens, including added ones.
    pub size: usize,
    /// Added tokens that are special, by id.
    pub special: Vec<(u32, String)>,
    /// The other added tokens, by id.
    pub added: Vec<(u32, String)>,
    /// How words are marked, if they are.
    pub mark: Option<WordMark>,
    /// Number of pieces that continue a word, by the mark: with a [`WordMark::Continuing`] mark, or
    /// without a [`WordMark::Beginning`] one; for [`WordMark::Ending`], pieces without the mark, after
    /// which the word continues.
    pub continuing: usize,
    /// Number of pieces by length in characters (bytes for byte-level pieces), excluding the mark. This
    /// and `continuing` exclude added tokens.
    pub lengths: Vec<usize>,
    /// The ten longest pieces, longest first.
    pub longest: Vec<(u32, String)>,
}

impl Statistics {
    /// Pieces of the model that are not added tokens.
    pub fn pieces(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// The mean length of a piece, as in [`lengths`](Self::lengths); 0 if there are none.
    pub fn mean_length(&self) -> f64 {
        let characters: usize = self.lengths.iter().enumerate().map(|(length, count)| length * count).sum();
        characters as f64 / self.pieces().max(1) as f64
    }
}

/// Number of longest pieces to list.
const LONGEST: usize = 10;

impl Tokenizer {
    /// Statistics of the vocabulary.
    ///
    /// ```
    /// # use cloze_tokenizer::{Tokenizer, Vocab, WordMark};
    /// let vocab = Vocab::from_tokens(["[UNK]", "a", "boat", "##s", "##man"])?;
    /// let statistics = Tokenizer::bert(vocab, true)?.statistics();
    /// assert_eq!(statistics.mark, Some(WordMark::Continuing("##".into())));
    /// assert_eq!((statistics.pieces(), statistics.continuing), (4, 2));
    /// assert_eq!(statistics.lengths, [0, 2, 0, 1, 1]);
    /// assert_eq!(statistics.longest[0], (2, "boat".into()));
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn statistics(&self) -> Statistics {
        let (special, added): (Vec<_>, Vec<_>) = self.added_tokens().partition(|(_, token)| token.special);
        let contents = |tokens: Vec<(u32, &crate::AddedToken)>| {
            tokens.into_iter().map(|(id, token)| (id, token.content.clone())).collect()
        };
        let pieces = || self.model().vocab().iter().filter(|(id, _)| self.added.get(*id).is_none());
        let mark = self.word_mark(pieces().map(|(_, piece)| piece));
        let mut lengths = Vec::new();
        let mut longest: Vec<(Reverse<usize>, u32, &str)> = Vec::new();
        let mut continuing = 0;
        for (id, piece) in pieces() {
            let bare = match &mark {
                Some(WordMark::Continuing(mark) | WordMark::Beginning(mark)) => {
                    piece.strip_prefix(mark.as_str())
                }
                Some(WordMark::Ending(mark)) => piece.strip_suffix(mark.as_str()),
                None => None,
            };
            let marked = bare.is_some();
            match mark {
                Some(WordMark::Continuing(_)) => continuing += usize::from(marked),
                Some(_) => continuing += usize::from(!marked),
                None => {}
            }
            let length = bare.unwrap_or(piece).chars().count();
            if length >= lengths.len() {
                lengths.resize(length + 1, 0);
            }
            lengths[length] += 1;
            longest.push((Reverse(length), id, piece));
        }
        longest.sort_unstable();
        let longest = longest.into_iter().take(LONGEST).map(|(_, id, piece)| (id, piece.to_owned()));
        Statistics {
            size: self.vocab_size(),
            special: contents(special),
            added: contents(added),
            mark,
            continuing,
            lengths,
            longest: longest.collect(),
        }
    }

    /// The model's own mark, else whichever of the two usual marks occurs.
    fn word_mark<'a>(&self, pieces: impl Iterator<Item = &'a str>) -> Option<WordMark> {
        if let Model::WordPiece(model) = self.model() {
            return Some(WordMark::Continuing(model.continuing_subword_prefix().to_owned()));
        }
        if let Model::Bpe(model) = self.model() {
            let config = model.config();
            if let Some(prefix) = &config.continuing_subword_prefix {
                return Some(WordMark::Continuing(prefix.clone()));
            }
            if let Some(suffix) = &config.end_of_word_suffix {
                return Some(WordMark::Ending(suffix.clone()));
            }
        }
        let mut counts = [("Ġ", 0), ("▁", 0)];
        for piece in pieces {
            counts.iter_mut().filter(|(mark, _)| piece.starts_with(mark)).for_each(|(_, count)| *count += 1);
        }
        let (mark, count) = if counts[0].1 >= counts[1].1 { counts[0] } else { counts[1] };
        (count > 0).then(|| WordMark::Beginning(mark.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddedToken, Bpe, BpeConfig, Vocab};

    #[test]
    fn marks_of_bpe() {
        let bpe = |tokens: &[&str], config| {
            let vocab = Vocab::from_tokens(tokens.iter().copied()).unwrap();
            Tokenizer::new(Model::Bpe(Bpe::new(vocab, [("", ""); 0], config).unwrap()))
        };
        let mut bytes = bpe(&["<s>", "a", "Ġa", "Ġ", "abc"], BpeConfig::default());
        bytes.add_tokens([AddedToken::special("<s>"), AddedToken::plain("new")]).unwrap();
        let statistics = bytes.statistics();
        assert_eq!(statistics.mark, Some(WordMark::Beginning("Ġ".into())));
        assert_eq!((statistics.size, statistics.pieces(), statistics.continuing), (6, 4, 2));
        assert_eq!(statistics.special, [(0, "<s>".into())]);
        assert_eq!(statistics.added, [(5, "new".into())]);
        assert_eq!(statistics.lengths, [1, 2, 0, 1]);
        assert_eq!(statistics.mean_length(), 1.25);

        let config = BpeConfig { end_of_word_suffix: Some("_".into()), ..BpeConfig::default() };
        let statistics = bpe(&["a", "b_"], config).statistics();
        assert_eq!((statistics.mark, statistics.continuing), (Some(WordMark::Ending("_".into())), 1));
        let statistics = bpe(&[], BpeConfig::default()).statistics();
        assert_eq!(statistics.mean_length(), 0.0);
        assert_eq!(statistics.mark, None);
    }
}
