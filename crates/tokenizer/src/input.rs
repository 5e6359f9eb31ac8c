//! What can be encoded beside one plain text: pairs, and texts that are already cut into words.

use rayon::prelude::*;

use crate::{Encoding, Tokenizer};

/// A text, as it stands or as a list of words.
///
/// Each word goes through normaliser, pre-tokenizer and model on its own; all its pieces have its place
/// in the list as word id, and offsets in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence<'a> {
    /// A text.
    Text(&'a str),
    /// Words, as of a corpus with a label for each.
    Words(&'a [&'a str]),
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
    /// let chars = tokenizer.encode_input("Cafés.", false, OffsetUnit::Chars);
    /// assert_eq!(chars.offsets, [(0, 4), (4, 5), (5, 6)]);
    /// assert_eq!(tokenizer.encode("Cafés.", false).offsets, [(0, 5), (5, 6), (6, 7)]);
    ///
    /// // Words, with the text of a question before them.
    /// let words = tokenizer.encode_input(("a", &["cafés.", "a"]), false, OffsetUnit::Chars);
    /// assert_eq!(words.tokens, ["a", "cafe", "##s", ".", "a"]);
    /// assert_eq!(words.word_ids, [0, 0, 0, 0, 1].map(Some));
    /// assert_eq!(words.sequence_ids, [0, 1, 1, 1, 1].map(Some));
    /// assert_eq!(words.offsets, [(0, 1), (0, 4), (4, 5), (5, 6), (0, 1)]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn encode_input<'a>(
        &self,
        input: impl Into<Input<'a>>,
        add_special: bool,
        unit: OffsetUnit,
    ) -> Encoding {
        self.padded(self.encode_unpadded(input.into(), add_special, unit))
    }

    /// Encodes inputs in parallel, and pads them as one batch.
    ///
    /// ```
    /// # use cloze_tokenizer::{OffsetUnit, Tokenizer, Vocab};
    /// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "yes", "no"])?, true)?;
    /// let pairs = tokenizer.encode_inputs(&[("yes", "no"), ("no", "no yes")], true, OffsetUnit::Bytes);
    /// assert_eq!(pairs[1].ids, [2, 2, 1]);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn encode_inputs<'a, T: Into<Input<'a>> + Clone + Sync>(
        &self,
        inputs: &[T],
        add_special: bool,
        unit: OffsetUnit,
    ) -> Vec<Encoding> {
        let encode = |input: &T| self.encode_unpadded(input.clone().into(), add_special, unit);
        let mut batch: Vec<_> = inputs.par_iter().map(encode).collect();
        if let Some(padding) = self.padding() {
            padding.apply(&mut batch);
        }
        batch
    }

    fn encode_unpadded(&self, input: Input, add_special: bool, unit: OffsetUnit) -> Encoding {
        let second = input.second.map(|second| self.encode_sequence(second, 1, unit));
        self.finish(self.encode_sequence(input.first, 0, unit), second, add_special)
    }

    fn encode_sequence(&self, sequence: Sequence, number: u32, unit: OffsetUnit) -> Encoding {
        let encode = |text: &str| {
            let mut encoding = self.encode_one(text, number, None);
            if unit == OffsetUnit::Chars {
                encoding.count_chars(text);
            }
            encoding
        };
        match sequence {
            Sequence::Text(text) => encode(text),
            Sequence::Words(words) => {
                let mut all = Encoding::default();
                for (i, word) in words.iter().enumerate() {
                    let mut encoding = encode(word);
                    encoding.word_ids.fill(Some(i as u32));
                    all.append(encoding);
                }
                all
            }
        }
    }
}
