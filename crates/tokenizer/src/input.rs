//! Inputs other than one plain text: pairs, and pre-split texts.

use rayon::prelude::*;

use crate::{Encoding, Result, Tokenizer, splits::Splits, tokenizer::in_order};

/// A text, whole or as a list of words.
///
/// Each word passes through normaliser, pre-tokenizer and model on its own; its pieces have its index
/// as word id, and offsets within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence<'a> {
    /// A text.
    Text(&'a str),
    /// Words, for example of a corpus with word labels.
    Words(&'a [&'a str]),
    /// The beginning of a longer text: encoded like the whole text if truncation makes the rest irrelevant,
    /// and otherwise an error ([`Error::Undecided`](crate::Error::Undecided)). No overflow is kept.
    ///
    /// So a line of any length can be encoded from a part that fits in memory.
    ///
    /// ```
    /// # use cloze_tokenizer::{OffsetUnit, Sequence, Tokenizer, Truncation, Vocab};
    /// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "old", "sea"])?, true)?;
    /// tokenizer.set_truncation(Some(Truncation::to(2)))?;
    /// let beginning = "old sea ".repeat(100);
    /// let encoding = tokenizer.encode_input(Sequence::Beginning(&beginning), false, OffsetUnit::Bytes)?;
    /// assert_eq!(encoding.ids, [1, 2]);
    /// // Here the next letter may make it another word.
    /// assert!(tokenizer.encode_input(Sequence::Beginning("old sea"), false, OffsetUnit::Bytes).is_err());
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    Beginning(&'a str),
}

impl<'a> From<&'a str> for Sequence<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Sequence<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [&'a str]> for Sequence<'a> {
    fn from(words: &'a [&'a str]) -> Self {
        Self::Words(words)
    }
}

impl<'a, const N: usize> From<&'a [&'a str; N]> for Sequence<'a> {
    fn from(words: &'a [&'a str; N]) -> Self {
        Self::Words(words)
    }
}

impl<'a> From<&'a Vec<&'a str>> for Sequence<'a> {
    fn from(words: &'a Vec<&'a str>) -> Self {
        Self::Words(words)
    }
}

/// One text, or a pair of texts to be encoded as one sequence. Anything that becomes a [`Sequence`]
/// becomes an input, and so does a tuple of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input<'a> {
    /// The text, or the first of a pair.
    pub first: Sequence<'a>,
    /// The second of a pair.
    pub second: Option<Sequence<'a>>,
}

impl<'a, T: Into<Sequence<'a>>> From<T> for Input<'a> {
    fn from(first: T) -> Self {
        Self { first: first.into(), second: None }
    }
}

impl<'a, A: Into<Sequence<'a>>, B: Into<Sequence<'a>>> From<(A, B)> for Input<'a> {
    fn from((first, second): (A, B)) -> Self {
        Self { first: first.into(), second: Some(second.into()) }
    }
}

/// What offsets count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OffsetUnit {
    /// Bytes of UTF-8, as Rust's strings.
    #[default]
    Bytes,
    /// Characters (Unicode scalar values), as Python's strings.
    Chars,
}

