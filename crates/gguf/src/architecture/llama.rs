//! `llama`: Llama (Touvron et al. 2023), and Mistral without a window.

use super::config::Config;
use super::names::{Dim, Kind, Name, Sizes, name};
use super::{Metadata, NewTensors, Rope, key};
use crate::{GgufError, GgufFile, Result, Value};
use serde_json::{Map, Value as Json, json};

pub(super) const NAMES: [Name; 12] = [
    name("token_embd", "model.embed_tokens", &[Dim::Vocab, Dim::Model]),
    name("output_norm", "model.norm", &[Dim::Model]),
    name("output", "lm_head", &[Dim::Vocab, Dim::Model]).of(Kind::Optional),
    name("blk.*.attn_norm", "model.layers.*.input_layernorm", &[Dim::Model]),
    name("blk.*.attn_q", "model.layers.*.self_attn.q_proj", &[Dim::Queries, Dim::Model])
        .of(Kind::RotaryQueries),
    name("blk.*.attn_k", "model.layers.*.self_attn.k_proj", &[Dim::Keys, Dim::Model]).of(Kind::RotaryKeys),
    name("blk.*.attn_v", "model.layers.*.self_attn.v_proj", &[Dim::Keys, Dim::Model]),
    name("blk.*.attn_output", "model.layers.*.self_attn.o_proj", &[Dim::Model, Dim::Queries]),
    name("blk.*.ffn_norm", "model.layers.*.post_attention_layernorm", &[Dim::Model]),
    name("blk.*.ffn_gate", "model.layers.*.mlp.gate_proj", &[Dim::Ff, Dim::Model]),
    name("blk.*.ffn_up", "model.layers.*.mlp.up_proj", &[Dim::Ff, Dim::Model]),
    name("blk.*.ffn_down", "model.layers.*.mlp.down_proj", &[Dim::Model, Dim::Ff]),
];

/// The tensor with a factor for each pair of features, by which its wavelength grows: Llama 3.1's scaling.
pub(super) const FACTORS: &str = "rope_freqs.weight";

/// Llama 3.1's scaling of rotary positions (transformers' `rope_type` `llama3`).
#[derive(Clone, Copy)]
struct Scaling {
    factor: f64,
    low: f64,
    high: f64,
    original: f64,
}

impl Scaling {
    /// A factor for each pair of features: long wavelengths grow by `factor`, short ones stay, and those between are
    /// interpolated.
    fn factors(self, theta: f64, d_head: usize) -> Vec<f32> {
        let Self { factor, low, high, original } = self;
        let of_pair = |pair: usize| {
            let wavelength = 2.0 * std::f64::consts::PI * theta.powf((2 * pair) as f64 / d_head as f64);
            if wavelength < original / high {
                1.0
            } else if wavelength > original / low {
                factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        };
        (0..d_head / 2).map(|pair| of_pair(pair) as f32).collect()
    }
}

/// The sizes, and tensors that are in no folder.
pub(super) fn write(config: Config, to: &mut Metadata) -> Result<(Sizes, NewTensors)> {
    config.only("hidden_act", json!("silu"))?;
    if config.value(&["sliding_window"]).is_some() {
        return Err(config.refuse("sliding_window", "null: llama.cpp's `llama` has no window"));
    }
    let n_heads = config.size(&["num_attention_heads"], 32)?;
    let d_model = config.size(&["hidden_size"], 4096)?;
    let is_mistral = config.text(&["model_type"])? == Some("mistral");
    let n_kv_heads = config.size(&["num_key_value_heads"], if is_mistral { 8 } else { n_heads })?;
    if !n_heads.is_multiple_of(n_kv_heads) {
        return Err(
            config.refuse("num_key_value_heads", &format!("a divisor of the number of heads, {n_heads}"))
        );
    }
    let sizes = Sizes {
        vocab_size: config.size(&["vocab_size"], 32_000)?,
        n_layers: config.size(&["num_hidden_layers"], 32)?,
        d_model,
        n_heads,
        n_kv_heads,
        d_head: config.size(&["head_dim"], d_model / n_heads)?,
        d_ff: config.size(&["intermediate_size"], if is_mistral { 14_336 } else { 11_008 })?,
        max_positions: config.size(&["max_position_embeddings"], if is_mistral { 131_072 } else { 2048 })?,
        n_types: 0,
    };
    if !sizes.d_head.is_multiple_of(2) {
        return Err(config.refuse("head_dim", "an even number, for rotary positions"));
    }
    let Rope { theta, scaling } = super::rope(config)?;
    let theta = theta.unwrap_or(10_000.0);
    super::write_sizes(&sizes, to);
    let norm_eps = config.number(&["rms_norm_eps"], 1e-6)?;
    to.own("attention.layer_norm_rms_epsilon", Value::F32(norm_eps as f32));
    to.own("attention.key_length", Value::U32(sizes.d_head as u32));
    to.own("attention.value_length", Value::U32(sizes.d_head as u32));
    to.own("vocab_size", Value::U32(sizes.vocab_size as u32));
    to.own("rope.dimension_count", Value::U32(sizes.d_head as u32));
    to.own("rope.freq_base", Value::F32(theta as f32));
    let mut tensors = Vec::new();
    if let Some(scaling) = scaling {
        let number = |key: &'static str| {
            let value = scaling.get(key).and_then(Json::as_f64).filter(|x| x.is_finite() && *x > 0.0);
            value.ok_or_else(|| {
                GgufError::Export(format!(
                    "config.json: the scaling of rotary positions has no `{key}` above 0"
                ))
            })
        };
        match super::rope_type(scaling) {
            Some("linear") => {
                to.own("rope.scaling.type", Value::Text("linear".into()));
                to.own("rope.scaling.factor", Value::F32(number("factor")? as f32));
            }
            Some("llama3") => {
                let scaling = Scaling {
                    factor: number("factor")?,
                    low: number("low_freq_factor")?,
                    high: number("high_freq_factor")?,
                    original: number("original_max_position_embeddings")?,
                };
                tensors.push((FACTORS.to_owned(), scaling.factors(theta, sizes.d_head)));
            }
            other => {
                return Err(GgufError::Export(format!(
                    "config.json: rotary positions are scaled as {}; expected \"linear\", \"llama3\" or no scaling",
                    other.map_or_else(
                        || "an unnamed type".into(),
                        |name| format!("\"{}\"", name.escape_debug())
                    )
                )));
            }
        }
    }
    Ok((sizes, tensors))
}

