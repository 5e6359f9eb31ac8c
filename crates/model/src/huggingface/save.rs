use super::config::to_json;
use super::layout::{is_transposed, transpose};
use super::names::to_file;
use super::{Architecture, FloatType, MAX_SHARD_SIZE, PretrainedConfig, ProblemType, save_tensors};
use crate::bert::BertConfig;
use crate::{ModelError, Result, weights};
use burn::module::Module;
use burn::tensor::{DType, TensorData};
use std::fs;
use std::path::Path;

/// What a saved folder says of a model besides its encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct SaveConfig {
    /// Which class of transformers is to load it.
    pub architecture: Architecture,
    /// The classes that the head tells apart, in the order of its outputs; none to say nothing.
    pub labels: Vec<String>,
    /// What the labels are.
    pub problem_type: Option<ProblemType>,
    /// Dropout in heads, of this architecture and of others that are put on the encoder later; what is not
    /// here is the family's default.
    pub head_dropouts: Vec<(Architecture, f64)>,
    /// The name of the task that the model was trained for.
    pub finetuning_task: Option<String>,
    /// What the weights are stored as.
    pub dtype: FloatType,
    /// The size that a file of weights may grow to, in bytes, before there is another.
    pub max_shard_size: usize,
}

impl SaveConfig {
    /// FP32, and nothing else to say.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            labels: Vec::new(),
            problem_type: None,
            head_dropouts: Vec::new(),
            finetuning_task: None,
            dtype: FloatType::F32,
            max_shard_size: MAX_SHARD_SIZE,
        }
    }
}

/// As the checkpoint was: saving what was loaded gives the same tensors bit for bit, half precisions too.
impl From<&PretrainedConfig> for SaveConfig {
    fn from(config: &PretrainedConfig) -> Self {
        Self {
            architecture: config.architecture,
            labels: config.labels.clone(),
            problem_type: config.problem_type,
            head_dropouts: config.head_dropouts.clone(),
            finetuning_task: config.finetuning_task.clone(),
            dtype: config.dtype,
            max_shard_size: MAX_SHARD_SIZE,
        }
    }
}

/// What was saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaveReport {
    /// Parameters that transformers has no place for and that are saved under their paths in this crate, such
    /// as a conditional random field's.
    pub unknown: Vec<String>,
}

/// Saves a model of `encoder`'s family as `config.json` and `model.safetensors` or its shards, for the class of transformers
/// that `save` names; it is one that [`Checkpoint::load_into`](super::Checkpoint::load_into) loads.
///
/// The masked-LM head's tied projection is stored once, as transformers does. Each file is written beside its
/// place and renamed, the weights first.
///
/// # Errors
/// [`ModelError::Config`] for an encoder that transformers cannot build, and whatever goes wrong in writing.
pub fn save_pretrained<M: Module>(
    folder: &Path,
    model: &M,
    encoder: &BertConfig,
    save: &SaveConfig,
) -> Result<SaveReport> {
    let config = serde_json::to_string_pretty(&to_json(encoder, save)?).expect("plain values serialise");
    let mut report = SaveReport::default();
    let tensors = weights::collect(model)
        .into_iter()
        .map(|(ours, data)| {
            let (theirs, known) = to_file(encoder.family, save.architecture, &ours);
            if !known {
                report.unknown.push(theirs.clone());
            }
            let data = if is_transposed(&ours) { transpose(&data) } else { data };
            (theirs, stored_as(data, save.dtype))
        })
        .collect();
    save_tensors(folder, &tensors, save.max_shard_size)?;
    let path = folder.join("config.json");
    let partial = path.with_extension("partial");
    fs::write(&partial, config + "\n")
        .and_then(|()| fs::rename(&partial, &path))
        .map_err(|source| ModelError::Io { path, source })?;
    Ok(report)
}

fn stored_as(data: TensorData, dtype: FloatType) -> TensorData {
    match dtype {
        FloatType::F32 => data,
        FloatType::F16 => data.convert_dtype(DType::F16),
        FloatType::Bf16 => data.convert_dtype(DType::BF16),
    }
}
