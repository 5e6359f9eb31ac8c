//! GPT-2 (Radford et al. 2019): transformers' `GPT2LMHeadModel`, whose `Conv1D` stores matrices untransposed, and
//! queries, keys and values in one.

use super::super::fields::Fields;
use super::super::{TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use super::decoder_keys::{no_window, only, read_ends, windowless, write_ends};
use crate::Result;
use crate::blocks::{Activation, NormKind, NormPlacement};
use crate::gpt::GptConfig;
use serde_json::{Map, Value, json};

/// The name of a [`GptConfig`] field in `config.json`.
pub(super) fn key_of(field: &'static str) -> &'static str {
    match field {
        "n_layers" => "n_layer",
        "d_model" => "n_embd",
        "n_heads" => "n_head",
        "d_ff" => "n_inner",
        "max_positions" => "n_positions",
        "norm_eps" => "layer_norm_epsilon",
        "embedding_dropout" => "embd_pdrop",
        "hidden_dropout" => "resid_pdrop",
        "attention_dropout" => "attn_pdrop",
        "init_std" => "initializer_range",
        "begin_token_id" => "bos_token_id",
        "end_token_id" => "eos_token_id",
        "tied" => "tie_word_embeddings",
        other => other,
    }
}

pub(super) fn read(fields: &Fields) -> Result<GptConfig> {
    fields.fixed("add_cross_attention", false)?;
    read_sizes(fields)
}

/// The configuration without what is between its layers' sub-layers.
pub(super) fn read_sizes(fields: &Fields) -> Result<GptConfig> {
    // Options that this crate does not support.
    fields.fixed("scale_attn_weights", true)?;
    fields.fixed("scale_attn_by_inverse_layer_idx", false)?;
    let (d_model, n_heads) = (fields.positive("n_embd", 768)?, fields.positive("n_head", 12)?);
    if !d_model.is_multiple_of(n_heads) {
        let expected = format!("a divisor of `n_embd`, which is {d_model}");
        return Err(fields.refuse("n_head", &n_heads.into(), &expected));
    }
    let activation = match fields.text("activation_function")? {
        None => Activation::GeluTanh,
        Some(name) => activation_of(name, "activation_function", fields)?,
    };
    let number = |key: &str, default: f64| Ok::<_, crate::ModelError>(fields.number(key)?.unwrap_or(default));
    let vocab_size = fields.positive("vocab_size", 50_257)?;
    let (n_layers, max_positions) = (fields.positive("n_layer", 12)?, fields.positive("n_positions", 1024)?);
    windowless(fields, "GPT2LMHeadModel", n_layers, max_positions)?;
    let config = GptConfig {
        n_heads,
        n_kv_heads: n_heads,
        d_head: d_model / n_heads,
        d_ff: fields.positive("n_inner", d_model.saturating_mul(4))?,
        max_positions,
        norm_eps: number("layer_norm_epsilon", 1e-5)?,
        activation,
        embedding_dropout: number("embd_pdrop", 0.1)?,
        hidden_dropout: number("resid_pdrop", 0.1)?,
        attention_dropout: number("attn_pdrop", 0.1)?,
        init_std: number("initializer_range", 0.02)?,
        tied: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        begin_token_id: Some(50_256),
        end_token_id: Some(50_256),
        ..GptConfig::gpt2(vocab_size, n_layers, d_model)
    };
    read_ends(fields, config)
}

pub(super) fn write(config: &GptConfig, map: &mut Map<String, Value>) -> Result<()> {
    let class = "GPT-2";
    only(class, "norm", config.norm, NormPlacement::Pre)?;
    only(class, "norm_kind", config.norm_kind, NormKind::Layer)?;
    only(class, "gated", config.gated, false)?;
    only(class, "attention_bias", config.attention_bias, true)?;
    only(class, "attention_output_bias", config.attention_output_bias, true)?;
    only(class, "feed_forward_bias", config.feed_forward_bias, true)?;
    only(class, "n_kv_heads", config.n_kv_heads, config.n_heads)?;
    only(class, "d_head", config.n_heads * config.d_head, config.d_model)?;
    no_window(class, config.window)?;
    map.insert("model_type".into(), "gpt2".into());
    map.insert("architectures".into(), json!(["GPT2LMHeadModel"]));
    write_fields(config, map);
    Ok(())
}

/// Adds what the class has keys for.
pub(super) fn write_fields(config: &GptConfig, map: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("vocab_size", config.vocab_size.into());
    set("n_layer", config.n_layers.into());
    set("n_embd", config.d_model.into());
    set("n_head", config.n_heads.into());
    set("n_inner", config.d_ff.into());
    set("n_positions", config.max_positions.into());
    set("n_ctx", config.max_positions.into());
    set("layer_norm_epsilon", config.norm_eps.into());
    set("activation_function", activation_name(config.activation).into());
    set("embd_pdrop", config.embedding_dropout.into());
    set("resid_pdrop", config.hidden_dropout.into());
    set("attn_pdrop", config.attention_dropout.into());
    set("initializer_range", config.init_std.into());
    set("tie_word_embeddings", config.tied.into());
    write_ends(config, map);
}

/// See [`Format::telling`](super::super::Format::telling).
pub(super) fn telling(config: &GptConfig) -> [(String, Vec<usize>); 2] {
    let GptConfig { d_model, max_positions, .. } = *config;
    let fused = format!("transformer.h.{}.attn.c_attn.weight", config.n_layers - 1);
    [(fused, vec![d_model, 3 * d_model]), ("transformer.wpe.weight".into(), vec![max_positions, d_model])]
}

/// The rules of a layer, with names and paths relative to it.
pub(super) fn layer_rules() -> TensorRules {
    let conv1d = |rules: TensorRules, tensor: &str, parameter: &str| {
        let copy = |what| TensorRule::copy(&format!("{tensor}.{what}"), &format!("{parameter}.{what}"));
        rules.with(copy("weight")).with(copy("bias"))
    };
    let fused = |axis, what: &str| {
        let paths = ["query", "key", "value"].map(|map| format!("attention.{map}.{what}"));
        TensorRule::split(&format!("attn.c_attn.{what}"), axis, &paths.each_ref().map(String::as_str))
    };
    let rules = TensorRules::new()
        .norm("ln_1", "attention_norm")
        .with(fused(1, "weight"))
        .with(fused(0, "bias"))
        .norm("ln_2", "feed_forward_norm");
    let maps = [
        ("attn.c_proj", "attention.output"),
        ("mlp.c_fc", "feed_forward.up"),
        ("mlp.c_proj", "feed_forward.down"),
    ];
    maps.into_iter().fold(rules, |rules, (tensor, parameter)| conv1d(rules, tensor, parameter))
}

pub(super) fn rules(config: &GptConfig) -> TensorRules {
    let rules = TensorRules::new()
        .table("wte", "tokens")
        .table("wpe", "positions.table")
        .and(layer_rules().within("h.*.", "layers.*."))
        .norm("ln_f", "final_norm");
    let head = match config.tied {
        true => TensorRule::tie("lm_head.weight", "transformer.wte.weight"),
        // Of no parameter if the output is adaptive.
        false => TensorRule::transpose("lm_head.weight", "output.weight"),
    };
    rules.within("transformer.", "").with(head).with_optional_prefixes(["module.", "transformer."])
}
