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
            true => "\"masked\" or \"span-boundary\": only a decoder is trained left to right",
            false => "\"left-to-right\", the only objective of a decoder",
        };
        match self.is_of_encoders() == encoder {
            true => Ok(()),
            false => Err(Complaint {
                key: "objective.kind".into(),
                found: format!("\"{}\"", self.kind()),
                expected: expected.into(),
            }),
        }
    }

    /// Whether the config file at `path` has an objective, and none of pretraining's.
    pub(super) fn is_of_a_language_model(path: &Path) -> Result<bool> {
        let kinds = [Self::Masked {}, Self::SpanBoundary {}].map(Self::kind);
        Ok(layered::kind_of(path, "objective")?.is_some_and(|kind| !kinds.contains(&kind.as_str())))
    }
}
