//! `gpt2`: GPT-2 (Radford et al. 2019).

use super::config::Config;
use super::names::{Dim, Kind, Name, Sizes, name};
use super::{Metadata, key};
use crate::{GgufFile, Result, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const NAMES: [Name; 10] = [
    name("token_embd", "wte", &[Dim::Vocab, Dim::Model]),
    name("position_embd", "wpe", &[Dim::Positions, Dim::Model]),
    name("output_norm", "ln_f", &[Dim::Model]),
    name("output", "lm_head", &[Dim::Vocab, Dim::Model]).of(Kind::Optional),
    name("blk.*.attn_norm", "h.*.ln_1", &[Dim::Model]),
    name("blk.*.attn_qkv", "h.*.attn.c_attn", &[Dim::All, Dim::Model]).of(Kind::Transposed),
    name("blk.*.attn_output", "h.*.attn.c_proj", &[Dim::Model, Dim::Model]).of(Kind::Transposed),
    name("blk.*.ffn_norm", "h.*.ln_2", &[Dim::Model]),
    name("blk.*.ffn_up", "h.*.mlp.c_fc", &[Dim::Ff, Dim::Model]).of(Kind::Transposed),
    name("blk.*.ffn_down", "h.*.mlp.c_proj", &[Dim::Model, Dim::Ff]).of(Kind::Transposed),
];

/// transformers' `gelu_new` is the one that ggml computes.
const ACTIVATIONS: [&str; 3] = ["gelu_new", "gelu_pytorch_tanh", "gelu_fast"];

pub(super) fn write(config: Config, to: &mut Metadata) -> Result<Sizes> {
    config.only("scale_attn_weights", json!(true))?;
    config.only("scale_attn_by_inverse_layer_idx", json!(false))?;
    config.only("add_cross_attention", json!(false))?;
    let activation = config.text(&["activation_function"])?;
    if activation.is_some_and(|name| !ACTIVATIONS.contains(&name)) {
        return Err(
            config.refuse("activation_function", "\"gelu_new\", which is what llama.cpp computes with")
        );
    }
    let n_heads = config.size(&["n_head"], 12)?;
    let d_model = config.size(&["n_embd"], 768)?;
    if !d_model.is_multiple_of(n_heads) {
        return Err(config.refuse("n_head", &format!("a divisor of `n_embd`, which is {d_model}")));
    }
    let sizes = Sizes {
        vocab_size: config.size(&["vocab_size"], 50_257)?,
        n_layers: config.size(&["n_layer"], 12)?,
        d_model,
        n_heads,
        n_kv_heads: n_heads,
        d_head: d_model / n_heads,
        d_ff: config.size(&["n_inner"], d_model * 4)?,
        max_positions: config.size(&["n_positions", "n_ctx"], 1024)?,
        n_types: 0,
    };
    super::write_sizes(&sizes, to);
    let norm_eps = config.number(&["layer_norm_epsilon"], 1e-5)?;
    to.own("attention.layer_norm_epsilon", Value::F32(norm_eps as f32));
    Ok(sizes)
}

pub(super) fn read(file: &GgufFile, to: &mut Map<String, Json>) -> Result<Sizes> {
    let sizes = super::read_sizes(file)?;
    let eps = key(file, "attention.layer_norm_epsilon");
    let norm_eps = file.needed(&eps, "a number", file.number(&eps))?;
    to.insert("architectures".into(), json!(["GPT2LMHeadModel"]));
    to.insert("model_type".into(), "gpt2".into());
    for (key, value) in [
        ("vocab_size", sizes.vocab_size),
        ("n_embd", sizes.d_model),
        ("n_layer", sizes.n_layers),
        ("n_head", sizes.n_heads),
        ("n_inner", sizes.d_ff),
        ("n_positions", sizes.max_positions),
    ] {
        to.insert(key.into(), value.into());
    }
    to.insert("layer_norm_epsilon".into(), json!(norm_eps));
    to.insert("activation_function".into(), "gelu_new".into());
    let tied = file.tensors().iter().all(|tensor| tensor.name != "output.weight");
    to.insert("tie_word_embeddings".into(), tied.into());
    super::read_ends(file, to)?;
    Ok(sizes)
}

/// Masks, which old checkpoints hold.
pub(super) fn is_left_out(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}
