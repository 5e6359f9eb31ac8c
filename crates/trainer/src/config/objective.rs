//! `[objective]`: what a run predicts.

use super::layered;
use super::validate::{Check, Complaint, ensure, positive};
use crate::Result;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::Activation;
use cloze_model::huggingface::{Architecture, Family, SaveConfig};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `[objective]`: what is predicted, and so which kind of config it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ObjectiveSection {
    /// Each token, from those before it: a language model.
    LeftToRight {},
    /// Masked tokens and, where examples are pairs, how the pairs go together (Devlin et al. 2019, §3.1). The default
    /// of pretraining.
    Masked {},
    /// The same, and each token of a masked span from the two tokens around the span and its place in it: SpanBERT's
    /// span boundary objective (Joshi et al. 2020, §3.2, eq. 1), `−log P(x | y₍place₎)` added to the masked tokens'
    /// loss.
    SpanBoundary {},
    /// Which tokens a small generator, trained on the masked tokens, replaced: ELECTRA's replaced token detection (Clark
    /// et al. 2020, §2).
    ReplacedTokens {
        /// The generator's width and feed-forward networks over the discriminator's, above 0, at most 1. Default 0.25.
        #[serde(default = "generator_size")]
        generator_size: f64,
        /// What the discriminator's loss counts beside the generator's, `λ` in the paper. Default 50.
        #[serde(default = "weight")]
        weight: f64,
    },
}

fn generator_size() -> f64 {
    0.25
}

fn weight() -> f64 {
    50.0
}

impl Default for ObjectiveSection {
    fn default() -> Self {
        Self::Masked {}
    }
}

impl ObjectiveSection {
    /// The name in configs.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::LeftToRight {} => "left-to-right",
            Self::Masked {} => "masked",
            Self::SpanBoundary {} => "span-boundary",
            Self::ReplacedTokens { .. } => "replaced-tokens",
        }
    }

    /// The encoder that a new model of these sizes has, and the class of transformers that it is saved as.
    pub(crate) fn published(self, sizes: BertConfig) -> (BertConfig, SaveConfig) {
        match self {
            Self::ReplacedTokens { .. } => {
                let encoder = sizes.with_pooler(false).with_mlm_activation(Some(Activation::Gelu));
                let save = SaveConfig::new(Architecture::ReplacedTokens).with_family(Family::ELECTRA);
                (encoder, save)
            }
            _ => (sizes, SaveConfig::new(Architecture::PreTraining)),
        }
    }

    /// Whether an encoder is pretrained so.
    fn is_of_encoders(self) -> bool {
        self != Self::LeftToRight {}
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses an objective of the other kind of config.
    pub(super) fn check(self, encoder: bool) -> Check {
        let expected = match encoder {
            true => {
                "\"masked\", \"span-boundary\" or \"replaced-tokens\": only a decoder is trained left to right"
            }
            false => "\"left-to-right\", the only objective of a decoder",
        };
        if self.is_of_encoders() != encoder {
            let (key, found) = ("objective.kind".into(), format!("\"{}\"", self.kind()));
            return Err(Complaint { key, found, expected: expected.into() });
        }
        let Self::ReplacedTokens { generator_size, weight } = self else { return Ok(()) };
        let expected = "a number above 0, at most 1: the generator is no wider than the discriminator";
        let is_narrower = generator_size > 0.0 && generator_size <= 1.0;
        ensure(is_narrower, "objective.generator_size", generator_size, expected)?;
        positive("objective.weight", weight)
    }

    /// Whether the config file at `path` has an objective, and none of pretraining's.
    pub(super) fn is_of_a_language_model(path: &Path) -> Result<bool> {
        let replaced = Self::ReplacedTokens { generator_size: generator_size(), weight: weight() };
        let kinds = [Self::Masked {}, Self::SpanBoundary {}, replaced].map(Self::kind);
        Ok(layered::kind_of(path, "objective")?.is_some_and(|kind| !kinds.contains(&kind.as_str())))
    }
}
