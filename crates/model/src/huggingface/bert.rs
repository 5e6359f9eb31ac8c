use super::sentence::read_json;
use super::{MappedTensors, map_tensors, write_tensors};
use crate::bert::{Bert, BertConfig, BertForPreTraining};
use crate::blocks::{Activation, NormPlacement};
use crate::{ModelError, ParamInit, Result, weights};
use burn::module::Module;
use burn::tensor::TensorData;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::Path;

/// What was in a checkpoint besides the encoder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Parameters of this crate's model that the file lacks and that keep their initial values:
    /// pooler or heads, never a part of the encoder.
    pub missing: Vec<String>,
    /// Tensors of the file that the model has no place for, by their names there.
    pub unexpected: Vec<String>,
}

/// Hugging Face's `config.json` of a BERT, as far as it matters here.
#[derive(Debug, Serialize, Deserialize)]
struct HfBertConfig {
    #[serde(default = "architectures")]
    architectures: Vec<String>,
    #[serde(default = "model_type")]
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "tenth")]
    hidden_dropout_prob: f64,
    #[serde(default = "tenth")]
    attention_probs_dropout_prob: f64,
    #[serde(default = "positions")]
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "std")]
    initializer_range: f64,
    #[serde(default = "eps")]
    layer_norm_eps: f64,
    #[serde(default)]
    pad_token_id: Option<usize>,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    #[serde(default = "float32")]
    torch_dtype: String,
}

// Defaults of transformers' BertConfig, for files that leave them out.
fn architectures() -> Vec<String> {
    vec!["BertForPreTraining".into()]
}
fn model_type() -> String {
    "bert".into()
}
fn gelu() -> String {
    "gelu".into()
}
fn tenth() -> f64 {
    0.1
}
fn positions() -> usize {
    512
}
fn two() -> usize {
    2
}
fn std() -> f64 {
    0.02
}
fn eps() -> f64 {
    1e-12
}
fn absolute() -> String {
    "absolute".into()
}
fn float32() -> String {
    "float32".into()
}

impl HfBertConfig {
    fn from_config(config: &BertConfig) -> Result<Self> {
        if config.norm == NormPlacement::Pre {
            return Err(ModelError::Config(
                "a pre-norm BERT has no Hugging Face counterpart; use `norm = \"post\"` to save one".into(),
            ));
        }
        Ok(Self {
            architectures: architectures(),
            model_type: model_type(),
            vocab_size: config.vocab_size,
            hidden_size: config.d_model,
            num_hidden_layers: config.n_layers,
            num_attention_heads: config.n_heads,
            intermediate_size: config.d_ff,
            hidden_act: match config.activation {
                Activation::Gelu => "gelu",
                Activation::GeluTanh => "gelu_new",
                Activation::Relu => "relu",
                Activation::Tanh => "tanh",
            }
            .into(),
            hidden_dropout_prob: config.hidden_dropout,
            attention_probs_dropout_prob: config.attention_dropout,
            max_position_embeddings: config.max_positions,
            type_vocab_size: config.n_token_types,
            initializer_range: config.init_std,
            layer_norm_eps: config.layer_norm_eps,
            pad_token_id: Some(config.pad_token_id),
            position_embedding_type: absolute(),
            torch_dtype: float32(),
        })
    }

    fn to_config(&self, path: &Path) -> Result<BertConfig> {
        let unsupported = |key: &str, found: &str, expected: &str| {
            ModelError::Config(format!("{}: `{key}` is \"{found}\", expected {expected}", path.display()))
        };
        if self.model_type != "bert" {
            return Err(unsupported("model_type", &self.model_type, "\"bert\""));
        }
        if self.position_embedding_type != "absolute" {
            let found = &self.position_embedding_type;
            return Err(unsupported("position_embedding_type", found, "\"absolute\""));
        }
        let config = BertConfig {
            vocab_size: self.vocab_size,
            n_layers: self.num_hidden_layers,
            d_model: self.hidden_size,
            n_heads: self.num_attention_heads,
            d_ff: self.intermediate_size,
            max_positions: self.max_position_embeddings,
            n_token_types: self.type_vocab_size,
            hidden_dropout: self.hidden_dropout_prob,
            attention_dropout: self.attention_probs_dropout_prob,
            activation: match self.hidden_act.as_str() {
                "gelu" => Activation::Gelu,
                "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
                "relu" => Activation::Relu,
                other => {
                    return Err(unsupported("hidden_act", other, "\"gelu\", \"gelu_new\" or \"relu\""));
                }
            },
            norm: NormPlacement::Post,
            layer_norm_eps: self.layer_norm_eps,
            init_std: self.initializer_range,
            pad_token_id: self.pad_token_id.unwrap_or(0),
        };
        config.validate()?;
        Ok(config)
    }
}

