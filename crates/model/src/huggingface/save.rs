use super::config::to_json;
use super::convert::{overflows, stored_as};
use super::finite::first_non_finite;
use super::layout::{is_transposed, transpose};
use super::names::to_file;
use super::whole::write_text;
use super::{Architecture, FloatType, MAX_SHARD_SIZE, PretrainedConfig, ProblemType, save_tensors};
use crate::bert::BertConfig;
use crate::blocks::{MultiHeadAttention, attention_types};
use crate::weights::{self, NamedTensors};
use crate::{ModelError, Result};
use burn::module::Module;
use std::any::type_name;
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

impl SaveConfig {
    /// Whether [`save_pretrained`] can save a model of this encoder so: for a long run to ask before its first step.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the key that has to change: an encoder that does not fit together, or that
    /// transformers has no class for.
    pub fn check(&self, encoder: &BertConfig) -> Result<()> {
        to_json(encoder, self).map(drop)
    }
}

/// What was saved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaveReport {
    /// Parameters that transformers has no place for and that are saved under their paths in this crate, such
    /// as a conditional random field's.
    pub unknown: Vec<String>,
}

/// Saves a model of `encoder`'s family as `config.json` and `model.safetensors` or its shards, for the class of
/// transformers that `save` names, in `folder`, which is made where it is not there; it is one that [`Checkpoint::load_into`](super::Checkpoint::load_into) loads.
///
/// The masked-LM head's tied projection is stored once, as transformers does. Each file is written beside its
/// place and renamed, the weights first.
///
/// # Errors
/// Before anything is written: those of [`SaveConfig::check`]; [`ModelError::ForeignAttention`] for an attention of
/// your own, which the format cannot name; [`ModelError::NonFinite`] and [`ModelError::Narrowed`] for weights that are
/// not finite, or would not be as `save` has them stored. Then whatever goes wrong in writing.
pub fn save_pretrained<M: Module>(
    folder: &Path,
    model: &M,
    encoder: &BertConfig,
    save: &SaveConfig,
) -> Result<SaveReport> {
    let config = serde_json::to_string_pretty(&to_json(encoder, save)?).expect("plain values serialise");
    let own = type_name::<MultiHeadAttention>();
    if let Some(attention) = attention_types(model).into_iter().find(|attention| attention != own) {
        return Err(ModelError::ForeignAttention { attention });
    }
    let mut report = SaveReport::default();
    let mut tensors = NamedTensors::new();
    for (ours, data) in weights::collect(model) {
        let (name, known) = to_file(encoder.family, save.architecture, &ours);
        let data = if is_transposed(&ours) { transpose(&data) } else { data };
        if let Some((index, value)) = first_non_finite(&data) {
            return Err(ModelError::NonFinite { path: folder.into(), name, index, value });
        }
        let stored = stored_as(&data, save.dtype);
        if save.dtype != FloatType::F32 && overflows(&data, &stored) {
            return Err(ModelError::Narrowed { path: folder.into(), name, dtype: save.dtype.name() });
        }
        if !known {
            report.unknown.push(name.clone());
        }
        tensors.insert(name, stored);
    }
    save_tensors(folder, &tensors, save.max_shard_size)?;
    write_text(&folder.join("config.json"), &(config + "\n"))?;
    Ok(report)
}
