//! `[model]` of a denoising run: BART, T5, or a translation model.

use crate::config::OutputSection;
use crate::config::validate::{Check, at_least, below_one, ensure, positive};
use crate::translation::model::{complaint, tokens};
use crate::translation::{
    ConvolutionalSection, RecurrentSection, TransformerSection, TranslationModel, VocabularySizes,
};
use cloze_model::blocks::Activation;
use cloze_model::seq2seq::{
    AnyEncoderDecoderConfig, InitialWeights, OutputBias, PositionsConfig, SpecialTokens, TiedEmbeddings,
    TransformerConfig,
};
use serde::{Deserialize, Serialize};

/// `[model]`: a new network. Its vocabulary is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DenoisingModel {
    /// BART's Transformer (Lewis et al. 2020, §2.1), saved as transformers' `BartForConditionalGeneration`.
    Bart(BartSection),
    /// T5's Transformer (Raffel et al. 2020, §2.1), saved as transformers' `T5ForConditionalGeneration`.
    T5(T5Section),
    /// The Transformer of a translation run.
    Transformer(TransformerSection),
    /// The recurrent model of a translation run.
    Recurrent(RecurrentSection),
    /// The convolutional model of a translation run.
    Convolutional(ConvolutionalSection),
}

/// A BART: learned positions, layer norms after each sublayer and after the embeddings, GELU, one shared table
/// for source, target and output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BartSection {
    /// Encoder layers, and decoder layers unless set separately.
    pub n_layers: usize,
    /// Decoder layers. Default `n_layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_layers: Option<usize>,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the feed-forward.
    pub d_ff: usize,
    /// Maximum length of a source and of a target, in tokens. Default 1,024.
    #[serde(default = "max_positions")]
    pub max_positions: usize,
    /// Dropout of embeddings and of each sublayer's output. Default 0.1.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Dropout of the attention probabilities. Default 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Dropout after the feed-forward's activation. Default 0.
    #[serde(default)]
    pub activation_dropout: f64,
    /// The feed-forward's activation. Default `"gelu"`.
    #[serde(default)]
    pub activation: Activation,
    /// Standard deviation of the truncated normal distribution of initial weights. With about `1 / √d_model`,
    /// narrow models learn to attend sooner. Default 0.02.
    #[serde(default = "init_std")]
    pub init_std: f64,
}

/// A T5: relative position biases, RMS normalisation before each sublayer, no other biases. Targets begin with
/// the padding piece.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct T5Section {
    /// Encoder layers, and decoder layers unless set separately.
    pub n_layers: usize,
    /// Decoder layers. Default `n_layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_decoder_layers: Option<usize>,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Width of a head. Default `d_model / n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_head: Option<usize>,
    /// Inner width of the feed-forward.
    pub d_ff: usize,
    /// Maximum length of a source and of a target, in tokens. Default 512.
    #[serde(default = "t5_positions")]
    pub max_positions: usize,
    /// Dropout of embeddings, inside each sublayer and of its output, of attention probabilities and of the
    /// last states. Default 0.1.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Whether the feed-forward has a gate, as in T5 1.1. Default false.
    #[serde(default)]
    pub gated: bool,
    /// The feed-forward's activation. Default `"relu"`, with a gate `"gelu-tanh"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// Whether the output layer shares the embedding table; not so in T5 1.1. Default true.
    #[serde(default = "yes")]
    pub tied: bool,
    /// Buckets of distances between tokens. Default 32.
    #[serde(default = "buckets")]
    pub n_buckets: usize,
    /// Distance from which on all fall into the last bucket. Default 128.
    #[serde(default = "farthest")]
    pub max_distance: usize,
    /// Factor on the standard deviations of T5's initial weights. Default 1.
    #[serde(default = "one")]
    pub init_factor: f64,
}

fn max_positions() -> usize {
    1024
}

fn t5_positions() -> usize {
    512
}

fn yes() -> bool {
    true
}

fn buckets() -> usize {
    32
}

fn farthest() -> usize {
    128
}

fn one() -> f64 {
    1.0
}

fn dropout() -> f64 {
    0.1
}

fn init_std() -> f64 {
    0.02
}

impl DenoisingModel {
    /// The model for a vocabulary, with sequences of at most this many tokens; `begins` says whether targets
    /// begin with the begin-of-text piece.
    pub fn config(
        &self,
        vocabulary: VocabularySizes,
        max_len: usize,
        begins: bool,
    ) -> AnyEncoderDecoderConfig {
        let mut config = match self {
            Self::Bart(section) => section.config(vocabulary).into(),
            Self::T5(section) => section.config(vocabulary).into(),
            Self::Transformer(section) => {
                TranslationModel::Transformer(section.clone()).config(vocabulary, max_len)
            }
            Self::Recurrent(section) => {
                TranslationModel::Recurrent(section.clone()).config(vocabulary, max_len)
            }
            Self::Convolutional(section) => {
                TranslationModel::Convolutional(section.clone()).config(vocabulary, max_len)
            }
        };
        if let AnyEncoderDecoderConfig::Transformer(TransformerConfig { tokens, .. }) = &mut config {
            tokens.forced_bos = tokens.bos.filter(|_| begins);
        }
        config
    }