/// Loads a BERT with its pretraining heads from a folder with `config.json` and `model.safetensors`.
///
/// Reads what `BertModel`, `BertForMaskedLM` and `BertForPreTraining` save, in any float precision.
/// Pooler and heads that the file lacks keep initial values drawn from `init` and are listed in the
/// report; a missing or misshapen tensor of the encoder is an error that names it.
///
/// The weights stay in the file, see [`map_tensors`], but for the linear maps' matrices, which are
/// transposed into memory.
pub fn load_bert(
    folder: &Path,
    init: &mut ParamInit,
) -> Result<(BertConfig, BertForPreTraining, LoadReport)> {
    let config = read_config(folder)?;
    let model = config.init(&mut init.deferred());
    let (model, report) = load_weights(folder, model, "")?;
    Ok((config, model, report))
}

/// [`load_bert`] of the encoder alone: heads are listed as unexpected, and the pooler may be missing.
pub fn load_bert_encoder(folder: &Path, init: &mut ParamInit) -> Result<(BertConfig, Bert, LoadReport)> {
    let config = read_config(folder)?;
    let model = config.init_encoder(&mut init.deferred());
    let (model, report) = load_weights(folder, model, "bert.")?;
    Ok((config, model, report))
}

fn read_config(folder: &Path) -> Result<BertConfig> {
    let path = folder.join("config.json");
    let hf: HfBertConfig = read_json(&path)?;
    hf.to_config(&path)
}

/// Puts a file's tensors into `model`, whose parameters' paths get `prefix` in front to be those of a whole
/// BERT.
fn load_weights<M: Module>(folder: &Path, model: M, prefix: &str) -> Result<(M, LoadReport)> {
    let path = folder.join("model.safetensors");
    let MappedTensors { floats, others } = map_tensors(&path)?;
    let mut report = LoadReport::default();
    // Positions in order, which old checkpoints hold, are no weights.
    report.unexpected.extend(others.into_iter().filter(|name| !name.ends_with("position_ids")));
    let mut found: BTreeMap<String, (String, TensorData)> = BTreeMap::new();
    for (name, data) in floats {
        match found.entry(canonical(&name)) {
            Entry::Vacant(place) => _ = place.insert((name, data)),
            Entry::Occupied(_) => report.unexpected.push(name),
        }
    }
    // Both names of the tied matrix and of the tied bias may be present; a whole model has one of each.
    if prefix.is_empty() {
        found.remove("cls.predictions.decoder.weight");
        if let Some(bias) = found.remove("cls.predictions.decoder.bias") {
            found.entry("cls.predictions.bias".into()).or_insert(bias);
        }
    }

    let mut tensors = Vec::new();
    let mut missing_encoder = Vec::new();
    for (ours, shape) in weights::shapes(&model) {
        let theirs = to_hf(&format!("{prefix}{ours}"));
        match found.remove(&theirs) {
            Some((name, data)) => {
                let transposed = is_linear_weight(&theirs);
                let expected = if transposed { shape.into_iter().rev().collect() } else { shape };
                if data.shape().as_slice() != expected {
                    let found = data.shape().to_vec();
                    return Err(ModelError::Shape { path, name, expected, found });
                }
                tensors.push((ours, data, transposed));
            }
            None if theirs.starts_with("cls.") || theirs.starts_with("bert.pooler.") => {
                report.missing.push(theirs);
            }
            None => missing_encoder.push(theirs),
        }
    }
    if !missing_encoder.is_empty() {
        missing_encoder.sort();
        return Err(ModelError::MissingTensors { path, names: missing_encoder });
    }
    report.unexpected.extend(found.into_values().map(|(name, _)| name));
    report.unexpected.sort();
    let tensors = tensors
        .into_par_iter()
        .map(|(ours, data, transposed)| (ours, if transposed { transpose(&data) } else { data }))
        .collect::<Vec<_>>();
    Ok((weights::replace(model, tensors.into_iter().collect()), report))
}

/// Saves a BERT as `config.json` and `model.safetensors` for transformers' `BertForPreTraining`.
///
/// The tied projection is stored once, as transformers does. Files are written in place.
pub fn save_bert(folder: &Path, config: &BertConfig, model: &BertForPreTraining) -> Result<()> {
    let config_path = folder.join("config.json");
    let json = serde_json::to_string_pretty(&HfBertConfig::from_config(config)?)
        .expect("a struct of plain values serialises");
    fs::write(&config_path, json + "\n").map_err(|source| ModelError::Io { path: config_path, source })?;
    let tensors = weights::collect(model)
        .into_iter()
        .map(|(ours, data)| {
            let theirs = to_hf(&ours);
            let data = if is_linear_weight(&theirs) { transpose(&data) } else { data };
            (theirs, data)
        })
        .collect();
    write_tensors(&folder.join("model.safetensors"), &tensors, &[("format", "pt")])
}

