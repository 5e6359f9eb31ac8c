use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::decoder::size;
use super::encoder_format::{activation_of, without_switches};
use super::{EncoderFormat, Family, FamilyDefinition, HeadLayer, bert};
use crate::Result;
use crate::bert::{BertConfig, LocalAttention, Pooling};
use crate::blocks::{Activation, NormPlacement, RotaryConfig};
use serde_json::{Map, Value};

impl Family {
    /// ModernBERT (Warner et al. 2024): rotary positions, local attention in two of three layers, gated feed-forward
    /// networks, normalisation before each sub-layer, and no biases.
    pub const MODERNBERT: Self = Self(&ModernBert);
}

struct ModernBert;

const FORMAT: EncoderFormat = EncoderFormat {
    n_layers: ("num_hidden_layers", 22),
    d_ff: ("intermediate_size", 1152),
    hidden_dropout: ("embedding_dropout", 0.0),
    attention_dropout: ("attention_dropout", 0.0),
    activation: ("hidden_activation", Activation::Gelu),
    max_positions: ("max_position_embeddings", 8192),
    layer_norm_eps: Some(("norm_eps", 1e-5)),
    vocab_size: 50_368,
    pad_token_id: 50_283,
    token_types: None,
    has_position_type: false,
    attention_output_dropout: false,
    feed_forward_output_dropout: false,
    mlm_activation: Some(Activation::Gelu),
    switch,
    ..bert::FORMAT
};

const GLOBAL_THETA: f64 = 160_000.0;
const LOCAL_THETA: f64 = 10_000.0;

/// The switches that the class fixes; the others stay as they are.
fn switch(config: BertConfig) -> BertConfig {
    BertConfig {
        absolute_positions: false,
        rotary: Some(rotary(config.rotary.as_ref().map_or(GLOBAL_THETA, |rotary| rotary.theta))),
        local: Some(config.local.unwrap_or(LocalAttention {
            window: 64,
            global_every: 3,
            theta: Some(LOCAL_THETA),
        })),
        gated: true,
        attention_bias: config.attention_bias,
        feed_forward_bias: config.feed_forward_bias,
        norm: NormPlacement::Pre,
        norm_bias: config.norm_bias,
        first_norm: false,
        attention_dropout_on_output: true,
        feed_forward_dropout: config.feed_forward_dropout,
        head_bias: config.head_bias,
        mlm_bias: config.mlm_bias,
        pooling: Some(match config.pooling {
            Some(Pooling::Mean) => Pooling::Mean,
            _ => Pooling::Cls,
        }),
        ..without_switches(config)
    }
}

fn rotary(theta: f64) -> RotaryConfig {
    RotaryConfig { theta, ..RotaryConfig::default() }
}

