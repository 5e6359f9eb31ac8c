//! Config of the embedding task.

use super::losses::{
    Cosent, CosineRegression, Distillation, EmbeddingLoss, GuidedNegatives, InBatchNegatives, Matryoshka,
    PairClasses, Triplet, TripletDistance,
};
use crate::config::validate::{Check, not_negative, positive};
use crate::engine::in_parts;
use cloze_model::bert::Pooling;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// An embedding of each sentence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct EmbeddingSection {
    /// The training loss.
    pub loss: LossSection,
    /// How the encoder's states are pooled. Default: from the checkpoint's sentence-transformers modules, or
    /// the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// Whether embeddings are scaled to length 1. Default: from the modules, or false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<bool>,
    /// Prefixes of the embedding that are trained as embeddings too (Kusupati et al. 2022):
    /// `{ dims = [256, 64] }`. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matryoshka: Option<MatryoshkaSection>,
    /// Prefixes of texts, such as `query: ` (Wang et al. 2022, E5); saved as the sentence-transformers
    /// prompts `query` and `document`. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<PromptsSection>,
    /// Minimum score of training pairs; the development data is not filtered. Default: no filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_score: Option<f64>,
    /// Sentences whose graph is in memory at once. Gradients equal those of the whole batch, for one more
    /// forward pass (Gao et al. 2021). Default: the whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<usize>,
    /// The number of parts of a batch that several processes may share: what `train.shards` sets. Gradients equal those of the
    /// whole batch, as with `chunk`. Default: the whole batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
}

/// Prefixes of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptsSection {
    /// Before first texts. Default nothing.
    #[serde(default)]
    pub text: String,
    /// Before second texts and negatives. Default nothing.
    #[serde(default)]
    pub pair: String,
}

/// Prefixes of the embedding that are trained as embeddings too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatryoshkaSection {
    /// Their widths, such as `[384, 128, 32]`.
    pub dims: Vec<usize>,
    /// The weight of each width's loss. Default 1 each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
}

/// The training loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum LossSection {
    /// A pair's second sentence must be more similar to the first than those of other pairs and all negatives
    /// (Henderson et al. 2017). Of `data.train.columns` it reads `pair`, and `negatives` if there are any.
    InBatchNegatives {
        /// Temperature: divides the cosines. Default 0.05.
        #[serde(default = "temperature")]
        temperature: f64,
        /// Whether to rank first sentences for the second too. Default false.
        #[serde(default)]
        symmetric: bool,
    },
    /// A sentence must be more similar to itself under different dropout than to other sentences (Gao, Yao &
    /// Chen 2021). Every sentence of a row is an example.
    Simcse {
        /// Temperature: divides the cosines. Default 0.05.
        #[serde(default = "temperature")]
        temperature: f64,
    },
    /// In-batch negatives without those that a guide model finds more similar than the pair (Solatorio 2024).
    /// It reads `pair`, and `negatives` if there are any.
    GuidedNegatives {
        /// Temperature: divides the cosines. Default 0.01.
        #[serde(default = "guided_temperature")]
        temperature: f64,
        /// How much less similar than the pair a candidate may be and still be excluded. Default 0.
        #[serde(default)]
        margin: f64,
        /// The folder of the guide model, which is frozen. Default: the model itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guide: Option<PathBuf>,
    },
    /// A negative must be farther from the first sentence than the second is (Schroff et al. 2015). It reads
    /// `pair` and `negatives`.
    Triplet {
        /// The distance between embeddings. Default `"euclidean"`.
        #[serde(default)]
        distance: TripletDistance,
        /// How much farther. Default 5.
        #[serde(default = "triplet_margin")]
        margin: f64,
    },
    /// The cosine of a pair must match its score (Reimers & Gurevych 2019). It reads `pair` and `label`.
    Cosine {
        /// The score of pairs with target cosine 1. Default 1.
        #[serde(default = "max_score")]
        max_score: f64,
    },
    /// The cosines of pairs must be in the order of their scores (Su 2022). It reads `pair` and `label`.
    Cosent {
        /// Temperature: divides the cosines. Default 0.05.
        #[serde(default = "temperature")]
        temperature: f64,
    },
    /// A classifier must predict a pair's class from both embeddings and their element-wise distance (Reimers
    /// & Gurevych 2019). It reads `pair` and `class`, and `label` of development or test data.
    Softmax {},
    /// An embedding must match a teacher's (Reimers & Gurevych 2020). Every sentence of a row is an example.
    Distillation {
        /// The teacher's folder. Of embeddings that are wider than the student's the first principal components
        /// over the training sentences are learned.
        teacher: PathBuf,
    },
}

fn temperature() -> f64 {
    0.05
}

fn guided_temperature() -> f64 {
    0.01
}

fn triplet_margin() -> f64 {
    5.0
}

fn max_score() -> f64 {
    1.0
}

/// The keys of the columns of a pair's second sentence, its class, its score, and negatives.
pub(super) const PAIR: &str = "data.train.columns.pair";
const CLASS: &str = "data.train.columns.class";
pub(super) const LABEL: &str = "data.train.columns.label";
pub(super) const NEGATIVES: &str = "data.train.columns.negatives";

