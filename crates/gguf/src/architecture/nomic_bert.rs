//! `nomic-bert`: NomicBERT (Nussbaum et al. 2024), an encoder with rotary positions and gated networks.

use super::config::Config;
use super::names::{Dim, Name, Sizes, name};
use super::{Metadata, Rope, bert, key};
use crate::{GgufFile, Result, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const NAMES: [Name; 10] = [
    name("token_embd", "embeddings.word_embeddings", &[Dim::Vocab, Dim::Model]),
    name("token_types", "embeddings.token_type_embeddings", &[Dim::Types, Dim::Model]),
    name("token_embd_norm", "emb_ln", &[Dim::Model]),
    name("blk.*.attn_qkv", "encoder.layers.*.attn.Wqkv", &[Dim::All, Dim::Model]),
    name("blk.*.attn_output", "encoder.layers.*.attn.out_proj", &[Dim::Model, Dim::Model]),
    name("blk.*.attn_output_norm", "encoder.layers.*.norm1", &[Dim::Model]),
    name("blk.*.ffn_up", "encoder.layers.*.mlp.fc11", &[Dim::Ff, Dim::Model]),
    name("blk.*.ffn_gate", "encoder.layers.*.mlp.fc12", &[Dim::Ff, Dim::Model]),
    name("blk.*.ffn_down", "encoder.layers.*.mlp.fc2", &[Dim::Model, Dim::Ff]),
    name("blk.*.layer_output_norm", "encoder.layers.*.norm2", &[Dim::Model]),
];

/// What the published models were trained for: llama.cpp's converter takes it for their length.
const TRAINED: usize = 2048;

pub(super) fn write(config: Config, to: &mut Metadata) -> Result<Sizes> {
    for (key, value) in [
        ("prenorm", json!(false)),
        ("parallel_block", json!(false)),
        ("causal", json!(false)),
        ("use_rms_norm", json!(false)),
        ("norm_mlp", json!(false)),
        ("rotary_emb_interleaved", json!(false)),
        ("rotary_emb_fraction", json!(1.0)),
        ("qkv_proj_bias", json!(false)),
        ("mlp_fc1_bias", json!(false)),
        ("mlp_fc2_bias", json!(false)),
        ("activation_function", json!("swiglu")),
        ("hidden_act", json!("silu")),
    ] {
        config.only(key, value)?;
    }
    for key in ["rotary_emb_scale_base", "rotary_scaling_factor"] {
        config.only(key, Json::Null)?;
    }
    // The names of the published folders, and of transformers' class; each has defaults of its own.
    let published = config.0.contains_key("n_embd") && !config.0.contains_key("hidden_size");
    let n_heads = config.size(&["num_attention_heads", "n_head"], 12)?;
    let d_model = config.size(&["hidden_size", "n_embd"], 768)?;
    if !d_model.is_multiple_of(n_heads) {
        return Err(config.refuse("n_head", &format!("a divisor of the width, {d_model}")));
    }
    let positions =
        config.size(&["max_position_embeddings", "n_positions"], if published { 1024 } else { TRAINED })?;
    let theta = match super::rope(config)? {
        Rope { theta, scaling: None } => theta,
        Rope { scaling: Some(_), .. } => {
            return Err(config.refuse("rope_parameters", "rotary positions without a scaling"));
        }
    };
    let sizes = Sizes {
        vocab_size: config.size(&["vocab_size"], if published { 50_257 } else { 30_528 })?,
        n_layers: config.size(&["num_hidden_layers", "n_layer"], 12)?,
        d_model,
        n_heads,
        n_kv_heads: n_heads,
        d_head: d_model / n_heads,
        d_ff: config.size(&["intermediate_size", "n_inner"], d_model * 4)?,
        max_positions: match config.size(&["max_trained_positions"], positions)? {
            TRAINED => positions.min(TRAINED),
            _ => positions,
        },
        n_types: config.size(&["type_vocab_size"], 2)?,
    };
    bert::write_encoder(&sizes, config.number(&["layer_norm_eps", "layer_norm_epsilon"], 1e-12)?, to);
    let theta = theta.unwrap_or(if published { 10_000.0 } else { 1000.0 });
    to.own("rope.freq_base", Value::F32(theta as f32));
    Ok(sizes)
}

pub(super) fn read(file: &GgufFile, to: &mut Map<String, Json>) -> Result<Sizes> {
    let (sizes, norm_eps) = bert::read_encoder(file)?;
    let experts = key(file, "moe_every_n_layers");
    if file.size(&experts)?.unwrap_or(0) != 0 {
        return Err(file.wrong(&experts, "0: mixtures of experts are not supported"));
    }
    to.insert("architectures".into(), json!(["NomicBertModel"]));
    to.insert("model_type".into(), "nomic_bert".into());
    bert::write_config(&sizes, norm_eps, "silu", to);
    super::read_rope(file, &sizes, to)?;
    to.insert("qkv_proj_bias".into(), false.into());
    to.insert("mlp_fc1_bias".into(), false.into());
    to.insert("mlp_fc2_bias".into(), false.into());
    Ok(sizes)
}
