//! `[objective]`: what a run predicts.

use super::layered;
use super::validate::{Check, Complaint};
use crate::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `[objective]`: what is predicted, and so which kind of config it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Each predicted token, from those before it in a random order and its place: XLNet (Yang et al. 2019, eq. 3).
    Permutation {},
    /// A text, or spans of it, from a noisy one: the objective of an encoder–decoder (Lewis et al. 2020; Raffel et al.
    /// 2020), `−Σ log P(yᵢ | y₍<i₎, x̃)` over the tokens of the target `y` of a noisy text `x̃`.
    Denoising {},
}

/// The kinds of models that are trained on raw text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Trained {
    Encoder,
    Decoder,
    Xlnet,
    EncoderDecoder,
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
            Self::Permutation {} => "permutation",
            Self::Denoising {} => "denoising",
        }
    }

    /// What is trained so.
    fn trains(self) -> Trained {
        match self {
            Self::Masked {} | Self::SpanBoundary {} => Trained::Encoder,
            Self::LeftToRight {} => Trained::Decoder,
            Self::Permutation {} => Trained::Xlnet,
            Self::Denoising {} => Trained::EncoderDecoder,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses an objective of another kind of config.
    pub(super) fn check(self, trained: Trained) -> Check {
        let expected = match trained {
            Trained::Encoder => "\"masked\" or \"span-boundary\": only a decoder is trained left to right",
            Trained::Decoder => "\"left-to-right\", the only objective of a decoder",
            Trained::Xlnet => "\"permutation\", the only objective of XLNet",
            Trained::EncoderDecoder => "\"denoising\", the only objective of an encoder–decoder on raw text",
        };
        match self.trains() == trained {
            true => Ok(()),
            false => Err(Complaint {
                key: "objective.kind".into(),
                found: format!("\"{}\"", self.kind()),
                expected: expected.into(),
            }),
        }
    }

    /// Whether the config file at `path` has an objective, and none of the others'.
    pub(super) fn is_of_a_language_model(path: &Path) -> Result<bool> {
        let kinds = [Self::Masked {}, Self::SpanBoundary {}, Self::Permutation {}, Self::Denoising {}];
        let kinds = kinds.map(Self::kind);
        Ok(layered::kind_of(path, "objective")?.is_some_and(|kind| !kinds.contains(&kind.as_str())))
    }

    /// Whether the config file at `path` has XLNet's objective.
    pub(super) fn is_of_xlnet(path: &Path) -> Result<bool> {
        Ok(layered::kind_of(path, "objective")?.is_some_and(|kind| kind == Self::Permutation {}.kind()))
    }

    /// Whether the config file at `path` has the objective of denoising.
    pub(super) fn is_of_denoising(path: &Path) -> Result<bool> {
        Ok(layered::kind_of(path, "objective")?.is_some_and(|kind| kind == Self::Denoising {}.kind()))
    }
}