impl LossSection {
    /// The folder of the reference model that the loss needs, if any.
    pub(super) fn reference(&self) -> Option<&Path> {
        match self {
            Self::GuidedNegatives { guide, .. } => guide.as_deref(),
            Self::Distillation { teacher } => Some(teacher),
            _ => None,
        }
    }

    /// Whether other examples of a batch are negatives.
    pub(super) fn is_contrastive(&self) -> bool {
        matches!(self, Self::InBatchNegatives { .. } | Self::Simcse { .. } | Self::GuidedNegatives { .. })
    }

    /// Whether the loss compares the examples of a batch without using them as negatives.
    pub(super) fn orders_examples(&self) -> bool {
        matches!(self, Self::Cosent { .. })
    }

    /// The keys of the columns that the loss requires.
    pub(super) fn needs(&self) -> &'static [&'static str] {
        match self {
            Self::InBatchNegatives { .. } | Self::GuidedNegatives { .. } => &[PAIR],
            Self::Simcse { .. } | Self::Distillation { .. } => &[],
            Self::Triplet { .. } => &[PAIR, NEGATIVES],
            Self::Cosine { .. } | Self::Cosent { .. } => &[PAIR, LABEL],
            Self::Softmax {} => &[PAIR, CLASS],
        }
    }

    /// The columns that the loss ignores, and which losses use them.
    pub(super) fn ignores(&self) -> &'static [(&'static str, &'static str)] {
        const OF_CLASSES: (&str, &str) = (CLASS, "\"softmax\" alone reads classes");
        const OF_NEGATIVES: (&str, &str) = (
            NEGATIVES,
            "\"in-batch-negatives\", \"guided-negatives\", \"triplet\", \"simcse\" and \"distillation\" read negatives",
        );
        match self {
            Self::Softmax {} => &[OF_NEGATIVES],
            Self::Cosine { .. } | Self::Cosent { .. } => &[OF_NEGATIVES, OF_CLASSES],
            _ => &[OF_CLASSES],
        }
    }

    /// The name in configs.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::InBatchNegatives { .. } => "in-batch-negatives",
            Self::Simcse { .. } => "simcse",
            Self::GuidedNegatives { .. } => "guided-negatives",
            Self::Triplet { .. } => "triplet",
            Self::Cosine { .. } => "cosine",
            Self::Cosent { .. } => "cosent",
            Self::Softmax {} => "softmax",
            Self::Distillation { .. } => "distillation",
        }
    }

    /// Checks the values.
    pub(super) fn check(&self) -> Check {
        match self {
            Self::InBatchNegatives { temperature, .. }
            | Self::Simcse { temperature }
            | Self::Cosent { temperature } => positive("task.loss.temperature", *temperature),
            Self::GuidedNegatives { temperature, margin, .. } => {
                positive("task.loss.temperature", *temperature)?;
                not_negative("task.loss.margin", *margin)
            }
            Self::Triplet { margin, .. } => not_negative("task.loss.margin", *margin),
            Self::Cosine { max_score } => positive("task.loss.max_score", *max_score),
            Self::Softmax {} | Self::Distillation { .. } => Ok(()),
        }
    }

    fn loss(&self) -> Box<dyn EmbeddingLoss> {
        match *self {
            Self::InBatchNegatives { temperature, symmetric } => {
                Box::new(InBatchNegatives { temperature, symmetric })
            }
            Self::Simcse { temperature } => Box::new(InBatchNegatives { temperature, symmetric: false }),
            Self::GuidedNegatives { temperature, margin, .. } => {
                Box::new(GuidedNegatives { temperature, margin })
            }
            Self::Triplet { distance, margin } => Box::new(Triplet { distance, margin }),
            Self::Cosine { max_score } => Box::new(CosineRegression { max_score }),
            Self::Cosent { temperature } => Box::new(Cosent { temperature }),
            Self::Softmax {} => Box::new(PairClasses),
            Self::Distillation { .. } => Box::new(Distillation),
        }
    }
}

impl EmbeddingSection {
    /// A section with this loss, and defaults for everything else.
    pub fn new(loss: LossSection) -> Self {
        Self {
            loss,
            pooling: None,
            normalize: None,
            matryoshka: None,
            prompts: None,
            min_score: None,
            chunk: None,
            shards: None,
        }
    }

    /// The parts of a batch of this many sentences.
    pub(super) fn parts(&self, n: usize) -> Vec<Range<usize>> {
        in_parts(n, self.chunk, self.shards)
    }

    /// The loss, at several widths if the section sets them.
    pub fn loss(&self) -> Box<dyn EmbeddingLoss> {
        let loss = self.loss.loss();
        match &self.matryoshka {
            None => loss,
            Some(MatryoshkaSection { dims, weights }) => {
                let weights = weights.iter().copied().chain(std::iter::repeat(1.0));
                Box::new(Matryoshka { loss, widths: dims.iter().copied().zip(weights).collect() })
            }
        }
    }
}
