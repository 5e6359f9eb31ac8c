//! Which documents are trained on and which are held out.

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
    /// # Errors
    /// [`DataError::EmptySplit`] if it has no document.
    pub fn new(corpus: Arc<PreparedCorpus>, split: Split, heldout_fraction: f64, seed: u64) -> Result<Self> {
        let threshold = (heldout_fraction.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
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
        let held_out = derive_seed(self.seed, &[STREAM, document]) < self.threshold;
        held_out == (self.split == Split::HeldOut)
    }

    /// How many documents the part has.
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
