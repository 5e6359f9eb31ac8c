//! The output layer of a language model or a translation model.

use super::validate::{Check, at_least};
use cloze_model::blocks::{AdaptiveSoftmaxConfig, Proposal, SampledSoftmax};
use serde::{Deserialize, Serialize};

/// `[model.output]`: how the next piece is predicted. With 100,000 words, a softmax over all of them takes most of a step; both
/// alternatives expect ids in the order of frequency, as `tokenizer.kind = "train-words"` gives them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum OutputSection {
    /// A softmax over the whole vocabulary.
    Whole {},
    /// In training, a softmax over a token's next piece and pieces drawn for the batch (Jean et al. 2015). Evaluation and the
    /// saved model have the softmax over the whole vocabulary. `train` figures of the loss are those of the drawn pieces.
    Sampled {
        /// Pieces drawn for a batch, at most half of the vocabulary.
        samples: usize,
        /// The distribution that pieces are drawn from. Default `"log-uniform"`.
        #[serde(default)]
        proposal: Proposal,
    },
    /// An adaptive softmax (Grave et al. 2017): frequent pieces are predicted directly, rare ones in clusters with fewer
    /// features. The model is saved in a format of this project's own.
    Adaptive {
        /// The ids at which the clusters begin, ascending, such as `[2000, 20000]`.
        cutoffs: Vec<usize>,
        /// The features of states are divided by this once more for each cluster. Default 4.
        #[serde(default = "divisor")]
        divisor: f64,
    },
}

fn divisor() -> f64 {
    4.0
}

impl Default for OutputSection {
    fn default() -> Self {
        Self::Whole {}
    }
}

impl OutputSection {
    /// Whether it is a softmax over the whole vocabulary.
    pub fn is_whole(&self) -> bool {
        *self == Self::Whole {}
    }

    /// The name in configs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Whole {} => "whole",
            Self::Sampled { .. } => "sampled",
            Self::Adaptive { .. } => "adaptive",
        }
    }

    /// The configuration of an adaptive output.
    pub fn adaptive(&self) -> Option<AdaptiveSoftmaxConfig> {
        match self {
            Self::Adaptive { cutoffs, divisor } => {
                Some(AdaptiveSoftmaxConfig::new(cutoffs.clone()).with_divisor(*divisor))
            }
            _ => None,
        }
    }

    /// How pieces are drawn in training.
    pub fn sampled(&self) -> Option<SampledSoftmax> {
        match *self {
            Self::Sampled { samples, proposal } => Some(SampledSoftmax::new(samples).with_proposal(proposal)),
            _ => None,
        }
    }

    /// The size of the smallest vocabulary that it fits.
    pub(crate) fn smallest_vocabulary(&self) -> usize {
        match self {
            Self::Adaptive { cutoffs, .. } => cutoffs.iter().max().map_or(1, |last| last.saturating_add(1)),
            _ => 1,
        }
    }

    /// The least number of logits of a token in training.
    pub(crate) fn n_logits(&self, vocab_size: usize) -> usize {
        match self {
            Self::Whole {} => vocab_size,
            Self::Sampled { samples, .. } => samples + 1,
            Self::Adaptive { cutoffs, .. } => {
                cutoffs.first().map_or(vocab_size, |first| first + cutoffs.len())
            }
        }
    }

    /// What is wrong with any vocabulary and is not checked with the model.
    pub(crate) fn check(&self) -> Check {
        match self {
            Self::Sampled { samples, .. } => at_least(1, "model.output.samples", *samples),
            _ => Ok(()),
        }
    }
}
