//! Left-to-right models with heads over sequences and tokens, such as `LlamaForSequenceClassification`: encoders in which
//! a token sees itself and those before it. Their keys and tensors are those of [`llama`] and [`gpt2`].

use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRules};
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, without_switches};
use super::llama::{self, Kind};
use super::{bert, decoder, gpt2, rope_parameters};
use crate::Result;
use crate::bert::{BertConfig, LocalAttention, Pooling};
use crate::blocks::{Activation, NormKind, NormPlacement};
use crate::gpt::GptConfig;
use serde_json::{Map, Value};

pub(super) const GPT2: LeftToRight = LeftToRight {
    name: "GPT-2",
    model_type: "gpt2",
    class_prefix: "GPT2",
    prefix: "transformer.",
    kind: None,
    format: GPT2_FORMAT,
};

pub(super) const LLAMA: LeftToRight = LeftToRight {
    name: "Llama",
    model_type: "llama",
    class_prefix: "Llama",
    prefix: "model.",
    kind: Some(llama::LLAMA),
    format: EncoderFormat { switch: switch_llama, ..ROTARY },
};

pub(super) const MISTRAL: LeftToRight = LeftToRight {
    name: "Mistral",
    model_type: "mistral",
    class_prefix: "Mistral",
    prefix: "model.",
    kind: Some(llama::MISTRAL),
    format: EncoderFormat { switch: switch_mistral, ..ROTARY },
};

pub(super) const MINISTRAL: LeftToRight = LeftToRight {
    name: "Ministral",
    model_type: "ministral",
    class_prefix: "Ministral",
    prefix: "model.",
    kind: Some(llama::MINISTRAL),
    format: EncoderFormat { switch: switch_ministral, ..ROTARY },
};

pub(super) const QWEN2: LeftToRight = LeftToRight {
    name: "Qwen2",
    model_type: "qwen2",
    class_prefix: "Qwen2",
    prefix: "model.",
    kind: Some(llama::QWEN2),
    format: EncoderFormat { switch: switch_qwen2, ..ROTARY },
};

pub(super) struct LeftToRight {
    name: &'static str,
    model_type: &'static str,
    class_prefix: &'static str,
    prefix: &'static str,
    /// None: GPT-2's.
    kind: Option<Kind>,
    format: EncoderFormat,
}

/// GPT-2's names of sizes, for errors; the file is read by [`gpt2::read`].
const GPT2_FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("n_embd", 768),
    n_layers: ("n_layer", 12),
    n_heads: ("n_head", 12),
    d_ff: ("n_inner", 3072),
    hidden_dropout: ("resid_pdrop", 0.1),
    attention_dropout: ("attn_pdrop", 0.1),
    activation: ("activation_function", Activation::GeluTanh),
    max_positions: ("n_positions", 1024),
    layer_norm_eps: Some(("layer_norm_epsilon", 1e-5)),
    token_types: None,
    has_position_type: false,
    switch: switch_gpt2,
    ..bert::FORMAT
};

/// The names of the others.
const ROTARY: EncoderFormat = EncoderFormat {
    d_ff: ("intermediate_size", 11_008),
    layer_norm_eps: Some(("rms_norm_eps", 1e-6)),
    token_types: None,
    has_position_type: false,
    ..bert::FORMAT
};

fn switch_gpt2(config: BertConfig) -> BertConfig {
    BertConfig {
        embedding_norm: false,
        norm: NormPlacement::Pre,
        causal: true,
        pooling: Some(Pooling::LastToken),
        ..without_switches(config)
    }
}

/// What all but GPT-2 have, and a window if they have one.
fn rotary(config: BertConfig) -> BertConfig {
    let rotary = rope_parameters::describable(config.rotary.as_ref(), 10_000.0);
    BertConfig {
        absolute_positions: false,
        max_positions: rope_parameters::reach(&rotary, config.max_positions),
        local: config.local.clone().map(|local| LocalAttention { theta: None, rotary: None, ..local }),
        rotary: Some(rotary),
        gated: true,
        attention_bias: false,
        n_kv_heads: config.n_kv_heads,
        feed_forward_bias: false,
        norm_bias: false,
        norm_kind: NormKind::Rms,
        d_head: config.d_head,
        ..switch_gpt2(config)
    }
}

fn switch_llama(config: BertConfig) -> BertConfig {
    let (attention_bias, feed_forward_bias) = (config.attention_bias, config.feed_forward_bias);
    BertConfig { local: None, attention_bias, feed_forward_bias, ..rotary(config) }
}

fn switch_mistral(config: BertConfig) -> BertConfig {
    let n_layers = config.n_layers;
    let config = rotary(config);
    // All layers have the window.
    let local = config.local.clone().map(|local| local_of(local.window, vec![true; n_layers]));
    BertConfig { local, ..config }
}

fn switch_ministral(config: BertConfig) -> BertConfig {
    let n_layers = config.n_layers;
    let config = rotary(config);
    let local = config.local.clone().map(|local| {
        let layers = local.layers.clone().filter(|layers| layers.len() == n_layers);
        local_of(local.window, layers.unwrap_or_else(|| vec![true; n_layers]))
    });
    BertConfig { local, ..config }
}

fn switch_qwen2(config: BertConfig) -> BertConfig {
    let config = switch_ministral(config);
    BertConfig { attention_bias: true, attention_output_bias: Some(false), ..config }
}

fn local_of(window: usize, layers: Vec<bool>) -> LocalAttention {
    LocalAttention { layers: Some(layers), ..LocalAttention::new(window, 1) }
}