pub(super) fn read(file: &GgufFile, to: &mut Map<String, Json>) -> Result<Sizes> {
    let sizes = super::read_sizes(file)?;
    let eps = key(file, "attention.layer_norm_rms_epsilon");
    let norm_eps = file.needed(&eps, "a number", file.number(&eps))?;
    for (name, why) in [
        ("expert_count", "0: mixtures of experts are not supported"),
        ("attention.sliding_window", "none: windows are not supported"),
    ] {
        let key = key(file, name);
        if file.size(&key)?.unwrap_or(0) != 0 {
            return Err(file.wrong(&key, why));
        }
    }
    let causal = key(file, "attention.causal");
    if file.flag(&causal)? == Some(false) {
        return Err(file.wrong(&causal, "true: the model is read from left to right"));
    }
    if !sizes.d_head.is_multiple_of(2) {
        return Err(
            file.wrong(&key(file, "attention.key_length"), "an even width of heads, for rotary positions")
        );
    }
    let has = |name: String| file.tensors().iter().any(|tensor| tensor.name == name);
    let has_bias = |map: &str| has(format!("blk.0.{map}.bias"));
    to.insert("architectures".into(), json!(["LlamaForCausalLM"]));
    to.insert("model_type".into(), "llama".into());
    for (key, value) in [
        ("vocab_size", sizes.vocab_size.into()),
        ("hidden_size", sizes.d_model.into()),
        ("num_hidden_layers", sizes.n_layers.into()),
        ("num_attention_heads", sizes.n_heads.into()),
        ("num_key_value_heads", sizes.n_kv_heads.into()),
        ("head_dim", sizes.d_head.into()),
        ("intermediate_size", sizes.d_ff.into()),
        ("max_position_embeddings", sizes.max_positions.into()),
        ("rms_norm_eps", json!(norm_eps)),
        ("hidden_act", "silu".into()),
        ("attention_bias", has_bias("attn_q").into()),
        ("mlp_bias", has_bias("ffn_up").into()),
        ("tie_word_embeddings", (!has("output.weight".into())).into()),
    ] {
        to.insert(key.into(), value);
    }
    let theta = super::read_rope(file, &sizes, to)?;
    if let Some(tensor) = file.tensors().iter().find(|tensor| tensor.name == FACTORS) {
        let scaling =
            scaling_of(&file.values(tensor)?, theta, sizes.d_head).ok_or_else(|| GgufError::Tensor {
                path: file.path().into(),
                name: FACTORS.into(),
                reason: "has factors other than those of Llama 3.1 to 3.3, which are not supported".into(),
            })?;
        let scaling = json!({
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.original as u64,
        });
        to.insert("rope_scaling".into(), scaling);
    }
    super::read_ends(file, to)?;
    Ok(sizes)
}

/// The scaling with these factors. The file has them alone; the published models differ in the factor of long wavelengths,
/// which is the greatest.
fn scaling_of(factors: &[f32], theta: f64, d_head: usize) -> Option<Scaling> {
    let factor = f64::from(factors.iter().copied().fold(1.0, f32::max));
    let scaling = Scaling { factor, low: 1.0, high: 4.0, original: 8192.0 };
    let expected = scaling.factors(theta, d_head);
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs();
    (factors.len() == expected.len() && factors.iter().zip(&expected).all(close)).then_some(scaling)
}

/// Angles, which old checkpoints hold.
pub(super) fn is_left_out(name: &str) -> bool {
    name.ends_with("rotary_emb.inv_freq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scaling_of_llama_3_is_known_by_its_factors() {
        for factor in [8.0, 32.0] {
            let scaling = Scaling { factor, low: 1.0, high: 4.0, original: 8192.0 };
            let factors = scaling.factors(500_000.0, 128);
            assert_eq!((factors[0], factors[63]), (1.0, factor as f32));
            assert_eq!(scaling_of(&factors, 500_000.0, 128).unwrap().factor, factor);
            let other = Scaling { original: 4096.0, ..scaling }.factors(500_000.0, 128);
            assert!(scaling_of(&other, 500_000.0, 128).is_none());
        }
    }
}
