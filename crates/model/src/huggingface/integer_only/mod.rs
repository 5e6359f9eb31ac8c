//! Encoders of integers alone, I-BERT (Kim et al. 2021), in folders.
//!
//! Our own folder has the family's `config.json` with `"quantization_config": {"quant_method": "i-bert"}`, which no other
//! program loads, and in place of the tensors of the encoder's tables and linear maps
//!
//! | tensor | |
//! | --- | --- |
//! | `weight` | `[d_out, d_in]` or `[n, d_model]`, signed bytes |
//! | `weight_scale` | `[d_out, 1]` |
//! | `bias` | `[d_out]`, 32-bit integers in units of `weight_scale` times the input's scale |
//! | `….act_scaling_factor` | `[1]`, the scale of an activation, by the names of transformers' `IBertModel` |
//! | `pooled_activation.act_scaling_factor` | `[1]`, the scale of a classifier's dense layer before tanh |
//!
//! A folder of transformers' `IBertModel` with `quant_mode` has floats, whose integers follow from the ranges in its buffers.

mod head;
mod ibert;
mod own;
mod parts;
mod save;

use crate::bert::BertConfig;
use crate::bert::integer_only::IntegerParts;
use crate::blocks::{Activation, NormPlacement};
use crate::huggingface::fields::Fields;
use crate::huggingface::quantization::{KEY, QuantizedTensor};
use crate::huggingface::safetensors_file::MappedTensors;
use crate::huggingface::{Architecture, Family, PretrainedConfig};
use crate::ops::TokenRounding;
use crate::{ModelError, Result};
use burn::tensor::TensorData;
use ibert::{IbertTensors, Numbers};
use own::{OwnTensors, SCALE};
use parts::{HeadNames, MAPS, TABLES, parts_of};
use std::path::Path;

type Checked<T> = std::result::Result<T, String>;

const METHOD: &str = "i-bert";

/// The key of transformers' I-BERT.
pub(super) const QUANT_MODE: &str = "quant_mode";

/// The buffers of transformers' I-BERT, which are no weights.
const BUFFERS: [&str; 8] = [
    "weight_integer",
    "bias_integer",
    "weight_scaling_factor",
    "fc_scaling_factor",
    "act_scaling_factor",
    "x_min",
    "x_max",
    "shift",
];

/// Whether a folder is our own one of integers alone.
pub(super) fn is_integer_only(fields: &Fields) -> bool {
    let is = fields.map().get(KEY).is_some_and(|value| value["quant_method"] == METHOD);
    if is {
        fields.ask(KEY);
    }
    is
}

/// Whether transformers' I-BERT computes in integers.
pub(super) fn has_quant_mode(fields: &Fields) -> Result<bool> {
    let is = fields.map().get("model_type").is_some_and(|kind| kind == Family::IBERT.model_type());
    Ok(is && fields.flag(QUANT_MODE)?.unwrap_or(false))
}

/// The maps of a classifier of sequences, where it has a dense layer with tanh over the first state.
fn head_of(config: &PretrainedConfig) -> Option<HeadNames> {
    match config.architecture {
        Architecture::SequenceClassification if config.family == Family::BERT => {
            Some(["pooler.dense", "classifier"])
        }
        Architecture::SequenceClassification => Some(["classifier.dense", "classifier.out_proj"]),
        _ => None,
    }
}

/// Checks that an encoder can be computed in integers alone.
///
/// # Errors
/// [`ModelError::Setting`] with the first part that cannot.
pub fn check_integer_only(config: &PretrainedConfig) -> Result<()> {
    let refuse = |key, found: String, expected: &str| {
        Err(ModelError::Setting {
            key,
            found,
            expected: format!("{expected}: I-BERT has no other arithmetic"),
        })
    };
    const FAMILIES: [Family; 5] =
        [Family::BERT, Family::ROBERTA, Family::XLM_ROBERTA, Family::CAMEMBERT, Family::IBERT];
    let encoder = &config.encoder;
    if !FAMILIES.contains(&config.family) {
        let found = config.family.model_type().to_owned();
        return refuse("model_type", found, "bert, roberta, xlm-roberta, camembert or ibert");
    }
    if encoder.activation != Activation::Gelu {
        return refuse("hidden_act", format!("{:?}", encoder.activation).to_lowercase(), "gelu");
    }
    if !encoder.absolute_positions || encoder.relative_bias.is_some() || encoder.rotary.is_some() {
        return refuse("position_embedding_type", "relative".into(), "absolute");
    }
    if encoder.norm != NormPlacement::Post {
        return refuse("norm", "before sub-layers".into(), "after sub-layers");
    }
    if encoder.causal {
        return refuse("is_decoder", "true".into(), "false");
    }
    if encoder.pruned_heads.iter().any(|heads| !heads.is_empty()) {
        return refuse("pruned_heads", "a list of heads".into(), "none");
    }
    if encoder.n_token_types == 0 {
        return refuse("type_vocab_size", "0".into(), "1 or more");
    }
    Ok(())
}

