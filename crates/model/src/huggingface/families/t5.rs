//! T5 (Raffel et al. 2020), T5 1.1 and Flan-T5: `T5ForConditionalGeneration` of transformers; and mT5 (Xue et al. 2021),
//! `MT5ForConditionalGeneration`, which computes the same with other defaults. Their encoders alone are [families of
//! encoders](super::t5_encoder).

use super::super::fields::Fields;
use super::super::{TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use super::encoder_keys::{BUCKETS, FARTHEST, HEAD};
use super::seq2seq;
use crate::Result;
use crate::blocks::{Activation, NormKind, NormPlacement};
use crate::seq2seq::{InitialWeights, OutputBias, PositionsConfig, TiedEmbeddings, TransformerConfig};
use serde_json::{Map, Value, json};

pub(super) const MODEL_TYPE: &str = "t5";
pub(super) const MULTILINGUAL: &str = "mt5";

/// The defaults of a class.
pub(super) struct Defaults {
    vocab_size: usize,
    d_ff: usize,
    n_layers: usize,
    n_heads: usize,
    feed_forward: &'static str,
    tied: bool,
    /// Whether the class of transformers 5 can scale the decoder's states before the output projection.
    scales: bool,
}

pub(super) const DEFAULTS: Defaults = Defaults {
    vocab_size: 32_128,
    d_ff: 2048,
    n_layers: 6,
    n_heads: 8,
    feed_forward: "relu",
    tied: true,
    scales: true,
};

pub(super) const MULTILINGUAL_DEFAULTS: Defaults = Defaults {
    vocab_size: 250_112,
    d_ff: 1024,
    n_layers: 8,
    n_heads: 6,
    feed_forward: "gated-gelu",
    tied: false,
    scales: false,
};

const TOKENS: seq2seq::Defaults = seq2seq::Defaults {
    vocab_size: DEFAULTS.vocab_size,
    pad: 0,
    bos: None,
    eos: 1,
    decoder_start: 0,
    forced_eos: None,
    fixed: &[],
};

/// The key of the longest sequence. Distances have no end in these models, so transformers only cuts texts by it.
pub(super) const LONGEST: (&str, usize) = ("n_positions", 512);
const FEED_FORWARD: &str = "feed_forward_proj";
const ACTIVATION: &str = "dense_act_fn";
const GATED: &str = "is_gated_act";
/// Whether the decoder's states are scaled by `1/√d_model` before the output projection.
const SCALED: &str = "scale_decoder_outputs";

/// Checks that transformers' class computes the same as such a model.
pub(super) fn fits(config: &TransformerConfig) -> bool {
    config.positions.relative_bias().is_some()
        && (config.n_decoder_heads, config.d_decoder_ff) == (None, None)
        && config.norm == NormPlacement::Pre
        && config.norm_kind == NormKind::Rms
        && config.final_norms
        && config.output_dropout
        && !config.bias
        && !config.scaled_scores
        && !config.scaled_embeddings
        && !config.embedding_norm
        && config.trained_padding
        && config.output_bias == OutputBias::None
        && config.output.is_none()
        && config.tied.joins_source()
        && [config.attention_dropout, config.activation_dropout] == [config.dropout; 2]
        && matches!(config.initial, InitialWeights::T5 { .. })
}

/// The key of a field of [`TransformerConfig`] in these files.
pub(super) fn key_of(field: &str) -> &str {
    match field {
        "n_encoder_layers" => "num_layers",
        "n_decoder_layers" => "num_decoder_layers",
        "n_heads" => "num_heads",
        "d_head" => HEAD.0,
        "max_positions" => LONGEST.0,
        "positions.n_buckets" => BUCKETS.0,
        "positions.max_distance" => FARTHEST.0,
        "layer_norm_eps" => "layer_norm_epsilon",
        "initial.factor" => "initializer_factor",
        other => other,
    }
}

/// See [`Format::read`](crate::huggingface::Format).
pub(super) fn read(fields: &Fields, defaults: &Defaults) -> Result<TransformerConfig> {
    let size = |(key, default): (&str, usize)| match fields.size(key)?.unwrap_or(default) {
        0 => Err(fields.refuse(key, &0.into(), "at least 1")),
        size => Ok(size),
    };
    for (key, expected) in [("is_encoder_decoder", true), ("tie_encoder_decoder", false)] {
        let found = fields.flag(key)?.unwrap_or(expected);
        if found != expected {
            let why = format!("{expected}: there is no other such model");
            return Err(fields.refuse(key, &found.into(), &why));
        }
    }
    let probability = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
    let dropout = fields.typed("dropout_rate", "a number, 0 or more and below 1", probability)?;
    let dropout = dropout.unwrap_or(0.1);
    let n_layers = size(("num_layers", defaults.n_layers))?;
    let (activation, gated) = feed_forward(fields, defaults.feed_forward)?;
    let tied = fields.flag("tie_word_embeddings")?.unwrap_or(defaults.tied);
    // What transformers 4 derives from tied embeddings is a key of its own in 5, where they are always tied and the class of
    // mT5 never scales.
    let by_version = match fields.text("transformers_version")? {
        Some(version) if !defaults.scales && !version.starts_with("4.") => false,
        _ => tied,
    };
    let scaled = fields.flag(SCALED)?.unwrap_or(by_version);
    let vocab_size = size(("vocab_size", defaults.vocab_size))?;
    let mut config = TransformerConfig::t5(vocab_size, n_layers, size(("d_model", 512))?)
        .with_layers(n_layers, size(("num_decoder_layers", n_layers))?)
        .with_heads(size(("num_heads", defaults.n_heads))?)
        .with_d_head(size(HEAD)?)
        .with_d_ff(size(("d_ff", defaults.d_ff))?)
        .with_max_positions(size(LONGEST)?)
        .with_positions(PositionsConfig::RelativeBias {
            n_buckets: size(BUCKETS)?,
            max_distance: size(FARTHEST)?,
        })
        .with_dropout(dropout)
        .with_inner_dropouts(dropout, dropout)
        .with_activation(activation)
        .with_initial(InitialWeights::T5 { factor: fields.number("initializer_factor")?.unwrap_or(1.0) })
        .with_tied(if tied { TiedEmbeddings::All } else { TiedEmbeddings::SourceTarget })
        .with_tokens(seq2seq::tokens(fields, &TOKENS)?);
    config.layer_norm_eps = fields.number("layer_norm_epsilon")?.unwrap_or(1e-6);
    (config.gated, config.scaled_output) = (gated, scaled);
    Ok(config)
}

/// The non-linearity of the feed-forward networks, and whether they have a gate: of the two keys that transformers derives
/// and writes, or else of the one that it derives them from.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for an unknown name.
pub(super) fn feed_forward(fields: &Fields, default: &str) -> Result<(Activation, bool)> {
    let name = fields.text(FEED_FORWARD)?.unwrap_or(default);
    let (gated, activation) = match name.strip_prefix("gated-") {
        // Of old T5 calls the approximation so.
        Some("gelu") => (true, Activation::GeluTanh),
        Some(name) => (true, activation_of(name, FEED_FORWARD, fields)?),
        None => (false, activation_of(name, FEED_FORWARD, fields)?),
    };
    let activation = match fields.text(ACTIVATION)? {
        Some(name) => activation_of(name, ACTIVATION, fields)?,
        None => activation,
    };
    Ok((activation, fields.flag(GATED)?.unwrap_or(gated)))
}

/// Adds what [`feed_forward`] reads.
pub(super) fn set_feed_forward(activation: Activation, gated: bool, map: &mut Map<String, Value>) {
    let name = activation_name(activation);
    let proj = match (gated, activation) {
        (true, Activation::GeluTanh) => "gated-gelu".to_string(),
        (true, _) => format!("gated-{name}"),
        (false, _) => name.to_string(),
    };
    map.insert(FEED_FORWARD.into(), proj.into());
    map.insert(ACTIVATION.into(), name.into());
    map.insert(GATED.into(), gated.into());
}

/// See [`Format::write`](crate::huggingface::Format).
pub(super) fn write(config: &TransformerConfig, map: &mut Map<String, Value>) {
    let head = config.d_head.unwrap_or(config.d_model / config.n_heads);
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("architectures", json!(["T5ForConditionalGeneration"]));
    set("is_encoder_decoder", true.into());
    set("vocab_size", config.vocab_size.into());
    set("d_model", config.d_model.into());
    set(HEAD.0, head.into());
    set("d_ff", config.d_ff.into());
    set("num_layers", config.n_encoder_layers.into());
    set("num_decoder_layers", config.n_decoder_layers.into());
    set("num_heads", config.n_heads.into());
    set(LONGEST.0, config.max_positions.into());
    set("dropout_rate", config.dropout.into());
    set("layer_norm_epsilon", config.layer_norm_eps.into());
    set("tie_word_embeddings", config.tied.joins_output().into());
    set(SCALED, config.scaled_output.into());
    if let Some(bias) = config.positions.relative_bias() {
        set(BUCKETS.0, bias.n_buckets.into());
        set(FARTHEST.0, bias.max_distance.into());
    }
    if let InitialWeights::T5 { factor } = config.initial {
        set("initializer_factor", factor.into());
    }
    set_feed_forward(config.activation, config.gated, map);
    map.extend(seq2seq::token_keys(&config.tokens));
}

/// See [`Format::rules`](crate::huggingface::Format).
pub(super) fn rules(config: &TransformerConfig) -> TensorRules {
    let table = "shared.weight";
    let mut rules = TensorRules::new()
        .table("shared", "target_embeddings")
        .with(TensorRule::tie("encoder.embed_tokens.weight", table))
        .with(TensorRule::tie("decoder.embed_tokens.weight", table))
        .and(layers("encoder", &["SelfAttention"]))
        .and(layers("decoder", &["SelfAttention", "EncDecAttention"]))
        .and(feed_forward_rules("encoder", 1, config.gated))
        .and(feed_forward_rules("decoder", 2, config.gated));
    for stack in ["encoder", "decoder"] {
        rules = rules.with(distances(stack, &format!("{stack}_input.relative_bias")));
    }
    let rules = match config.tied.joins_output() {
        true => rules.with(TensorRule::tie("lm_head.weight", table)),
        false => rules.with(TensorRule::transpose("lm_head.weight", "output.weight")),
    };
    rules.with_optional_prefixes(["module."])
}

/// The table of distances of a stack, which stands in its first layer and is all layers'.
pub(super) fn distances(stack: &str, parameter: &str) -> TensorRule {
    let tensor = format!("{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    TensorRule::copy(&tensor, &format!("{parameter}.table.weight"))
}

/// The rules of a stack's layers, without the maps of their feed-forward networks, and of its final normalisation;
/// `attentions` are the classes of its attentions.
pub(super) fn layers(stack: &str, attentions: &[&str]) -> TensorRules {
    let (tensor, parameter) = (format!("{stack}.block.*.layer"), format!("{stack}.layers.*"));
    let mut rules = TensorRules::new();
    for (number, class) in attentions.iter().enumerate() {
        let block = ["attention", "cross_attention"][number];
        for (name, map) in [("q", "query"), ("k", "key"), ("v", "value"), ("o", "output")] {
            let tensor = format!("{tensor}.{number}.{class}.{name}");
            rules = rules.linear(&tensor, &format!("{parameter}.{block}.{map}"));
        }
        rules = rules.norm(&format!("{tensor}.{number}.layer_norm"), &format!("{parameter}.{block}_norm"));
    }
    let last = format!("{tensor}.{}.layer_norm", attentions.len());
    rules
        .norm(&last, &format!("{parameter}.feed_forward_norm"))
        .norm(&format!("{stack}.final_layer_norm"), &format!("{stack}.final_norm"))
}

/// The rules of the feed-forward networks, which are the sub-layers of this number.
pub(super) fn feed_forward_rules(stack: &str, number: usize, gated: bool) -> TensorRules {
    // The tensors are called so whatever the non-linearity is.
    let dense = format!("{stack}.block.*.layer.{number}.DenseReluDense");
    let network = format!("{stack}.layers.*.feed_forward");
    let rules = match gated {
        true => TensorRules::new()
            .linear(&format!("{dense}.wi_0"), &format!("{network}.gate"))
            .linear(&format!("{dense}.wi_1"), &format!("{network}.up")),
        false => TensorRules::new().linear(&format!("{dense}.wi"), &format!("{network}.up")),
    };
    rules.linear(&format!("{dense}.wo"), &format!("{network}.down"))
}