    /// How the next piece is predicted.
    pub fn output(&self) -> &OutputSection {
        const WHOLE: &OutputSection = &OutputSection::Whole {};
        match self {
            Self::Bart(_) | Self::T5(_) => WHOLE,
            Self::Transformer(section) => &section.output,
            Self::Recurrent(section) => &section.output,
            Self::Convolutional(section) => &section.output,
        }
    }

    /// Whether targets begin with the padding piece, regardless of the vocabulary.
    pub(super) fn begins_with_padding(&self) -> bool {
        matches!(self, Self::T5(_))
    }

    /// Whether its values are consistent with texts of this many tokens, and with sources and targets of at
    /// most `max_len`, for any vocabulary.
    pub(crate) fn check(&self, seq_len: usize, max_len: usize) -> Check {
        let of_translation = match self {
            Self::Bart(section) => {
                section.check(seq_len, max_len)?;
                None
            }
            Self::T5(section) => {
                section.check(seq_len, max_len)?;
                None
            }
            Self::Transformer(section) => Some(TranslationModel::Transformer(section.clone())),
            Self::Recurrent(section) => Some(TranslationModel::Recurrent(section.clone())),
            Self::Convolutional(section) => Some(TranslationModel::Convolutional(section.clone())),
        };
        match of_translation {
            Some(model) => model.check(true, max_len),
            None => self
                .config(VocabularySizes::unknown(true, self.output()), max_len, true)
                .check()
                .map_err(complaint),
        }
    }
}

/// Rejects texts whose sources or targets may exceed the model's positions.
fn positions(max_positions: usize, seq_len: usize, max_len: usize) -> Check {
    let expected = match max_len > seq_len {
        false => format!("at most {max_positions}, which is `model.max_positions`"),
        true => format!(
            "less: its targets may have {max_len} tokens, but `model.max_positions` is {max_positions}"
        ),
    };
    ensure(max_len <= max_positions, "examples.seq_len", seq_len, expected)
}

impl BartSection {
    fn config(&self, vocabulary: VocabularySizes) -> TransformerConfig {
        let special: SpecialTokens = tokens(vocabulary.special);
        let mut config = TransformerConfig::new(vocabulary.target, self.n_layers, self.d_model)
            .with_layers(self.n_layers, self.n_decoder_layers.unwrap_or(self.n_layers))
            .with_heads(self.n_heads)
            .with_d_ff(self.d_ff)
            .with_max_positions(self.max_positions)
            .with_positions(PositionsConfig::Learned { offset: 2 })
            .with_dropout(self.dropout)
            .with_inner_dropouts(self.attention_dropout, self.activation_dropout)
            .with_activation(self.activation)
            .with_initial(InitialWeights::Normal { std: self.init_std })
            .with_output_bias(OutputBias::Fixed)
            .with_tied(TiedEmbeddings::All)
            .with_tokens(special);
        (config.embedding_norm, config.scaled_embeddings) = (true, false);
        config
    }

    fn check(&self, seq_len: usize, max_len: usize) -> Check {
        at_least(1, "model.n_layers", self.n_layers)?;
        at_least(1, "model.n_decoder_layers", self.n_decoder_layers.unwrap_or(1))?;
        at_least(1, "model.d_model", self.d_model)?;
        at_least(1, "model.n_heads", self.n_heads)?;
        at_least(1, "model.d_ff", self.d_ff)?;
        let expected = format!("a divisor of `model.d_model`, which is {}", self.d_model);
        ensure(self.d_model.is_multiple_of(self.n_heads), "model.n_heads", self.n_heads, expected)?;
        below_one("model.dropout", self.dropout)?;
        below_one("model.attention_dropout", self.attention_dropout)?;
        below_one("model.activation_dropout", self.activation_dropout)?;
        positive("model.init_std", self.init_std)?;
        positions(self.max_positions, seq_len, max_len)
    }
}

