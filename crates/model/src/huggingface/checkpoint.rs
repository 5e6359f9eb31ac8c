use super::layout::{is_transposed, transpose};
use super::names::{canonical, tied, to_file};
use super::{Architecture, MappedTensors, PretrainedConfig, tensors_of};
use crate::bert::BertConfig;
use crate::{ModelError, Result, weights};
use burn::module::Module;
use burn::tensor::TensorData;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

/// What did not go from a checkpoint's tensors into a model's parameters one to one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Parameters that the checkpoint lacks and that keep their initial values, by their names in files of the
    /// model's architecture; each was declared new.
    pub missing: Vec<String>,
    /// Tensors that the model has no place for, by their names in the checkpoint.
    pub unexpected: Vec<String>,
}

/// A Hugging Face folder that is open for reading: its configuration and its tensors.
///
/// The weights stay in their file, see [`map_tensors`](super::map_tensors), but for the linear maps' matrices,
/// which are transposed into memory.
///
/// ```no_run
/// # use burn::tensor::Device;
/// # use cloze_model::{ParamInit, Result, huggingface::Checkpoint};
/// # fn main() -> Result<()> {
/// let checkpoint = Checkpoint::open("distilbert-base-uncased".as_ref())?;
/// let architecture = checkpoint.config.architecture;
/// let encoder = checkpoint.encoder(architecture);
/// let model = encoder.init_encoder(&mut ParamInit::new(&Device::flex(), 42).deferred());
/// let (model, report) = checkpoint.load_into(model, architecture, &[])?;
/// assert!(report.missing.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    /// What `config.json` says.
    pub config: PretrainedConfig,
    folder: PathBuf,
    tensors: MappedTensors,
}

impl Checkpoint {
    /// Opens a folder with `config.json` and weights.
    ///
    /// # Errors
    /// Those of [`PretrainedConfig::read`] and [`tensors_of`].
    pub fn open(folder: &Path) -> Result<Self> {
        let config = PretrainedConfig::read(&folder.join("config.json"))?;
        Ok(Self { config, folder: folder.into(), tensors: tensors_of(folder)? })
    }

    /// The encoder for a model of `architecture`: with a pooler where transformers' class has one, and for the
    /// bare encoder only if the checkpoint has it.
    pub fn encoder(&self, architecture: Architecture) -> BertConfig {
        let family = self.config.encoder.family;
        let has_pooler = || self.tensors.floats.keys().any(|name| canonical(name).starts_with("pooler."));
        let pooler =
            architecture.has_pooler(family) && (architecture != Architecture::Encoder || has_pooler());
        BertConfig { pooler, ..self.config.encoder.clone() }
    }

    /// Puts the tensors into `model`, a [`Bert`](crate::bert::Bert) or a model whose encoder is its field `bert`.
    ///
    /// Names are those of `architecture` in the checkpoint's family, with or without a prefix, in the spelling of
    /// any time. A parameter whose path matches a pattern of `new` may be missing and then keeps its value;
    /// in a pattern `*` stands for any characters, as in `head.*`. Make the model of
    /// [deferred](crate::ParamInit::deferred) parameters, which draw no values that are replaced.
    ///
    /// # Errors
    /// [`ModelError::MissingTensors`], [`ModelError::Shape`]; [`ModelError::Config`] for a pattern that is none
    /// and for a masked-LM head whose projection is not the embedding table.
    pub fn load_into<M: Module>(
        self,
        model: M,
        architecture: Architecture,
        new: &[&str],
    ) -> Result<(M, LoadReport)> {
        let Self { config, folder: path, tensors: MappedTensors { floats, others } } = self;
        let new = patterns(new)?;
        let family = config.encoder.family;
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
        if architecture.has_mlm() {
            if !config.tied {
                return Err(ModelError::Config(format!(
                    "{}: `tie_word_embeddings` is false, expected a projection that is the embedding table",
                    path.join("config.json").display()
                )));
            }
            // Whichever of the two is there will do; a copy that is not one is left over.
            for (copy, original) in tied(family) {
                match (found.remove(&copy), found.get(&original)) {
                    (Some(copy), None) => _ = found.insert(original, copy),
                    (Some((_, data)), Some((_, same))) if data == *same => {}
                    (Some(other), Some(_)) => _ = found.insert(copy, other),
                    (None, _) => {}
                }
            }
        }

        let mut tensors = Vec::new();
        let mut missing = Vec::new();
        for (ours, shape) in weights::shapes(&model) {
            let (theirs, _) = to_file(family, architecture, &ours);
            match found.remove(&canonical(&theirs)) {
                Some((name, data)) => {
                    let transposed = is_transposed(&ours);
                    let expected = if transposed { shape.into_iter().rev().collect() } else { shape };
                    if data.shape().as_slice() != expected {
                        let found = data.shape().to_vec();
                        return Err(ModelError::Shape { path, name, expected, found });
                    }
                    tensors.push((ours, data, transposed));
                }
                None if new.iter().any(|pattern| pattern.matches(&ours)) => report.missing.push(theirs),
                None => missing.push((theirs, ours)),
            }
        }
        if !missing.is_empty() {
            missing.sort();
            let (names, mut parameters): (_, Vec<_>) = missing.into_iter().unzip();
            return Err(ModelError::MissingTensors { path, names, parameter: parameters.swap_remove(0) });
        }
        report.unexpected.extend(found.into_values().map(|(name, _)| name));
        report.unexpected.sort();
        report.missing.sort();
        let tensors = tensors
            .into_par_iter()
            .map(|(ours, data, transposed)| (ours, if transposed { transpose(&data) } else { data }))
            .collect::<Vec<_>>();
        Ok((weights::replace(model, tensors.into_iter().collect()), report))
    }
}

fn patterns(new: &[&str]) -> Result<Vec<glob::Pattern>> {
    let parse = |pattern: &&str| {
        glob::Pattern::new(pattern)
            .map_err(|error| ModelError::Config(format!("`{pattern}` is no pattern of parameters: {error}")))
    };
    new.iter().map(parse).collect()
}
