//! Llama (Touvron et al. 2023) and models with its architecture: Mistral (Jiang et al. 2023), with a window; Ministral, with
//! a window in some layers; and Qwen2, with biases in the maps to queries, keys and values.

use super::super::fields::Fields;
use super::super::{TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use super::decoder_keys::{no_window, only, read_ends, windowless, write_ends};
use super::layer_types::{self, FULL, LAYER_TYPES};
use super::rope_parameters;
use crate::blocks::{Activation, NormKind, NormPlacement};
use crate::gpt::GptConfig;
use crate::{ModelError, Result};
use serde_json::{Map, Value, json};

/// The differences between the classes: `model_type` and its defaults.
pub(super) struct Kind {
    model_type: &'static str,
    class: &'static str,
    vocab_size: usize,
    d_ff: usize,
    /// None: the number of heads of queries.
    n_kv_heads: Option<usize>,
    max_positions: usize,
    /// The ids of the pieces that begin and end a text.
    ends: Option<[usize; 2]>,
}

pub(super) const LLAMA: Kind = Kind {
    model_type: "llama",
    class: "LlamaForCausalLM",
    vocab_size: 32_000,
    d_ff: 11_008,
    n_kv_heads: None,
    max_positions: 2048,
    ends: Some([1, 2]),
};
pub(super) const MISTRAL: Kind = Kind {
    model_type: "mistral",
    class: "MistralForCausalLM",
    d_ff: 14_336,
    n_kv_heads: Some(8),
    max_positions: 131_072,
    ..LLAMA
};
pub(super) const MINISTRAL: Kind = Kind { model_type: "ministral", class: "MinistralForCausalLM", ..MISTRAL };
pub(super) const QWEN2: Kind = Kind {
    model_type: "qwen2",
    class: "Qwen2ForCausalLM",
    vocab_size: 151_936,
    d_ff: 22_016,
    n_kv_heads: Some(32),
    max_positions: 32_768,
    ends: None,
};

/// The name of a [`GptConfig`] field in `config.json`.
pub(super) fn key_of(field: &'static str) -> &'static str {
    match field {
        "n_layers" => "num_hidden_layers",
        "d_model" => "hidden_size",
        "n_heads" => "num_attention_heads",
        "n_kv_heads" => "num_key_value_heads",
        "d_head" | "rotary.n_features" => "head_dim",
        "d_ff" => "intermediate_size",
        "max_positions" => "max_position_embeddings",
        "norm_eps" => "rms_norm_eps",
        "init_std" => "initializer_range",
        "rotary.theta" => "rope_theta",
        "rotary.scaling.factor" => "rope_scaling.factor",
        "rotary.scaling.low_frequency_factor" => "rope_scaling.low_freq_factor",
        "rotary.scaling.high_frequency_factor" => "rope_scaling.high_freq_factor",
        "rotary.scaling.original_positions" => "rope_scaling.original_max_position_embeddings",
        "rotary.scaling.beta_fast" => "rope_scaling.beta_fast",
        "rotary.scaling.beta_slow" => "rope_scaling.beta_slow",
        "rotary.scaling.magnitude" => "rope_scaling.attention_factor",
        "rotary.scaling.short_factors" => "rope_scaling.short_factor",
        "rotary.scaling.long_factors" => "rope_scaling.long_factor",
        "window" => "sliding_window",
        "window_layers" => "layer_types",
        "begin_token_id" => "bos_token_id",
        "end_token_id" => "eos_token_id",
        "tied" => "tie_word_embeddings",
        other => other,
    }
}

pub(super) fn read(fields: &Fields) -> Result<GptConfig> {
    let kind = match fields.text("model_type")? {
        Some("mistral" | "cloze-mistral") => MISTRAL,
        Some("ministral" | "cloze-ministral") => MINISTRAL,
        Some("qwen2" | "cloze-qwen2") => QWEN2,
        _ => LLAMA,
    };
    let (d_model, n_heads) =
        (fields.positive("hidden_size", 4096)?, fields.positive("num_attention_heads", 32)?);
    let d_head = match fields.size("head_dim")? {
        Some(_) => fields.positive("head_dim", 1)?,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            let expected = format!("a divisor of `hidden_size`, which is {d_model}, without a `head_dim`");
            return Err(fields.refuse("num_attention_heads", &n_heads.into(), &expected));
        }
    };
    let n_layers = fields.positive("num_hidden_layers", 32)?;
    let max_positions = fields.positive("max_position_embeddings", kind.max_positions)?;
    let (mut attention_bias, mut attention_output_bias) = (false, false);
    let (window, window_layers) = match kind.model_type {
        "llama" => {
            attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
            attention_output_bias = attention_bias;
            windowless(fields, kind.class, n_layers, max_positions)?;
            (None, None)
        }
        "qwen2" => {
            attention_bias = true;
            let window = match fields.flag("use_sliding_window")? {
                Some(true) => window(fields)?,
                _ => None,
            };
            let first = fields.size("max_window_layers")?.unwrap_or(28);
            windows(fields, window, n_layers, |layer| window.is_some() && layer >= first)?
        }
        _ => {
            let window = window(fields)?;
            windows(fields, window, n_layers, |_| window.is_some())?
        }
    };
    let activation = match fields.text("hidden_act")? {
        None => Activation::Silu,
        Some(name) => activation_of(name, "hidden_act", fields)?,
    };
    let number = |key: &str, default: f64| Ok::<_, ModelError>(fields.number(key)?.unwrap_or(default));
    let vocab_size = fields.positive("vocab_size", kind.vocab_size)?;
    let n_kv_heads = fields.positive("num_key_value_heads", kind.n_kv_heads.unwrap_or(n_heads))?;
    let rotary = rope_parameters::read(fields, 10_000.0, max_positions)?;
    let is_llama = kind.model_type == "llama";
    let config = GptConfig {
        n_heads,
        n_kv_heads,
        d_head,
        d_ff: fields.positive("intermediate_size", kind.d_ff)?,
        max_positions: rope_parameters::reach(&rotary, max_positions),
        rotary: Some(rotary),
        window: window.map(|window| window - 1),
        window_layers,
        norm_eps: number("rms_norm_eps", 1e-6)?,
        activation,
        attention_bias,
        attention_output_bias,
        feed_forward_bias: is_llama && fields.flag("mlp_bias")?.unwrap_or(false),
        tied: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        attention_dropout: number("attention_dropout", 0.0)?,
        init_std: number("initializer_range", 0.02)?,
        begin_token_id: kind.ends.map(|[begin, _]| begin),
        end_token_id: kind.ends.map(|[_, end]| end),
        ..GptConfig::llama(vocab_size, n_layers, d_model)
    };
    read_ends(fields, config)
}

/// `sliding_window`: how many tokens a token sees, itself among them; none: all.
fn window(fields: &Fields) -> Result<Option<usize>> {
    match fields.size_or("sliding_window", Some(4096))? {
        Some(0) => Err(fields.refuse("sliding_window", &0.into(), "at least 1")),
        window => Ok(window),
    }
}

/// The window, and the layers that have it, see [`GptConfig::window_layers`]. `default` says which ones have it without
/// `layer_types`.
fn windows(
    fields: &Fields,
    window: Option<usize>,
    n_layers: usize,
    default: impl Fn(usize) -> bool,
) -> Result<(Option<usize>, Option<Vec<bool>>)> {
    let layers = match layer_types::read(fields, n_layers)? {
        Some(layers) => layers,
        None => (0..n_layers.min(layer_types::MOST)).map(default).collect(),
    };
    if window.is_none() && layers.contains(&true) {
        let found = fields.value(LAYER_TYPES).unwrap_or(&Value::Null);
        let expected = format!("`{FULL}` in every layer: there is no `sliding_window`");
        return Err(fields.refuse(LAYER_TYPES, found, &expected));
    }
    Ok(match (layers.contains(&true), layers.contains(&false)) {
        (false, _) => (None, None),
        (true, false) => (window, None),
        (true, true) => (window, Some(layers)),
    })
}

/// The class that builds such a model, preferably Llama.
fn kind_of(config: &GptConfig) -> Kind {
    match () {
        () if config.attention_bias && !config.attention_output_bias => QWEN2,
        () if config.window_layers.is_some() => MINISTRAL,
        () if config.window.is_some() => MISTRAL,
        () => LLAMA,
    }
}

pub(super) fn write(config: &GptConfig, map: &mut Map<String, Value>) -> Result<()> {
    let kind = kind_of(config);
    let Kind { model_type, class, .. } = kind;
    only(class, "norm", config.norm, NormPlacement::Pre)?;
    only(class, "norm_kind", config.norm_kind, NormKind::Rms)?;
    only(class, "gated", config.gated, true)?;
    only(class, "embedding_dropout", config.embedding_dropout, 0.0)?;
    only(class, "hidden_dropout", config.hidden_dropout, 0.0)?;
    only(
        class,
        "attention_output_bias",
        config.attention_output_bias,
        match model_type {
            "llama" => config.attention_bias,
            _ => false,
        },
    )?;
    if model_type != "llama" {
        only(class, "feed_forward_bias", config.feed_forward_bias, false)?;
    }
    if model_type == "llama" {
        no_window(class, config.window)?;
    }
    let rotary = config.rotary.clone().unwrap_or_default();
    let max_positions = rope_parameters::max_positions(&rotary, config.max_positions);
    // What the scaling reaches is no key.
    only(class, "max_positions", config.max_positions, rope_parameters::reach(&rotary, max_positions))?;
    only(class, "rotary.interleaved", rotary.interleaved, false)?;
    only(class, "rotary.n_features", rotary.n_features.unwrap_or(config.d_head), config.d_head)?;
    map.insert("model_type".into(), model_type.into());
    map.insert("architectures".into(), json!([class]));
    write_fields(&kind, config, map);
    Ok(())
}

/// Adds what the class of this kind has keys for.
pub(super) fn write_fields(kind: &Kind, config: &GptConfig, map: &mut Map<String, Value>) {
    let windowed: Vec<bool> = (0..config.n_layers).map(|layer| config.has_window(layer)).collect();
    let rotary = config.rotary.clone().unwrap_or_default();
    let max_positions = rope_parameters::max_positions(&rotary, config.max_positions);
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("vocab_size", config.vocab_size.into());
    set("num_hidden_layers", config.n_layers.into());
    set("hidden_size", config.d_model.into());
    set("num_attention_heads", config.n_heads.into());
    set("num_key_value_heads", config.n_kv_heads.into());
    set("head_dim", config.d_head.into());
    set("intermediate_size", config.d_ff.into());
    set("max_position_embeddings", max_positions.into());
    set("rms_norm_eps", config.norm_eps.into());
    set("hidden_act", activation_name(config.activation).into());
    set("attention_dropout", config.attention_dropout.into());
    set("initializer_range", config.init_std.into());
    set("tie_word_embeddings", config.tied.into());
    match kind.model_type {
        "llama" => {
            set("attention_bias", config.attention_bias.into());
            set("mlp_bias", config.feed_forward_bias.into());
        }
        "mistral" => set("sliding_window", config.window.map(|window| window + 1).into()),
        "ministral" => {
            set("sliding_window", config.window.map(|window| window + 1).into());
            set(LAYER_TYPES, layer_types::names(&windowed).into());
        }
        _ => {
            set("use_sliding_window", config.window.is_some().into());
            if let Some(window) = config.window {
                set("sliding_window", (window + 1).into());
                let full = windowed.iter().take_while(|is_windowed| !**is_windowed).count();
                set("max_window_layers", full.into());
                set(LAYER_TYPES, layer_types::names(&windowed).into());
            }
        }
    }
    rope_parameters::write_old(&rotary, map);
    write_ends(config, map);
}

/// See [`Format::telling`](super::super::Format::telling).
pub(super) fn telling(config: &GptConfig) -> [(String, Vec<usize>); 2] {
    let GptConfig { vocab_size, d_model, n_kv_heads, d_head, .. } = *config;
    let keys = format!("model.layers.{}.self_attn.k_proj.weight", config.n_layers - 1);
    [
        (keys, vec![n_kv_heads * d_head, d_model]),
        ("model.embed_tokens.weight".into(), vec![vocab_size, d_model]),
    ]
}

/// The scale of a normalisation without a shift.
pub(super) fn scale(tensor: &str, parameter: &str) -> TensorRule {
    TensorRule::copy(&format!("{tensor}.weight"), &format!("{parameter}.gamma"))
}

/// The rules of a layer, with names and paths relative to it.
pub(super) fn layer_rules() -> TensorRules {
    let mut rules = TensorRules::new()
        .with(scale("input_layernorm", "attention_norm"))
        .with(scale("post_attention_layernorm", "feed_forward_norm"));
    for (tensor, parameter) in [
        ("self_attn.q_proj", "attention.query"),
        ("self_attn.k_proj", "attention.key"),
        ("self_attn.v_proj", "attention.value"),
        ("self_attn.o_proj", "attention.output"),
        ("mlp.gate_proj", "feed_forward.gate"),
        ("mlp.up_proj", "feed_forward.up"),
        ("mlp.down_proj", "feed_forward.down"),
    ] {
        rules = rules.linear(tensor, parameter);
    }
    rules
}

pub(super) fn rules(config: &GptConfig) -> TensorRules {
    let rules = TensorRules::new()
        .table("embed_tokens", "tokens")
        .and(layer_rules().within("layers.*.", "layers.*."))
        .with(scale("norm", "final_norm"));
    let head = match config.tied {
        true => TensorRule::tie("lm_head.weight", "model.embed_tokens.weight"),
        false => TensorRule::transpose("lm_head.weight", "output.weight"),
    };
    rules.within("model.", "").with(head).with_optional_prefixes(["module.", "model."])
}
