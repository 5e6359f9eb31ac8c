use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, Projection, without_switches};
use super::encoder_keys::{BUCKETS, FARTHEST, HEAD};
use super::{bert, t5};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, NormKind, NormPlacement, RelativeBiasConfig};
use serde_json::{Map, Value};

pub(super) const T5: T5Encoder = T5Encoder {
    name: "T5",
    model_type: t5::MODEL_TYPE,
    class_prefix: "T5",
    feed_forward: "relu",
    format: FORMAT,
};

pub(super) const MT5: T5Encoder = T5Encoder {
    name: "mT5",
    model_type: t5::MULTILINGUAL,
    class_prefix: "MT5",
    feed_forward: "gated-gelu",
    format: EncoderFormat {
        n_layers: ("num_layers", 8),
        n_heads: ("num_heads", 6),
        d_ff: ("d_ff", 1024),
        vocab_size: 250_112,
        ..FORMAT
    },
};

/// A family whose classes in transformers differ from T5's in names and defaults alone.
pub(super) struct T5Encoder {
    name: &'static str,
    model_type: &'static str,
    class_prefix: &'static str,
    /// The default of `feed_forward_proj`.
    feed_forward: &'static str,
    format: EncoderFormat,
}

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("d_model", 512),
    n_layers: ("num_layers", 6),
    n_heads: ("num_heads", 8),
    d_ff: ("d_ff", 2048),
    hidden_dropout: ("dropout_rate", 0.1),
    attention_dropout: ("dropout_rate", 0.1),
    activation: ("dense_act_fn", Activation::Relu),
    max_positions: t5::LONGEST,
    layer_norm_eps: Some(("layer_norm_epsilon", 1e-6)),
    vocab_size: 32_128,
    pad_token_id: 0,
    embedding_size: None,
    token_types: None,
    has_position_type: false,
    projection: Projection::Never,
    switch,
    ..bert::FORMAT
};

/// The switches that the class fixes; the others stay as they are.
fn switch(config: BertConfig) -> BertConfig {
    BertConfig {
        absolute_positions: false,
        relative_bias: Some(
            config
                .relative_bias
                .unwrap_or(RelativeBiasConfig { n_buckets: BUCKETS.1, max_distance: FARTHEST.1 }),
        ),
        d_head: Some(config.d_head.unwrap_or(HEAD.1)),
        gated: config.gated,
        attention_bias: false,
        feed_forward_bias: false,
        feed_forward_dropout: config.feed_forward_dropout,
        norm: NormPlacement::Pre,
        norm_kind: NormKind::Rms,
        norm_bias: false,
        embedding_norm: false,
        scaled_scores: false,
        output_dropout: true,
        ..without_switches(config)
    }
}

impl FamilyDefinition for T5Encoder {
    fn name(&self) -> &'static str {
        self.name
    }

    fn model_type(&self) -> &'static str {
        self.model_type
    }

    fn class_prefix(&self) -> &'static str {
        self.class_prefix
    }

    /// `T5Model` is the whole one, with a decoder.
    fn class_suffix(&self, architecture: Architecture) -> &'static str {
        match architecture {
            Architecture::Encoder => "EncoderModel",
            other => other.class_suffix(),
        }
    }

    fn has_class(&self, architecture: Architecture) -> bool {
        matches!(architecture, Architecture::Encoder | Architecture::TokenClassification)
    }

    fn prefix(&self) -> &'static str {
        "transformer."
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        (architecture == Architecture::TokenClassification).then_some(("classifier_dropout", Some(0.0)))
    }

    fn format(&self) -> &EncoderFormat {
        &self.format
    }

    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        let dropout = sizes.hidden_dropout;
        BertConfig { attention_dropout: dropout, feed_forward_dropout: dropout, ..sizes }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let size = |(key, default): (&str, usize)| match fields.size(key)?.unwrap_or(default) {
            0 => Err(fields.refuse(key, &0.into(), "at least 1")),
            size => Ok(size),
        };
        let (activation, gated) = t5::feed_forward(fields, self.feed_forward)?;
        let bias = RelativeBiasConfig { n_buckets: size(BUCKETS)?, max_distance: size(FARTHEST)? };
        let d_head = size(HEAD)?;
        let encoder = self.format.read(fields)?;
        Ok(BertConfig {
            activation,
            gated,
            d_head: Some(d_head),
            relative_bias: Some(bias),
            feed_forward_dropout: encoder.hidden_dropout,
            ..encoder
        })
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        self.format.write(encoder, dtype, config);
        // The classes draw new weights by a factor instead.
        config.remove("initializer_range");
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        set("initializer_factor", 1.0.into());
        set("is_encoder_decoder", false.into());
        set("use_cache", false.into());
        set("dropout_rate", encoder.hidden_dropout.into());
        set(HEAD.0, encoder.d_head.unwrap_or(encoder.d_model / encoder.n_heads).into());
        if let Some(bias) = encoder.relative_bias {
            set(BUCKETS.0, bias.n_buckets.into());
            set(FARTHEST.0, bias.max_distance.into());
        }
        t5::set_feed_forward(encoder.activation, encoder.gated, config);
    }

    fn encoder_rules(&self, encoder: &BertConfig) -> TensorRules {
        TensorRules::new()
            .table("shared", "embeddings.tokens")
            .with(TensorRule::tie("encoder.embed_tokens.weight", "shared.weight"))
            .with(t5::distances("encoder", "embeddings.relative_bias"))
            .and(t5::layers("encoder", &["SelfAttention"]))
            .and(t5::feed_forward_rules("encoder", 1, encoder.gated))
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::TokenClassification => TensorRules::new().linear("classifier", "output"),
            _ => TensorRules::new(),
        }
    }
}
