//! Llama (Touvron et al. 2023) and models with its architecture: Mistral (Jiang et al. 2023), with a window, and Qwen2,
//! with biases in the maps to queries, keys and values.

use super::super::fields::Fields;
use super::super::{TensorRule, TensorRules};
use super::decoder::{fixed, no_window, only, read_ends, size, write_ends};
use super::encoder_format::{activation_name, activation_of, listed};
use crate::blocks::{Activation, NormKind, NormPlacement, RotaryConfig, RotaryScaling};
use crate::gpt::GptConfig;
use crate::{ModelError, Result};
use serde_json::{Map, Value, json};

/// The differences between the classes: `model_type` and its defaults.
struct Kind {
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

const LLAMA: Kind = Kind {
    model_type: "llama",
    class: "LlamaForCausalLM",
    vocab_size: 32_000,
    d_ff: 11_008,
    n_kv_heads: None,
    max_positions: 2048,
    ends: Some([1, 2]),
};
const MISTRAL: Kind = Kind {
    model_type: "mistral",
    class: "MistralForCausalLM",
    d_ff: 14_336,
    n_kv_heads: Some(8),
    max_positions: 131_072,
    ..LLAMA
};
const QWEN2: Kind = Kind {
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
        "begin_token_id" => "bos_token_id",
        "end_token_id" => "eos_token_id",
        other => other,
    }
}

pub(super) fn read(fields: &Fields) -> Result<GptConfig> {
    let kind = match fields.text("model_type")? {
        Some("mistral") => MISTRAL,
        Some("qwen2") => QWEN2,
        _ => LLAMA,
    };
    let (d_model, n_heads) = (size(fields, "hidden_size", 4096)?, size(fields, "num_attention_heads", 32)?);
    let d_head = match fields.size("head_dim")? {
        Some(_) => size(fields, "head_dim", 1)?,
        None if d_model.is_multiple_of(n_heads) => d_model / n_heads,
        None => {
            let expected = format!("a divisor of `hidden_size`, which is {d_model}, without a `head_dim`");
            return Err(fields.refuse("num_attention_heads", &n_heads.into(), &expected));
        }
    };
    let (mut attention_bias, mut attention_output_bias, mut window) = (false, false, None);
    match kind.model_type {
        "mistral" => {
            window = match fields.has("sliding_window") {
                true => fields.size("sliding_window")?,
                false => Some(4096),
            };
            if window == Some(0) {
                return Err(fields.refuse("sliding_window", &0.into(), "at least 1"));
            }
        }
        "qwen2" => {
            fixed(fields, "use_sliding_window", false)?;
            attention_bias = true;
        }
        _ => {
            attention_bias = fields.flag("attention_bias")?.unwrap_or(false);
            attention_output_bias = attention_bias;
        }
    }
    let activation = match fields.text("hidden_act")? {
        None => Activation::Silu,
        Some(name) => activation_of(name, "hidden_act", fields)?,
    };
    let number = |key: &str, default: f64| Ok::<_, ModelError>(fields.number(key)?.unwrap_or(default));
    let vocab_size = size(fields, "vocab_size", kind.vocab_size)?;
    let n_kv_heads = size(fields, "num_key_value_heads", kind.n_kv_heads.unwrap_or(n_heads))?;
    let rotary = RotaryConfig {
        theta: number("rope_theta", 10_000.0)?,
        scaling: scaling(fields)?,
        ..RotaryConfig::default()
    };
    let is_llama = kind.model_type == "llama";
    let config = GptConfig {
        n_heads,
        n_kv_heads,
        d_head,
        d_ff: size(fields, "intermediate_size", kind.d_ff)?,
        max_positions: size(fields, "max_position_embeddings", kind.max_positions)?,
        rotary: Some(rotary),
        window: window.map(|window| window - 1),
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
        ..GptConfig::llama(vocab_size, size(fields, "num_hidden_layers", 32)?, d_model)
    };
    read_ends(fields, config)
}

