use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::bert;
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, without_switches};
use super::encoder_keys::LANGUAGE;
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::Activation;
use serde_json::{Map, Value};

pub(super) struct Xlm;

/// The width, from which that of the feed-forward networks follows.
const WIDTH: &str = "emb_dim";
const LANGUAGES: &str = "n_langs";
/// The padding's id twice: the class takes the first, its generation the other.
const PADDINGS: [&str; 2] = ["pad_index", "pad_token_id"];
/// The old name of `vocab_size`, which the class prefers.
const OLD_VOCABULARY: &str = "n_words";

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: (WIDTH, 2048),
    n_layers: ("n_layers", 12),
    n_heads: ("n_heads", 16),
    // No key: it is four times the width, whatever is read.
    d_ff: (WIDTH, 2048),
    hidden_dropout: ("dropout", 0.1),
    attention_dropout: ("attention_dropout", 0.1),
    activation: ("gelu_activation", Activation::Gelu),
    activation_is_flag: true,
    // Its head has no non-linearity, whatever the layers have.
    mlm_activation: Some(Activation::Gelu),
    vocab_size: 30_145,
    pad_token_id: 2,
    token_types: Some((1, 0)),
    token_types_key: LANGUAGES,
    has_position_type: false,
    switch,
    ..bert::FORMAT
};

fn switch(config: BertConfig) -> BertConfig {
    BertConfig {
        d_ff: config.d_model.saturating_mul(4),
        activation: if config.activation == Activation::Relu { Activation::Relu } else { Activation::Gelu },
        // One language has no vector.
        n_token_types: if config.n_token_types > 1 { config.n_token_types } else { 0 },
        mlm_transform: false,
        ..without_switches(config)
    }
}

/// Options of the class that this crate does not have, or has in one way alone: sinusoids are not learned, an adaptive
/// softmax replaces the head, a causal model sees no later token, and a decoder is none of the class's own.
const FIXED: [(&str, bool); 6] = [
    ("sinusoidal_embeddings", false),
    ("asm", false),
    ("causal", false),
    ("is_encoder", true),
    ("summary_use_proj", true),
    ("summary_proj_to_labels", true),
];

impl FamilyDefinition for Xlm {
    fn name(&self) -> &'static str {
        "XLM"
    }

    fn model_type(&self) -> &'static str {
        "xlm"
    }

    fn class_prefix(&self) -> &'static str {
        "XLM"
    }

    fn prefix(&self) -> &'static str {
        "transformer."
    }

    fn class_suffix(&self, architecture: Architecture) -> &'static str {
        match architecture {
            Architecture::MaskedLm => "WithLMHeadModel",
            // The other one searches for the end by the beginning.
            Architecture::QuestionAnswering => "ForQuestionAnsweringSimple",
            other => other.class_suffix(),
        }
    }

    /// That of multiple choice maps to as many numbers as there are labels, and these to a score.
    fn has_class(&self, architecture: Architecture) -> bool {
        use Architecture::{MultipleChoice, PreTraining, ReplacedTokens};
        !matches!(architecture, MultipleChoice | PreTraining | ReplacedTokens)
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::SequenceClassification => Some(("summary_first_dropout", Some(0.1))),
            _ => None,
        }
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    /// A new one has language embeddings where it is told so.
    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        sizes.with_n_token_types(0)
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        FIXED.into_iter().try_for_each(|(key, expected)| fields.fixed(key, expected))?;
        if let Some(found) = fields.text("summary_type")?.filter(|found| *found != "first") {
            return Err(fields.refuse("summary_type", &found.into(), "\"first\""));
        }
        if let Some(found) = fields.value("summary_activation") {
            return Err(fields.refuse("summary_activation", found, "none"));
        }
        if let Some(p) = fields.number("summary_last_dropout")?.filter(|p| *p > 0.0) {
            return Err(fields.refuse("summary_last_dropout", &p.into(), "0"));
        }
        let has_languages = fields.flag("use_lang_emb")?.unwrap_or(true);
        let read = FORMAT.read(fields)?;
        let n_token_types = if has_languages { read.n_token_types } else { 0 };
        let vocab_size = match fields.size(OLD_VOCABULARY)? {
            Some(0) => return Err(fields.refuse(OLD_VOCABULARY, &0.into(), "at least 1")),
            given => given.unwrap_or(read.vocab_size),
        };
        Ok(BertConfig {
            vocab_size,
            n_token_types,
            pad_token_id: fields.size(PADDINGS[0])?.unwrap_or(FORMAT.pad_token_id),
            init_std: fields.number("init_std")?.unwrap_or(read.init_std),
            language: (n_token_types > 0).then_some(0),
            ..read
        })
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, map: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, map);
        map.shift_remove("initializer_range");
        let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
        set(WIDTH, encoder.d_model.into());
        set(LANGUAGES, encoder.n_token_types.max(1).into());
        set("use_lang_emb", (encoder.n_token_types > 0).into());
        set(LANGUAGE, encoder.language.unwrap_or_default().into());
        PADDINGS.into_iter().for_each(|key| set(key, encoder.pad_token_id.into()));
        ["init_std", "embed_init_std"].into_iter().for_each(|key| set(key, encoder.init_std.into()));
        FIXED.into_iter().for_each(|(key, value)| set(key, value.into()));
        set("summary_type", "first".into());
        set("summary_activation", Value::Null);
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        TensorRules::new()
            .table("embeddings", "embeddings.tokens")
            .table("lang_embeddings", "embeddings.token_types")
            .table("position_embeddings", "embeddings.positions.table")
            .norm("layer_norm_emb", "embeddings.norm")
            .linear("attentions.*.q_lin", "encoder.layers.*.attention.query")
            .linear("attentions.*.k_lin", "encoder.layers.*.attention.key")
            .linear("attentions.*.v_lin", "encoder.layers.*.attention.value")
            .linear("attentions.*.out_lin", "encoder.layers.*.attention.output")
            .norm("layer_norm1.*", "encoder.layers.*.attention_norm")
            .linear("ffns.*.lin1", "encoder.layers.*.feed_forward.up")
            .linear("ffns.*.lin2", "encoder.layers.*.feed_forward.down")
            .norm("layer_norm2.*", "encoder.layers.*.feed_forward_norm")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .with(TensorRule::copy("pred_layer.proj.bias", "mlm.bias"))
                .with(TensorRule::tie("pred_layer.proj.weight", "embeddings.weight")),
            Architecture::SequenceClassification => {
                TensorRules::new().linear("sequence_summary.summary", "head.output")
            }
            other => bert::pooled(other),
        }
    }
}
