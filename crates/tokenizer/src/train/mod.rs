//! Training of vocabularies.
//!
//! All trainers count the words of the text. [`BpeTrainer`] and [`WordPieceTrainer`] then merge pairs of
//! neighbouring pieces until the vocabulary is full (Sennrich et al. 2016). The first merges the most
//! frequent pair and gives a BPE model; the second keeps only the vocabulary, with `##` on inner pieces, and
//! merges the most frequent pair, as in `tokenizers`, or the pair with the highest likelihood (see
//! [`WordPieceScore`]). [`UnigramTrainer`] works the other way, from many pieces to few (Kudo 2018), and
//! [`WordLevelTrainer`] takes the most frequent words.
//!
//! Counts are 64-bit. Text is read in batches of 16 MiB, counted on all threads of rayon's pool, and
//! discarded: memory grows with the number of distinct words, not with the text. The vocabulary does not
//! depend on the number of threads or the order of the text.
//!
//! ```
//! use cloze_tokenizer::train::WordPieceTrainer;
//!
//! let lines = ["low lower lowest", "new newer newest"];
//! let tokenizer = WordPieceTrainer { vocab_size: 30, ..Default::default() }.train(lines)?;
//! assert_eq!(tokenizer.encode("Newest", true)?.tokens, ["[CLS]", "new", "##e", "##st", "[SEP]"]);
//! # Ok::<_, cloze_tokenizer::Error>(())
//! ```

mod bpe;
mod count;
mod likelihood;
mod merges;
mod seeds;
mod symbols;
mod unigram;
mod word_level;
mod wordpiece;

pub use bpe::BpeTrainer;
pub use count::WordCounts;
pub use unigram::UnigramTrainer;
pub use word_level::WordLevelTrainer;
pub use wordpiece::{WordPieceScore, WordPieceTrainer};

use crate::Error;

/// Training progress; see the trainers' `train_with`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrainProgress {
    /// Words are being counted.
    Counting {
        /// Items of text read.
        items: u64,
        /// Bytes of text read.
        bytes: u64,
        /// Distinct words found.
        words: usize,
    },
    /// Pairs are being merged.
    Merging {
        /// Pieces in the vocabulary.
        done: usize,
        /// Pieces wanted.
        total: usize,
    },
    /// Probabilities of pieces are being estimated, and the least useful dropped, until there are about
    /// as many as wanted.
    Estimating {
        /// Pieces in the vocabulary.
        pieces: usize,
        /// Pieces wanted.
        wanted: usize,
    },
}

/// An item of training text: a string, or the result of reading one.
pub trait TrainItem {
    /// The text.
    type Text: AsRef<str> + Send + Sync;
    /// The text, or what went wrong reading it.
    ///
    /// # Errors
    /// Those of the reader.
    fn text(self) -> Result<Self::Text, Box<dyn std::error::Error + Send + Sync>>;
}

impl TrainItem for String {
    type Text = String;
    fn text(self) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self)
    }
}

impl<'a> TrainItem for &'a str {
    type Text = &'a str;
    fn text(self) -> Result<&'a str, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self)
    }
}

impl<'a> TrainItem for &'a String {
    type Text = &'a str;
    fn text(self) -> Result<&'a str, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self)
    }
}

impl<T, E> TrainItem for Result<T, E>
where
    T: AsRef<str> + Send + Sync,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Text = T;
    fn text(self) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
        self.map_err(Into::into)
    }
}

/// Rejects a vocabulary size too small for the required pieces.
fn check_size(vocab_size: usize, special: usize, alphabet: usize) -> crate::Result<()> {
    if vocab_size <= special + alphabet {
        let also = if alphabet > 0 { format!(" and {alphabet} characters") } else { String::new() };
        let message = format!("{vocab_size} leaves no room beside {special} special tokens{also}");
        return Err(Error::invalid("vocab_size", message));
    }
    Ok(())
}
