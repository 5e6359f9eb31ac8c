//! `bert`: BERT (Devlin et al. 2019) as an encoder of texts; llama.cpp has neither its pooler nor its pretraining heads.

use super::config::Config;
use super::names::{Dim, Name, Sizes, name};
use super::{Metadata, key};
use crate::{GgufFile, Result, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const NAMES: [Name; 12] = [
    name("token_embd", "embeddings.word_embeddings", &[Dim::Vocab, Dim::Model]),
    name("position_embd", "embeddings.position_embeddings", &[Dim::Positions, Dim::Model]),
    name("token_types", "embeddings.token_type_embeddings", &[Dim::Types, Dim::Model]),
    name("token_embd_norm", "embeddings.LayerNorm", &[Dim::Model]),
    name("blk.*.attn_q", "encoder.layer.*.attention.self.query", &[Dim::Model, Dim::Model]),
    name("blk.*.attn_k", "encoder.layer.*.attention.self.key", &[Dim::Model, Dim::Model]),
    name("blk.*.attn_v", "encoder.layer.*.attention.self.value", &[Dim::Model, Dim::Model]),
    name("blk.*.attn_output", "encoder.layer.*.attention.output.dense", &[Dim::Model, Dim::Model]),
    name("blk.*.attn_output_norm", "encoder.layer.*.attention.output.LayerNorm", &[Dim::Model]),
    name("blk.*.ffn_up", "encoder.layer.*.intermediate.dense", &[Dim::Ff, Dim::Model]),
    name("blk.*.ffn_down", "encoder.layer.*.output.dense", &[Dim::Model, Dim::Ff]),
    name("blk.*.layer_output_norm", "encoder.layer.*.output.LayerNorm", &[Dim::Model]),
];

pub(super) fn write(config: Config, to: &mut Metadata) -> Result<Sizes> {
    config.only("hidden_act", json!("gelu"))?;
    config.only("position_embedding_type", json!("absolute"))?;
    config.only("is_decoder", json!(false))?;
    config.only("add_cross_attention", json!(false))?;
    let n_heads = config.size(&["num_attention_heads"], 12)?;
    let d_model = config.size(&["hidden_size"], 768)?;
    if !d_model.is_multiple_of(n_heads) {
        return Err(
            config.refuse("num_attention_heads", &format!("a divisor of `hidden_size`, which is {d_model}"))
        );
    }
    let sizes = Sizes {
        vocab_size: config.size(&["vocab_size"], 30_522)?,
        n_layers: config.size(&["num_hidden_layers"], 12)?,
        d_model,
        n_heads,
        n_kv_heads: n_heads,
        d_head: d_model / n_heads,
        d_ff: config.size(&["intermediate_size"], 3072)?,
        max_positions: config.size(&["max_position_embeddings"], 512)?,
        n_types: config.size(&["type_vocab_size"], 2)?,
    };
    write_encoder(&sizes, config.number(&["layer_norm_eps"], 1e-12)?, to);
    Ok(sizes)
}

/// The keys of an encoder.
pub(super) fn write_encoder(sizes: &Sizes, norm_eps: f64, to: &mut Metadata) {
    super::write_sizes(sizes, to);
    to.own("attention.layer_norm_epsilon", Value::F32(norm_eps as f32));
    to.own("attention.causal", Value::Bool(false));
    to.put("tokenizer.ggml.token_type_count", Value::U32(sizes.n_types as u32));
}

pub(super) fn read(file: &GgufFile, to: &mut Map<String, Json>) -> Result<Sizes> {
    let (sizes, norm_eps) = read_encoder(file)?;
    to.insert("architectures".into(), json!(["BertModel"]));
    to.insert("model_type".into(), "bert".into());
    write_config(&sizes, norm_eps, "gelu", to);
    to.insert("position_embedding_type".into(), "absolute".into());
    Ok(sizes)
}

pub(super) fn read_encoder(file: &GgufFile) -> Result<(Sizes, f64)> {
    let sizes = super::read_sizes(file)?;
    let eps = key(file, "attention.layer_norm_epsilon");
    let norm_eps = file.needed(&eps, "a number", file.number(&eps))?;
    let causal = key(file, "attention.causal");
    if file.flag(&causal)? == Some(true) {
        return Err(file.wrong(&causal, "false: an encoder sees the whole text"));
    }
    // Without a table of types, llama.cpp adds none.
    let n_types = match file.tensors().iter().find(|tensor| tensor.name == "token_types.weight") {
        Some(tensor) => tensor.shape.first().copied().unwrap_or_default(),
        None => {
            return Err(file.wrong(
                "token_types.weight",
                "a table of token types, which the model adds to its embeddings",
            ));
        }
    };
    Ok((Sizes { n_types, ..sizes }, norm_eps))
}

/// The keys of transformers' classes of encoders.
pub(super) fn write_config(sizes: &Sizes, norm_eps: f64, activation: &str, to: &mut Map<String, Json>) {
    for (key, value) in [
        ("vocab_size", sizes.vocab_size.into()),
        ("hidden_size", sizes.d_model.into()),
        ("num_hidden_layers", sizes.n_layers.into()),
        ("num_attention_heads", sizes.n_heads.into()),
        ("intermediate_size", sizes.d_ff.into()),
        ("hidden_act", activation.into()),
        ("max_position_embeddings", sizes.max_positions.into()),
        ("type_vocab_size", sizes.n_types.into()),
        ("layer_norm_eps", json!(norm_eps)),
    ] {
        to.insert(key.into(), value);
    }
}

/// Tensors that have no place in the file: the pooler and the heads of pretraining, as in llama.cpp.
pub(super) fn is_left_out(name: &str) -> bool {
    name.starts_with("pooler.") || name.starts_with("cls.") || name.ends_with("position_ids")
}