impl T5Section {
    fn config(&self, vocabulary: VocabularySizes) -> TransformerConfig {
        let special: SpecialTokens = tokens(vocabulary.special);
        let begin = special.pad;
        let usual = if self.gated { Activation::GeluTanh } else { Activation::Relu };
        let mut config = TransformerConfig::t5(vocabulary.target, self.n_layers, self.d_model)
            .with_layers(self.n_layers, self.n_decoder_layers.unwrap_or(self.n_layers))
            .with_heads(self.n_heads)
            .with_d_ff(self.d_ff)
            .with_max_positions(self.max_positions)
            .with_positions(PositionsConfig::RelativeBias {
                n_buckets: self.n_buckets,
                max_distance: self.max_distance,
            })
            .with_dropout(self.dropout)
            .with_inner_dropouts(self.dropout, self.dropout)
            .with_activation(self.activation.unwrap_or(usual))
            .with_initial(InitialWeights::T5 { factor: self.init_factor })
            .with_tied(if self.tied { TiedEmbeddings::All } else { TiedEmbeddings::SourceTarget })
            .with_tokens(special.with_decoder_start(begin));
        (config.d_head, config.gated, config.scaled_output) = (self.d_head, self.gated, self.tied);
        config
    }

    fn check(&self, seq_len: usize, max_len: usize) -> Check {
        at_least(1, "model.n_layers", self.n_layers)?;
        at_least(1, "model.n_decoder_layers", self.n_decoder_layers.unwrap_or(1))?;
        at_least(1, "model.d_model", self.d_model)?;
        at_least(1, "model.n_heads", self.n_heads)?;
        at_least(1, "model.d_head", self.d_head.unwrap_or(1))?;
        at_least(1, "model.d_ff", self.d_ff)?;
        let fits = self.d_head.is_some() || self.d_model.is_multiple_of(self.n_heads);
        let expected = format!(
            "a divisor of `model.d_model`, which is {}, unless `model.d_head` is given",
            self.d_model
        );
        ensure(fits, "model.n_heads", self.n_heads, expected)?;
        below_one("model.dropout", self.dropout)?;
        positive("model.init_factor", self.init_factor)?;
        positions(self.max_positions, seq_len, max_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use crate::config::DenoisingRunConfig;
    use crate::engine::FolderConfig;
    use crate::error::Place;

    const FILE: &str = r#"
objective.kind = "denoising"
corpus.files = ["a.txt"]
tokenizer = { kind = "train-byte-bpe", vocab_size = 512 }
examples.seq_len = 64
denoising.kind = "t5"
model = { kind = "t5", n_layers = 2, d_model = 32, n_heads = 4, d_ff = 64 }
train = { steps = 100, batch_size = 8 }
optimizer.lr = 1e-3
schedule.kind = "constant"
"#;

    fn resolve(sets: &[&str]) -> Result<DenoisingRunConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        DenoisingRunConfig::parse(FILE, "run", &Place::argument(""), &sets)
    }

    #[test]
    fn a_t5_is_saved_as_transformers_has_it() {
        let special = VocabularySizes::unknown(true, &OutputSection::default());
        let t5 = |sets: &[&str]| {
            let config = resolve(sets).unwrap();
            let again = DenoisingRunConfig::parse(&config.to_toml(), "run", &Place::argument(""), &[]);
            assert_eq!(again.unwrap(), config);
            match config.model.config(special, config.max_len(), false) {
                AnyEncoderDecoderConfig::Transformer(t5) => t5,
                other => panic!("{other:?}"),
            }
        };
        let first = t5(&[]);
        assert_eq!((first.tokens.decoder_start, first.tokens.pad, first.tokens.forced_bos), (1, 1, None));
        assert_eq!((first.activation, first.gated, first.scaled_output), (Activation::Relu, false, true));
        let later = t5(&["model.gated=true", "model.tied=false", "model.dropout=0.2", "model.d_head=5"]);
        assert_eq!((later.activation, later.gated, later.scaled_output), (Activation::GeluTanh, true, false));
        assert_eq!([later.attention_dropout, later.activation_dropout], [0.2; 2]);
        assert_eq!((later.d_head, later.tied), (Some(5), TiedEmbeddings::SourceTarget));
        let refused = |set: &str| resolve(&[set]).unwrap_err().to_string();
        for (set, expected) in [
            (
                "model.n_heads=5",
                "`model.n_heads` is 5; expected a divisor of `model.d_model`, which is 32, unless `model.d_head`",
            ),
            ("model.n_buckets=5", "`model.n_buckets` is 5; expected an even number, at least 4"),
            (
                "model.max_distance=9",
                "`model.max_distance` is 9; expected more than half of `n_buckets`, which is 16",
            ),
            ("model.init_factor=0", "`model.init_factor` is 0; expected a number above 0"),
            ("model.max_positions=60", "`examples.seq_len` is 64; expected at most 60"),
            ("model.attention_dropout=0.1", "unknown key `model.attention_dropout`"),
        ] {
            let message = refused(set);
            assert!(message.contains(expected), "{message}");
        }
    }
}
