//! `[objective]`: what a run predicts.

use super::validate::{Check, Complaint, ensure, positive};
use cloze_data::TranslationFiles;
use serde::{Deserialize, Serialize};

/// `[objective]`: what is predicted, which also determines the kind of config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ObjectiveSection {
    /// Each token from the previous ones: a language model.
    LeftToRight {},
    /// Each token from the previous ones and, by separate layers, from the following ones: ELMo (Peters et al.
    /// 2018, §3.1),
    /// `−log P(x_k | x_(<k)) − log P(x_k | x_(>k))`.
    BidirectionalLanguageModel {},
    /// Masked tokens and, if examples are pairs, the relation of each pair (Devlin et al. 2019, §3.1). The
    /// default of pretraining.
    Masked {},
    /// The same, and each token of a masked span a second time, from the hidden states of the two tokens
    /// around the span and its position in it: SpanBERT's span boundary objective (Joshi et al. 2020, §3.2,
    /// eq. 1). The sum of both losses is minimised. Use it with `examples.masking.unit = "span"`. The
    /// tokenizer must have pieces that begin and end an example.
    SpanBoundary {},
    /// Each predicted token from its position and the tokens before it in a random order: XLNet (Yang et al.
    /// 2019, eq. 3).
    Permutation {},
    /// Which tokens were replaced by a small generator, itself trained on the masked tokens: ELECTRA's
    /// replaced token detection (Clark et al. 2020, §2). Examples may not be pairs: set `examples.pairs.kind`
    /// to `"doc-sentences"` or `"full-sentences"`. The result is a folder of transformers'
    /// `ElectraForPreTraining`; its subfolder `generator` has the generator as an `ElectraForMaskedLM`.
    ReplacedTokens {
        /// Ratio of the generator's width and feed-forward size to the discriminator's, above 0, at most 1.
        /// Default 0.25.
        #[serde(default = "generator_size")]
        generator_size: f64,
        /// Weight of the discriminator's loss relative to the generator's, `λ` in the paper. Default 50.
        #[serde(default = "weight")]
        weight: f64,
    },
    /// Masked tokens of each language of `corpus.languages` and, in every second batch, of sentences paired
    /// with their translations, whose positions restart: a masked word can be predicted from either (Conneau
    /// & Lample 2019, §3.3 and 3.4).
    TranslationLanguageModel {
        /// The parallel text, a table for each pair of languages. Required.
        #[serde(default)]
        parallel: Vec<TranslationFiles>,
    },
    /// A text, or spans of it, from a corrupted one: the objective of an encoder–decoder (Lewis et al. 2020;
    /// Raffel et al. 2020), `−Σ log P(yᵢ | y₍<i₎, x̃)` over the tokens of the target `y` of a noisy text `x̃`.
    Denoising {},
}

fn generator_size() -> f64 {
    0.25
}

fn weight() -> f64 {
    50.0
}

/// The kinds of models trained on raw text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Trained {
    Encoder,
    Decoder,
    Elmo,
    Xlnet,
    EncoderDecoder,
}

impl Default for ObjectiveSection {
    fn default() -> Self {
        Self::Masked {}
    }
}

impl ObjectiveSection {
    /// All names in configs.
    pub(crate) const KINDS: [&str; 8] = [
        "left-to-right",
        "bidirectional-language-model",
        "masked",
        "span-boundary",
        "permutation",
        "replaced-tokens",
        "translation-language-model",
        "denoising",
    ];

    /// The name in configs.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::LeftToRight {} => "left-to-right",
            Self::BidirectionalLanguageModel {} => "bidirectional-language-model",
            Self::Masked {} => "masked",
            Self::SpanBoundary {} => "span-boundary",
            Self::Permutation {} => "permutation",
            Self::ReplacedTokens { .. } => "replaced-tokens",
            Self::TranslationLanguageModel { .. } => "translation-language-model",
            Self::Denoising {} => "denoising",
        }
    }

    /// The kind of model it trains.
    fn trains(&self) -> Trained {
        match self {
            Self::Masked {}
            | Self::SpanBoundary {}
            | Self::ReplacedTokens { .. }
            | Self::TranslationLanguageModel { .. } => Trained::Encoder,
            Self::LeftToRight {} => Trained::Decoder,
            Self::BidirectionalLanguageModel {} => Trained::Elmo,
            Self::Permutation {} => Trained::Xlnet,
            Self::Denoising {} => Trained::EncoderDecoder,
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Rejects an objective of another kind of config, and values out of range.
    pub(super) fn check(&self, trained: Trained) -> Check {
        let expected = match trained {
            Trained::Encoder => {
                "\"masked\", \"span-boundary\", \"replaced-tokens\" or \"translation-language-model\": only a decoder is \
                 trained left to right"
            }
            Trained::Decoder => "\"left-to-right\", the only objective of a decoder",
            Trained::Elmo => "\"bidirectional-language-model\", the only objective of ELMo",
            Trained::Xlnet => "\"permutation\", the only objective of XLNet",
            Trained::EncoderDecoder => "\"denoising\", the only objective of an encoder–decoder on raw text",
        };
        if self.trains() != trained {
            let (key, found) = ("objective.kind".into(), format!("\"{}\"", self.kind()));
            return Err(Complaint { key, found, expected: expected.into() });
        }
        let Self::ReplacedTokens { generator_size, weight } = *self else { return Ok(()) };
        let expected = "a number above 0, at most 1: the generator is no wider than the discriminator";
        let is_narrower = generator_size > 0.0 && generator_size <= 1.0;
        ensure(is_narrower, "objective.generator_size", generator_size, expected)?;
        positive("objective.weight", weight)
    }

    /// The parallel text to train on; empty if the objective uses none.
    pub fn parallel(&self) -> &[TranslationFiles] {
        match self {
            Self::TranslationLanguageModel { parallel } => parallel,
            _ => &[],
        }
    }
}
