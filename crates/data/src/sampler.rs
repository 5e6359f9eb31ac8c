//! What cuts a corpus into examples.

use crate::Result;
use crate::special::SpecialPieces;
use crate::split::Documents;
use std::ops::Range;

/// An example before its corruption: ranges of the corpus' tokens, and how they came about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Example {
    /// The first segment; for packed segments, the whole.
    pub first: Range<u64>,
    /// The second segment; empty where there is none.
    pub second: Range<u64>,
    /// The pair's label, of BERT's pairs 0 in order, 1 random or swapped.
    pub label: u8,
    /// Whether the document's target length was a short one.
    pub short: bool,
    /// Whether tokens were cut off a pair, or a sentence divided between packed segments.
    pub truncated: bool,
}

impl Example {
    /// An example of one segment.
    pub fn segment(range: Range<u64>) -> Self {
        Self { first: range, ..Self::default() }
    }

    /// An example of two segments, with a label.
    pub fn pair(first: Range<u64>, second: Range<u64>, label: u8) -> Self {
        Self { first, second, label, ..Self::default() }
    }
}

/// How many tokens of text an example has room for, beside its special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// One segment.
    pub segment: usize,
    /// Two segments together.
    pub pair: usize,
    /// What the piece between two documents of one segment takes of it: 1, or 0 where there is no such piece.
    pub separator: usize,
}

impl Room {
    /// The room of an example of at most `seq_len` tokens.
    pub fn new(seq_len: usize, special: &SpecialPieces) -> Self {
        Self {
            segment: seq_len.saturating_sub(special.around(1)),
            pair: seq_len.saturating_sub(special.around(2)),
            separator: usize::from(special.separator.is_some()),
        }
    }
}

/// Cuts a part of a corpus into the examples of an epoch.
///
/// [`PairConfig::sampler`](crate::PairConfig::sampler) makes those of BERT, ALBERT and RoBERTa. Implement the trait for
/// a way of your own, and give it to [`CorpusExamples::new`](crate::CorpusExamples::new).
///
/// ```
/// use cloze_data::{Documents, Example, ExampleSampler, Result, Room};
///
/// /// Blocks of equal length, whatever sentences they cut, as left-to-right language models read them.
/// struct Blocks;
///
/// impl ExampleSampler for Blocks {
///     fn examples(
///         &self,
///         documents: &Documents,
///         room: Room,
///         _seed: u64,
///         emit: &mut dyn FnMut(Example) -> Result<()>,
///     ) -> Result<()> {
///         let corpus = documents.corpus();
///         for document in documents.iter() {
///             let sentences = corpus.document(document);
///             let (mut start, end) =
///                 (corpus.sentence(sentences.start).start, corpus.sentence(sentences.end - 1).end);
///             while start < end {
///                 let block = start..end.min(start + room.segment as u64);
///                 start = block.end;
///                 emit(Example::segment(block))?;
///             }
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait ExampleSampler: Send + Sync {
    /// Calls `emit` for each example of one pass over `documents`, each with no more tokens than there is `room` for.
    ///
    /// All randomness comes from `seed`, which is another one in each epoch. The order does not matter: an epoch's
    /// examples are shuffled.
    ///
    /// # Errors
    /// What `emit` returns, at once; errors of its own as [`DataError::Other`](crate::DataError::Other).
    fn examples(
        &self,
        documents: &Documents,
        room: Room,
        seed: u64,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()>;

    /// Whether its examples are pairs with a label. They need begin and end pieces then, which tell the segments apart.
    fn has_pairs(&self) -> bool {
        false
    }

    /// Whether examples can be made of these documents, before there is one.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self, _documents: &Documents) -> Result<()> {
        Ok(())
    }
}
