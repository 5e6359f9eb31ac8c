//! The split into training and held-out documents.

use crate::prepared::PreparedCorpus;
use crate::seed::derive_seed;
use crate::{DataError, Result};
use std::sync::Arc;

const STREAM: u64 = 0x5917;

/// One of the two parts of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Trained on.
    Train,
    /// Evaluated on, never trained on.
    HeldOut,
}

/// The documents of one part: each document's part is a function of the seed and its index.
#[derive(Debug, Clone)]
pub struct Documents {
    corpus: Arc<PreparedCorpus>,
    split: Split,
    threshold: u64,
    seed: u64,
    count: u64,
}

impl Documents {
    /// The documents of `split`, where a share `heldout_fraction` of all is held out.
    ///
    /// For a small corpus, the share is adjusted so that each part has at least one document, or two
    /// (needed for pairs) if there are at least four in total. Shares of 0 and 1 are kept.
    ///
    /// # Errors
    /// [`DataError::EmptySplit`] if it has no document.
    pub fn new(corpus: Arc<PreparedCorpus>, split: Split, heldout_fraction: f64, seed: u64) -> Result<Self> {
        let mut threshold = (heldout_fraction.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        if heldout_fraction > 0.0 && heldout_fraction < 1.0 {
            threshold = with_both_parts(corpus.n_documents(), threshold, seed);
        }
        let mut documents = Self { corpus, split, threshold, seed, count: 0 };
        documents.count = documents.iter().count() as u64;
        if documents.count == 0 {
            return Err(DataError::EmptySplit {
                split: match split {
                    Split::Train => "training",
                    Split::HeldOut => "held-out",
                },
                documents: documents.corpus.n_documents(),
                heldout_fraction,
            });
        }
        Ok(documents)
    }

    /// Whether a document belongs to the part.
    pub fn contains(&self, document: u64) -> bool {
        let held_out = hash(self.seed, document) < self.threshold;
        held_out == (self.split == Split::HeldOut)
    }

    /// Number of documents in the part.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The part's documents, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.corpus.n_documents()).filter(|document| self.contains(*document))
    }

    /// The corpus they are part of.
    pub fn corpus(&self) -> &Arc<PreparedCorpus> {
        &self.corpus
    }
}

/// A document is held out if this is below the threshold.
fn hash(seed: u64, document: u64) -> u64 {
    derive_seed(seed, &[STREAM, document])
}

/// The threshold, adjusted if necessary so that neither part of `n` documents is too small.
fn with_both_parts(n: u64, threshold: u64, seed: u64) -> u64 {
    let least = match n {
        0 | 1 => return threshold,
        2 | 3 => 1,
        _ => 2,
    };
    let (mut smallest, mut largest) = (Vec::new(), Vec::new());
    for hash in (0..n).map(|document| hash(seed, document)) {
        smallest.push(hash);
        smallest.sort_unstable();
        smallest.truncate(least);
        largest.push(hash);
        largest.sort_unstable_by(|a, b| b.cmp(a));
        largest.truncate(least);
    }
    // Below the threshold is held out: these of the smallest must be, those of the largest must not.
    let low = smallest[least - 1].saturating_add(1);
    threshold.clamp(low, largest[least - 1].max(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_corpora_have_both_parts_and_large_ones_their_share() {
        let held_out = |n: u64, fraction: f64, seed| {
            let threshold = with_both_parts(n, (fraction * u64::MAX as f64) as u64, seed);
            (0..n).filter(|document| hash(seed, *document) < threshold).count() as u64
        };
        for n in 2..12 {
            let least = if n < 4 { 1 } else { 2 };
            for seed in 0..200 {
                for fraction in [0.001, 0.05, 0.5, 0.999] {
                    let held_out = held_out(n, fraction, seed);
                    assert!(held_out >= least && n - held_out >= least, "{held_out} of {n} at {fraction}");
                }
            }
        }
        // Five standard deviations of a binomial around 1,000; nothing is moved.
        assert!(held_out(20_000, 0.05, 1).abs_diff(1_000) < 154);
        let threshold = u64::MAX / 20;
        assert_eq!(with_both_parts(20_000, threshold, 1), threshold);
    }
}