impl FamilyDefinition for ModernBert {
    fn name(&self) -> &'static str {
        "ModernBERT"
    }

    fn model_type(&self) -> &'static str {
        "modernbert"
    }

    fn class_prefix(&self) -> &'static str {
        "ModernBert"
    }

    fn prefix(&self) -> &'static str {
        "model."
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        let layer = HeadLayer::new(Activation::Gelu);
        Some(HeadLayer { has_dropout_before: false, is_normalised: true, ..layer })
    }

    fn transforms_states(&self) -> bool {
        true
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::Encoder
            | Architecture::PreTraining
            | Architecture::ReplacedTokens
            | Architecture::MaskedLm => None,
            _ => Some(("classifier_dropout", Some(0.0))),
        }
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        BertConfig {
            attention_bias: false,
            feed_forward_bias: false,
            norm_bias: false,
            head_bias: false,
            ..sizes
        }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let scaling = |value: &Value| {
            ["rope_type", "type"].iter().all(|key| value.get(key).is_none_or(|kind| kind == "default"))
        };
        fields.typed("rope_scaling", "none: rotary positions of ModernBERT are not scaled", |value| {
            scaling(value).then_some(())
        })?;
        let flag = |key, default| Ok(fields.flag(key)?.unwrap_or(default));
        let theta = |key, default| {
            let positive = |value: &Value| value.as_f64().filter(|theta| *theta > 0.0);
            Ok(fields.typed(key, "a number above 0", positive)?.unwrap_or(default))
        };
        let global = theta("global_rope_theta", GLOBAL_THETA)?;
        // Null stands for the same as in the other layers.
        let local = match fields.has("local_rope_theta") && fields.value("local_rope_theta").is_none() {
            true => None,
            false => Some(theta("local_rope_theta", LOCAL_THETA)?),
        };
        let pooling = match fields.text("classifier_pooling")? {
            None | Some("cls") => Pooling::Cls,
            Some("mean") => Pooling::Mean,
            Some(other) => {
                return Err(fields.refuse("classifier_pooling", &other.into(), "\"cls\" or \"mean\""));
            }
        };
        if let Some(name) = fields.text("classifier_activation")?
            && activation_of(name, "classifier_activation", fields)? != Activation::Gelu
        {
            return Err(fields.refuse("classifier_activation", &name.into(), "\"gelu\""));
        }
        let probability = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
        let dropout = fields.typed("mlp_dropout", "a number, 0 or more and below 1", probability)?;
        Ok(BertConfig {
            rotary: Some(rotary(global)),
            local: Some(LocalAttention {
                window: fields.size("local_attention")?.unwrap_or(128) / 2,
                global_every: size(fields, "global_attn_every_n_layers", 3)?,
                theta: local,
            }),
            attention_bias: flag("attention_bias", false)?,
            feed_forward_bias: flag("mlp_bias", false)?,
            norm_bias: flag("norm_bias", false)?,
            head_bias: flag("classifier_bias", false)?,
            mlm_bias: flag("decoder_bias", true)?,
            feed_forward_dropout: dropout.unwrap_or(0.0),
            pooling: Some(pooling),
            ..FORMAT.read(fields)?
        })
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        if let Some(rotary) = &encoder.rotary {
            set("global_rope_theta", rotary.theta.into());
        }
        if let Some(LocalAttention { window, global_every, theta }) = encoder.local {
            set("local_attention", (2 * window).into());
            set("global_attn_every_n_layers", global_every.into());
            set("local_rope_theta", theta.into());
        }
        set("attention_bias", encoder.attention_bias.into());
        set("mlp_bias", encoder.feed_forward_bias.into());
        set("mlp_dropout", encoder.feed_forward_dropout.into());
        set("norm_bias", encoder.norm_bias.into());
        set("decoder_bias", encoder.mlm_bias.into());
        set("classifier_bias", encoder.head_bias.into());
        set("classifier_activation", "gelu".into());
        let pooling = if encoder.pooling == Some(Pooling::Mean) { "mean" } else { "cls" };
        set("classifier_pooling", pooling.into());
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        let maps = |kind: &str| {
            ["query", "key", "value"].map(|map| format!("encoder.layers.*.attention.{map}.{kind}"))
        };
        let gated =
            |kind: &str| ["gate", "up"].map(|map| format!("encoder.layers.*.feed_forward.{map}.{kind}"));
        let split = |tensor: &str, parameters: &[String]| {
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            TensorRule::split(tensor, 0, &parameters)
        };
        TensorRules::new()
            .table("embeddings.tok_embeddings", "embeddings.tokens")
            .norm("embeddings.norm", "embeddings.norm")
            .norm("layers.*.attn_norm", "encoder.layers.*.attention_norm")
            .with(split("layers.*.attn.Wqkv.weight", &maps("weight")).transposed())
            .with(split("layers.*.attn.Wqkv.bias", &maps("bias")))
            .linear("layers.*.attn.Wo", "encoder.layers.*.attention.output")
            .norm("layers.*.mlp_norm", "encoder.layers.*.feed_forward_norm")
            .with(split("layers.*.mlp.Wi.weight", &gated("weight")).transposed())
            .with(split("layers.*.mlp.Wi.bias", &gated("bias")))
            .linear("layers.*.mlp.Wo", "encoder.layers.*.feed_forward.down")
            .norm("final_norm", "encoder.final_norm")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        let head = |dense: &str, norm: &str, output: &str| {
            TensorRules::new()
                .linear("head.dense", dense)
                .norm("head.norm", norm)
                .linear("classifier", output)
        };
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("head.dense", "mlm.dense")
                .norm("head.norm", "mlm.norm")
                .with(TensorRule::copy("decoder.bias", "mlm.bias"))
                .with(TensorRule::tie("decoder.weight", "embeddings.tok_embeddings.weight")),
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                head("head.dense", "head.norm", "head.output")
            }
            Architecture::TokenClassification | Architecture::QuestionAnswering => {
                head("transform.dense", "transform.norm", "output")
            }
            Architecture::Encoder | Architecture::ReplacedTokens => TensorRules::new(),
        }
    }
}