/// Pairs of a fragment of this crate's parameter paths and Hugging Face's name for it, in the order
/// in which they are replaced.
const NAMES: &[(&str, &str)] = &[
    ("mlm.dense.", "cls.predictions.transform.dense."),
    ("mlm.norm.", "cls.predictions.transform.LayerNorm."),
    ("mlm.bias", "cls.predictions.bias"),
    ("next_sentence.classifier.", "cls.seq_relationship."),
    ("embeddings.token_types.", "embeddings.token_type_embeddings."),
    ("embeddings.tokens.", "embeddings.word_embeddings."),
    ("embeddings.positions.table.", "embeddings.position_embeddings."),
    ("embeddings.norm.", "embeddings.LayerNorm."),
    ("encoder.layers.", "encoder.layer."),
    (".attention.output.", ".attention.output.dense."),
    (".attention.query.", ".attention.self.query."),
    (".attention.key.", ".attention.self.key."),
    (".attention.value.", ".attention.self.value."),
    (".attention_norm.", ".attention.output.LayerNorm."),
    (".feed_forward.up.", ".intermediate.dense."),
    (".feed_forward.down.", ".output.dense."),
    (".feed_forward_norm.", ".output.LayerNorm."),
    (".gamma", ".weight"),
    (".beta", ".bias"),
];

/// Hugging Face's name of one of this crate's parameters.
fn to_hf(ours: &str) -> String {
    NAMES.iter().fold(ours.to_string(), |name, (from, to)| name.replace(from, to))
}

/// A file's tensor name in the one form compared with: with `bert.` in front of the encoder, and
/// with the layer norm's new parameter names (checkpoints converted from TensorFlow have the old).
fn canonical(name: &str) -> String {
    let name =
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias");
    match name.starts_with("bert.") || name.starts_with("cls.") {
        true => name,
        false => format!("bert.{name}"),
    }
}

/// PyTorch stores a linear map's matrix as `[d_out, d_in]`, burn as `[d_in, d_out]`.
fn is_linear_weight(hf_name: &str) -> bool {
    hf_name.ends_with(".weight") && !hf_name.contains("LayerNorm") && !hf_name.contains("embeddings")
}

/// The transpose of a matrix; other tensors as they are.
fn transpose(data: &TensorData) -> TensorData {
    let &[rows, columns] = &**data.shape() else {
        return data.clone();
    };
    let from = data.as_slice::<f32>().expect("weights are FP32");
    // In tiles, which stay in the cache while they are read by column.
    const TILE: usize = 32;
    let mut to = vec![0f32; rows * columns];
    for first_row in (0..rows).step_by(TILE) {
        let last_row = (first_row + TILE).min(rows);
        for first_column in (0..columns).step_by(TILE) {
            for column in first_column..(first_column + TILE).min(columns) {
                let to = &mut to[column * rows + first_row..column * rows + last_row];
                for (to, from) in
                    to.iter_mut().zip(from[first_row * columns + column..].iter().step_by(columns))
                {
                    *to = *from;
                }
            }
        }
    }
    TensorData::new(to, [columns, rows])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn names_are_transformers() {
        assert_eq!(to_hf("mlm.norm.gamma"), "cls.predictions.transform.LayerNorm.weight");
        assert_eq!(
            to_hf("bert.encoder.layers.3.attention.output.weight"),
            "bert.encoder.layer.3.attention.output.dense.weight"
        );
        assert_eq!(
            to_hf("bert.encoder.layers.0.feed_forward_norm.beta"),
            "bert.encoder.layer.0.output.LayerNorm.bias"
        );
        assert_eq!(canonical("embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
    }

    #[test]
    fn transposing_twice_is_the_identity() {
        let data = TensorData::new(vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let once = transpose(&data);
        assert_eq!(once, TensorData::new(vec![1f32, 4.0, 2.0, 5.0, 3.0, 6.0], [3, 2]));
        assert_eq!(transpose(&once), data);
        let large = TensorData::new((0..70 * 33).map(|i| i as f32).collect::<Vec<_>>(), [70, 33]);
        assert_eq!(transpose(&transpose(&large)), large);
    }

    #[test]
    fn a_saved_model_loads_with_the_same_bits() {
        let folder = std::env::temp_dir().join(format!("cloze-model-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let device = Device::flex();
        let config = BertConfig { d_ff: 24, ..BertConfig::new(31, 2, 16) };
        let model = config.init(&mut ParamInit::new(&device, 5));
        save_bert(&folder, &config, &model).unwrap();
        let (loaded_config, loaded, report) = load_bert(&folder, &mut ParamInit::new(&device, 6)).unwrap();
        assert_eq!(loaded_config, config);
        assert_eq!(report, LoadReport::default());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));

        // Over its own file: the mapped one stays whole.
        save_bert(&folder, &config, &loaded).unwrap();
        assert_eq!(weights::collect(&loaded), weights::collect(&model));

        // A tensor of another shape is named with both shapes, in the file's own layout.
        let wide = BertConfig { d_ff: 40, ..config };
        save_bert(&folder, &wide, &model).unwrap();
        let error = load_bert(&folder, &mut ParamInit::new(&device, 6)).unwrap_err().to_string();
        let expected = "tensor `bert.encoder.layer.0.intermediate.dense.weight` has shape [24, 16], \
                        the configuration asks for [40, 16]";
        assert!(error.ends_with(expected), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
