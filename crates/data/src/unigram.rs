//! Piece frequencies: the baseline to beat, and a source of random replacements.

use crate::random::Random;
use crate::split::Documents;

/// Frequencies of pieces in part of the corpus, with add-one smoothing.
#[derive(Debug, Clone)]
pub struct UnigramCounts {
    /// Running sums of the counts, one per piece.
    cumulative: Vec<u64>,
    most_frequent: u32,
}

impl UnigramCounts {
    /// Counts all tokens of the documents; `vocab_size` pieces.
    ///
    /// # Panics
    /// If the corpus was prepared with a tokenizer of more pieces.
    pub fn new(documents: &Documents, vocab_size: usize) -> Self {
        Self::of_all([documents], vocab_size)
    }

    /// [`new`](Self::new) over the documents of several corpora together, such as several languages.
    ///
    /// # Panics
    /// If a corpus was prepared with a tokenizer of more pieces.
    pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a Documents>, vocab_size: usize) -> Self {
        let mut counts = vec![1u64; vocab_size];
        for documents in parts {
            let corpus = documents.corpus();
            for document in documents.iter() {
                let sentences = corpus.document(document);
                let tokens = corpus.sentence(sentences.start).start..corpus.sentence(sentences.end - 1).end;
                for (id, _) in corpus.tokens(tokens) {
                    counts[id as usize] += 1;
                }
            }
        }
        Self::from_counts(&counts)
    }

    /// From smoothed counts.
    pub fn from_counts(counts: &[u64]) -> Self {
        let most_frequent = (0..counts.len()).rev().max_by_key(|id| counts[*id]).unwrap_or(0) as u32;
        let mut sum = 0;
        let cumulative = counts
            .iter()
            .map(|count| {
                sum += count;
                sum
            })
            .collect();
        Self { cumulative, most_frequent }
    }

    fn count(&self, id: u32) -> u64 {
        let before = if id == 0 { 0 } else { self.cumulative[id as usize - 1] };
        self.cumulative[id as usize] - before
    }

    /// Pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.cumulative.len()
    }

    /// The natural logarithm of a piece's probability.
    pub fn log_prob(&self, id: u32) -> f64 {
        (self.count(id) as f64 / self.total() as f64).ln()
    }

    /// The most frequent piece; ties go to the smallest id.
    pub fn most_frequent(&self) -> u32 {
        self.most_frequent
    }

    fn total(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or(1)
    }

    /// A piece drawn by its probability.
    pub fn sample(&self, random: &mut Random) -> u32 {
        let draw = random.below(self.total());
        self.cumulative.partition_point(|sum| *sum <= draw) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_counts() {
        let unigram = UnigramCounts::from_counts(&[1, 5, 2, 5]);
        assert_eq!((unigram.vocab_size(), unigram.most_frequent()), (4, 1));
        let sum: f64 = (0..4).map(|id| unigram.log_prob(id).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert!((unigram.log_prob(0) - (1.0f64 / 13.0).ln()).abs() < 1e-12);
        assert!((unigram.log_prob(3) - (5.0f64 / 13.0).ln()).abs() < 1e-12);
    }
}