/// The encoder of a left-to-right model.
fn encoder(gpt: &GptConfig, pad_token_id: usize) -> BertConfig {
    let window = gpt.window.map(|window| {
        local_of(window, gpt.window_layers.clone().unwrap_or_else(|| vec![true; gpt.n_layers]))
    });
    BertConfig {
        n_heads: gpt.n_heads,
        n_kv_heads: Some(gpt.n_kv_heads).filter(|n| *n != gpt.n_heads),
        d_head: Some(gpt.d_head).filter(|d_head| d_head * gpt.n_heads != gpt.d_model),
        d_ff: gpt.d_ff,
        max_positions: gpt.max_positions,
        // GPT-2's dropout of embeddings, which has a key of its own, is the same in all published models.
        hidden_dropout: gpt.hidden_dropout,
        attention_dropout: gpt.attention_dropout,
        activation: gpt.activation,
        layer_norm_eps: gpt.norm_eps,
        init_std: gpt.init_std,
        pad_token_id,
        rotary: gpt.rotary.clone(),
        local: window,
        attention_bias: gpt.attention_bias,
        feed_forward_bias: gpt.feed_forward_bias,
        pooler: false,
        ..BertConfig::new(gpt.vocab_size, gpt.n_layers, gpt.d_model)
    }
}

/// The left-to-right model of an encoder, for its keys.
fn left_to_right(encoder: &BertConfig) -> GptConfig {
    let BertConfig { vocab_size, n_layers, d_model, n_heads, .. } = *encoder;
    let layers = encoder.local.as_ref().and_then(|local| local.layers.clone());
    GptConfig {
        n_heads,
        n_kv_heads: encoder.n_kv_heads.unwrap_or(n_heads),
        d_head: encoder.d_head.unwrap_or(d_model / n_heads),
        d_ff: encoder.d_ff,
        max_positions: encoder.max_positions,
        rotary: encoder.rotary.clone(),
        window: encoder.local.as_ref().map(|local| local.window),
        window_layers: layers.filter(|layers| layers.contains(&false)),
        norm_eps: encoder.layer_norm_eps,
        activation: encoder.activation,
        attention_bias: encoder.attention_bias,
        feed_forward_bias: encoder.feed_forward_bias,
        embedding_dropout: encoder.hidden_dropout,
        hidden_dropout: encoder.hidden_dropout,
        attention_dropout: encoder.attention_dropout,
        init_std: encoder.init_std,
        ..GptConfig::gpt2(vocab_size, n_layers, d_model)
    }
}

impl FamilyDefinition for LeftToRight {
    fn name(&self) -> &'static str {
        self.name
    }

    fn model_type(&self) -> &'static str {
        self.model_type
    }

    fn class_prefix(&self) -> &'static str {
        self.class_prefix
    }

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn has_class(&self, architecture: Architecture) -> bool {
        use Architecture::{Encoder, SequenceClassification, TokenClassification};
        matches!(architecture, Encoder | SequenceClassification | TokenClassification)
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    /// The map from the last token's state to classes.
    fn head_output_bias(&self, architecture: Architecture) -> bool {
        architecture != Architecture::SequenceClassification
    }

    /// Before the map over sequences transformers has none. Here it is the encoder's in training, which only GPT-2 has.
    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        (architecture == Architecture::TokenClassification).then_some(("classifier_dropout", Some(0.1)))
    }

    fn format(&self) -> &EncoderFormat {
        &self.format
    }

    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        let is_gpt2 = self.kind.is_none();
        BertConfig {
            attention_bias: is_gpt2,
            feed_forward_bias: is_gpt2,
            hidden_dropout: if is_gpt2 { sizes.hidden_dropout } else { 0.0 },
            ..sizes
        }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let gpt = match self.kind {
            None => gpt2::read(fields)?,
            Some(_) => llama::read(fields)?,
        };
        let gpt = decoder::checked(fields, gpt)?;
        // Padding may be a piece that ends texts, or none.
        let pad = fields.size("pad_token_id")?.or(gpt.end_token_id).unwrap_or(0);
        Ok(self.format.switched(encoder(&gpt, pad)))
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, map: &mut Map<String, Value>) {
        let gpt = left_to_right(encoder);
        match &self.kind {
            None => gpt2::write_fields(&gpt, map),
            Some(kind) => llama::write_fields(kind, &gpt, map),
        }
        map.insert("pad_token_id".into(), encoder.pad_token_id.into());
        map.insert("torch_dtype".into(), dtype.name().into());
        // The encoder has no other projection.
        map.remove("tie_word_embeddings");
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        match self.kind {
            None => TensorRules::new()
                .table("wte", "embeddings.tokens")
                .table("wpe", "embeddings.positions.table")
                .and(gpt2::layer_rules().within("h.*.", "encoder.layers.*."))
                .norm("ln_f", "encoder.final_norm"),
            Some(_) => TensorRules::new()
                .table("embed_tokens", "embeddings.tokens")
                .and(llama::layer_rules().within("layers.*.", "encoder.layers.*."))
                .with(llama::scale("norm", "encoder.final_norm")),
        }
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match (architecture, &self.kind) {
            (Architecture::SequenceClassification, _) => TensorRules::new().linear("score", "head.output"),
            (Architecture::TokenClassification, None) => TensorRules::new().linear("classifier", "output"),
            (Architecture::TokenClassification, Some(_)) => TensorRules::new().linear("score", "output"),
            _ => TensorRules::new(),
        }
    }
}
