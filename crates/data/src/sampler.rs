//! Samplers that cut a corpus into examples.

use crate::Result;
use crate::special::SpecialPieces;
use crate::split::Documents;
use std::ops::Range;

/// An example before corruption: ranges of the corpus's tokens, and how they were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Example {
    /// The first segment; for packed segments, the whole.
    pub first: Range<u64>,
    /// The second segment; empty if there is none.
    pub second: Range<u64>,
    /// The pair's label; for BERT's pairs 0 is in order, 1 random or swapped.
    pub label: u8,
    /// Whether the document's target length was short.
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

/// Room for text in an example, in tokens, without special ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// One segment.
    pub segment: usize,
    /// Two segments together.
    pub pair: usize,
    /// Tokens for the separator between documents of a segment: 1, or 0 without a separator.
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
/// [`PairConfig::sampler`](crate::PairConfig::sampler) makes those of BERT, ALBERT and RoBERTa. Implement the
/// trait for your own method, and pass it to [`CorpusExamples::new`](crate::CorpusExamples::new).
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
    /// Calls `emit` for each example of one pass over `documents`, each with no more tokens than `room`
    /// allows.
    ///
    /// All randomness comes from `seed`, which differs in each epoch. The order does not matter: an epoch's
    /// examples are shuffled.
    ///
    /// # Errors
    /// Errors from `emit`, immediately; its own errors as [`DataError::Other`](crate::DataError::Other).
    fn examples(
        &self,
        documents: &Documents,
        room: Room,
        seed: u64,
        emit: &mut dyn FnMut(Example) -> Result<()>,
    ) -> Result<()>;

    /// Whether its examples are pairs with a label. Pairs need begin and end pieces to separate the segments.
    fn has_pairs(&self) -> bool {
        false
    }

    /// Checks beforehand whether examples can be made from these documents.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check(&self, _documents: &Documents) -> Result<()> {
        Ok(())
    }
}