impl Tokenizer {
    /// Encodes any input, with offsets in bytes or in characters. Truncation and padding are applied as
    /// set.
    ///
    /// ```
    /// # use cloze_tokenizer::{OffsetUnit, Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "a", "cafe", "##s", "."])?, true)?;
    ///
    /// let chars = tokenizer.encode_input("Cafés.", false, OffsetUnit::Chars)?;
    /// assert_eq!(chars.offsets, [(0, 4), (4, 5), (5, 6)]);
    /// assert_eq!(tokenizer.encode("Cafés.", false)?.offsets, [(0, 5), (5, 6), (6, 7)]);
    ///
    /// // Words, with the text of a question before them.
    /// let words = tokenizer.encode_input(("a", &["cafés.", "a"]), false, OffsetUnit::Chars)?;
    /// assert_eq!(words.tokens, ["a", "cafe", "##s", ".", "a"]);
    /// assert_eq!(words.word_ids, [0, 0, 0, 0, 1].map(Some));
    /// assert_eq!(words.sequence_ids, [0, 1, 1, 1, 1].map(Some));
    /// assert_eq!(words.offsets, [(0, 1), (0, 4), (4, 5), (5, 6), (0, 1)]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode); [`Error::Undecided`](crate::Error::Undecided) for a [beginning](Sequence::Beginning).
    pub fn encode_input<'a>(
        &self,
        input: impl Into<Input<'a>>,
        add_special: bool,
        unit: OffsetUnit,
    ) -> Result<Encoding> {
        Ok(self.padded(self.encode_unpadded(input.into(), add_special, unit)?))
    }

    /// Encodes inputs in parallel, and pads them as one batch.
    ///
    /// ```
    /// # use cloze_tokenizer::{OffsetUnit, Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "yes", "no"])?, true)?;
    /// let pairs = tokenizer.encode_inputs(&[("yes", "no"), ("no", "no yes")], true, OffsetUnit::Bytes)?;
    /// assert_eq!(pairs[1].ids, [2, 2, 1]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Batch`](crate::Error::Batch) with the first input that fails.
    pub fn encode_inputs<'a, T: Into<Input<'a>> + Clone + Sync>(
        &self,
        inputs: &[T],
        add_special: bool,
        unit: OffsetUnit,
    ) -> Result<Vec<Encoding>> {
        self.encode_all(inputs, |input| input.clone().into(), add_special, unit)
    }

    pub(crate) fn encode_all<'a, T: Sync>(
        &self,
        items: &'a [T],
        input: impl Fn(&'a T) -> Input<'a> + Sync,
        add_special: bool,
        unit: OffsetUnit,
    ) -> Result<Vec<Encoding>> {
        let encode = |item| self.encode_unpadded(input(item), add_special, unit);
        let mut batch = in_order(items.par_iter().map(encode).collect())?;
        if let Some(padding) = self.padding() {
            padding.apply(&mut batch);
        }
        Ok(batch)
    }

    fn encode_unpadded(&self, input: Input, add_special: bool, unit: OffsetUnit) -> Result<Encoding> {
        let second = input.second.map(|second| self.encode_sequence(second, 1, unit)).transpose()?;
        let first = self.encode_sequence(input.first, 0, unit)?;
        let mut encoding = self.finish(first, second, add_special, unit);
        let goes_on = |sequence| matches!(sequence, Sequence::Beginning(_));
        if goes_on(input.first) || input.second.is_some_and(goes_on) {
            // Nobody knows all of it.
            encoding.overflowing.clear();
        }
        Ok(encoding)
    }

    fn encode_sequence(&self, sequence: Sequence, number: u32, unit: OffsetUnit) -> Result<Encoding> {
        let least = self.least_pieces().filter(|_| !self.keep_overflow);
        let encode = |text: &str, whole: bool, least: Option<usize>| {
            let pieces = |splits: &Splits| self.pieces(splits, None, number);
            let mut encoding = self.read(text, whole, least, true, pieces, Encoding::len)?;
            if unit == OffsetUnit::Chars {
                encoding.count_chars(text);
            }
            Ok(encoding)
        };
        match sequence {
            Sequence::Text(text) => encode(text, true, least),
            Sequence::Beginning(text) => encode(text, false, self.least_pieces()),
            Sequence::Words(words) => {
                let mut all = Encoding::default();
                for (i, word) in words.iter().enumerate() {
                    let mut encoding = encode(word, true, None)?;
                    encoding.word_ids.fill(Some(i as u32));
                    all.append(encoding);
                    if least.is_some_and(|least| all.len() >= least) {
                        break;
                    }
                }
                Ok(all)
            }
        }
    }
}