/// `rope_scaling`
fn scaling(fields: &Fields) -> Result<Option<RotaryScaling>> {
    let Some(table) = fields.typed("rope_scaling", "a table", Value::as_object)? else {
        return Ok(None);
    };
    let refuse = |key: &str, expected: &str| {
        let found = table.get(key).unwrap_or(&Value::Null);
        fields.refuse(&format!("rope_scaling.{key}"), found, expected)
    };
    let number = |key| table.get(key).and_then(Value::as_f64).ok_or_else(|| refuse(key, "a number above 0"));
    // Old files have `type`.
    let key = if table.contains_key("rope_type") { "rope_type" } else { "type" };
    match table.get(key).and_then(Value::as_str) {
        Some("default") => Ok(None),
        Some("linear") => Ok(Some(RotaryScaling::Linear { factor: number("factor")? })),
        Some("llama3") => {
            let positions = "original_max_position_embeddings";
            let original = table.get(positions).and_then(Value::as_u64).and_then(|n| n.try_into().ok());
            Ok(Some(RotaryScaling::Llama3 {
                factor: number("factor")?,
                low_frequency_factor: number("low_freq_factor")?,
                high_frequency_factor: number("high_freq_factor")?,
                original_positions: original.ok_or_else(|| refuse(positions, "a whole number, 1 or more"))?,
            }))
        }
        _ => Err(refuse(key, &listed(["default", "linear", "llama3"].into_iter()))),
    }
}

/// The class that builds such a model, preferably Llama.
fn kind_of(config: &GptConfig) -> Kind {
    match () {
        () if config.attention_bias && !config.attention_output_bias => QWEN2,
        () if config.window.is_some() => MISTRAL,
        () => LLAMA,
    }
}

pub(super) fn write(config: &GptConfig, map: &mut Map<String, Value>) -> Result<()> {
    let Kind { model_type, class, .. } = kind_of(config);
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
    if model_type != "mistral" {
        no_window(class, config.window)?;
    }
    let rotary = config.rotary.clone().unwrap_or_default();
    only(class, "rotary.interleaved", rotary.interleaved, false)?;
    only(class, "rotary.n_features", rotary.n_features.unwrap_or(config.d_head), config.d_head)?;
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("model_type", model_type.into());
    set("architectures", json!([class]));
    set("vocab_size", config.vocab_size.into());
    set("num_hidden_layers", config.n_layers.into());
    set("hidden_size", config.d_model.into());
    set("num_attention_heads", config.n_heads.into());
    set("num_key_value_heads", config.n_kv_heads.into());
    set("head_dim", config.d_head.into());
    set("intermediate_size", config.d_ff.into());
    set("max_position_embeddings", config.max_positions.into());
    set("rms_norm_eps", config.norm_eps.into());
    set("hidden_act", activation_name(config.activation).into());
    set("attention_dropout", config.attention_dropout.into());
    set("initializer_range", config.init_std.into());
    set("tie_word_embeddings", config.tied.into());
    set("rope_theta", rotary.theta.into());
    set(
        "rope_scaling",
        match rotary.scaling {
            None => Value::Null,
            Some(RotaryScaling::Linear { factor }) => json!({"rope_type": "linear", "factor": factor}),
            Some(RotaryScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_positions,
            }) => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_frequency_factor,
                "high_freq_factor": high_frequency_factor,
                "original_max_position_embeddings": original_positions,
            }),
        },
    );
    match model_type {
        "llama" => {
            set("attention_bias", config.attention_bias.into());
            set("mlp_bias", config.feed_forward_bias.into());
        }
        "mistral" => set("sliding_window", config.window.map(|window| window + 1).into()),
        _ => set("use_sliding_window", false.into()),
    }
    write_ends(config, map);
    Ok(())
}

pub(super) fn rules(config: &GptConfig) -> TensorRules {
    let scale = |tensor: &str, parameter: &str| {
        TensorRule::copy(&format!("{tensor}.weight"), &format!("{parameter}.gamma"))
    };
    let mut rules = TensorRules::new()
        .table("embed_tokens", "tokens")
        .with(scale("layers.*.input_layernorm", "layers.*.attention_norm"))
        .with(scale("layers.*.post_attention_layernorm", "layers.*.feed_forward_norm"))
        .with(scale("norm", "final_norm"));
    for (tensor, parameter) in [
        ("self_attn.q_proj", "attention.query"),
        ("self_attn.k_proj", "attention.key"),
        ("self_attn.v_proj", "attention.value"),
        ("self_attn.o_proj", "attention.output"),
        ("mlp.gate_proj", "feed_forward.gate"),
        ("mlp.up_proj", "feed_forward.up"),
        ("mlp.down_proj", "feed_forward.down"),
    ] {
        rules = rules.linear(&format!("layers.*.{tensor}"), &format!("layers.*.{parameter}"));
    }
    let head = match config.tied {
        true => TensorRule::tie("lm_head.weight", "model.embed_tokens.weight"),
        false => TensorRule::transpose("lm_head.weight", "output.weight"),
    };
    rules.within("model.", "").with(head).with_optional_prefixes(["module.", "model."])
}