/// What the tensors of a folder say of integers alone; none if it says nothing. Buffers are taken out, and integers put
/// where the float tensors would be that they stand for.
///
/// # Errors
/// [`ModelError::Weights`] for tensors that are missing or do not fit together, [`ModelError::Setting`] for an encoder that
/// cannot be computed in integers.
pub(super) fn read_integer_only(
    folder: &Path,
    fields: &Fields,
    tensors: &mut MappedTensors,
) -> Result<Option<IntegerParts>> {
    let is_of_ibert = fields.map().get("model_type").is_some_and(|kind| kind == Family::IBERT.model_type());
    let (own, ibert) = (is_integer_only(fields), has_quant_mode(fields)?);
    let mut parts = None;
    if own || ibert {
        let config = PretrainedConfig::of(fields)?;
        check_integer_only(&config)?;
        if ibert && let Some(found) = fields.text("force_dequant")?.filter(|found| *found != "none") {
            let expected = "\"none\": another value is not supported";
            return Err(fields.refuse("force_dequant", &found.into(), expected));
        }
        let read = if own { read_own(&config, tensors) } else { read_ibert(&config, tensors) };
        let wrong = |reason| ModelError::Weights { path: folder.into(), reason };
        parts = Some(read.map_err(wrong)?);
    }
    if is_of_ibert || own {
        let is_buffer = |name: &str| {
            name.rsplit_once('.').is_some_and(|(_, last)| match own {
                true => last == SCALE,
                false => BUFFERS.contains(&last),
            })
        };
        tensors.floats.retain(|name, _| !is_buffer(name));
        tensors.others.retain(|name| !is_buffer(name));
    }
    Ok(parts)
}

fn sizes(encoder: &BertConfig) -> [usize; 3] {
    [encoder.n_layers, encoder.n_heads, encoder.position_offset]
}

fn read_ibert(config: &PretrainedConfig, tensors: &MappedTensors) -> Checked<IntegerParts> {
    let rules = config.family.rules(Architecture::Encoder, &config.encoder, "");
    let names: std::collections::BTreeMap<String, &String> =
        tensors.floats.keys().map(|name| (rules.canonical(name), name)).collect();
    let find = |name: &str| -> Option<Numbers> {
        let data: &TensorData = tensors.floats.get(*names.get(name)?)?;
        Some((data.shape().to_vec(), data.iter::<f32>().collect()))
    };
    // transformers has its heads in floats.
    parts_of(&IbertTensors { find: &find }, sizes(&config.encoder), None)
}

fn read_own(config: &PretrainedConfig, tensors: &mut MappedTensors) -> Checked<IntegerParts> {
    let rules = config.family.rules(Architecture::Encoder, &config.encoder, "");
    let all = tensors.floats.keys().chain(tensors.raw.keys());
    let names = all.map(|name| (rules.canonical(name), name.clone())).collect();
    let source = OwnTensors { tensors, names };
    let head = head_of(config);
    let has_head = head.is_some_and(|[dense, _]| source.names.contains_key(&format!("{dense}.weight_scale")));
    let parts = parts_of(&source, sizes(&config.encoder), head.filter(|_| has_head))?;
    // For whoever wants the numbers: matrices as they are, and biases as floats.
    let in_layers = (0..config.encoder.n_layers).flat_map(|layer| {
        let names = parts::LayerNames::new(layer);
        MAPS.iter().map(move |(module, _)| names.of(module)).collect::<Vec<_>>()
    });
    let of_head = head.filter(|_| has_head).into_iter().flatten().map(str::to_owned);
    let mut read = Vec::new();
    let units = units_of(&parts);
    for (module, unit) in in_layers.chain(of_head).zip(units) {
        let (matrix, bias) = (source.matrix(&module)?, source.names[&format!("{module}.bias")].clone());
        let numbers: Vec<f32> = unit.into_iter().collect();
        read.push((module, matrix, Some((bias, numbers))));
    }
    for module in TABLES {
        read.push((module.to_owned(), source.matrix(module)?, None));
    }
    let names = source.names;
    for (module, matrix, bias) in read {
        let weight = names[&format!("{module}.weight")].clone();
        let tokens = bias.is_some().then(TokenRounding::default);
        tensors.floats.remove(&names[&format!("{module}.weight_scale")]);
        tensors.raw.remove(&weight);
        tensors.quantized.insert(weight, QuantizedTensor { matrix, tokens });
        if let Some((name, numbers)) = bias {
            tensors.raw.remove(&name);
            let n = numbers.len();
            tensors.floats.insert(name, TensorData::new(numbers, [n]));
        }
    }
    tensors.others.retain(|name| tensors.raw.contains_key(name));
    Ok(parts)
}

/// The biases of the maps in floats, in the order of layers, and of the head.
fn units_of(parts: &IntegerParts) -> Vec<Vec<f32>> {
    use crate::bert::integer_only::IntegerMap;
    let floats = |map: &IntegerMap, input: f64| -> Vec<f32> {
        map.bias.iter().zip(&map.scales).map(|(bias, scale)| (*bias as f64 * scale * input) as f32).collect()
    };
    let mut input = parts.output_scale;
    let mut all = Vec::new();
    for layer in &parts.layers {
        let scales = &layer.scales;
        all.extend([&layer.query, &layer.key, &layer.value].map(|map| floats(map, input)));
        all.push(floats(&layer.output, scales.context));
        all.push(floats(&layer.up, scales.feed_forward_input));
        all.push(floats(&layer.down, scales.inner));
        input = scales.output;
    }
    if let Some(classifier) = &parts.classifier {
        all.push(floats(&classifier.dense, input));
        all.push(floats(&classifier.output, crate::ops::integer_only::IntegerTanh::OUTPUT_SCALE));
    }
    all
}
