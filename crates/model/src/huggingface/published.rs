//! Models whose configuration is not BERT's, in folders of the same format: decoders, encoder–decoders, and this
//! crate's own. Each family is one file in `families/` that implements [`Format`] for its configuration.

use super::fields::Fields;
use super::finite::first_non_finite;
use super::float_type::{FloatType, overflows, stored_as};
use super::folder::has_weights;
use super::generation::GENERATION;
use super::keys::CONFIG_KEYS;
use super::names::listed;
use super::reports::{LoadReport, SaveReport};
use super::text_file::write_text;
use super::transfer::Transfer;
use super::{MAX_SHARD_SIZE, TensorRules, save_tensors, tensors_of};
use crate::blocks::{LinearMaps, set_integers};
use crate::weights::{self, NamedTensors};
use crate::{ModelError, ParamInit, Result};
use burn::module::Module;
use burn::tensor::TensorData;
use serde_json::{Map, Value};
use std::path::Path;

/// A model configuration that can be stored in a folder's `config.json`.
pub trait Published: Format {
    /// The model that it builds.
    type Model: Module + LinearMaps;

    /// A new model.
    fn init(&self, init: &mut ParamInit) -> Self::Model;
}

/// How a folder stores a configuration and its model's parameters. Crates other than this one cannot implement it; use
/// [`TensorRules`] for other architectures.
pub trait Format: Sized {
    /// The accepted values of `model_type` in `config.json`; the first is written.
    const MODEL_TYPES: &'static [&'static str];

    /// Reads the configuration. Missing keys have transformers' defaults.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a value that this crate does not support, by its name in the file.
    #[doc(hidden)]
    fn read(fields: &Fields) -> Result<Self>;

    /// Adds the configuration, with `architectures`, to a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for a configuration that the format cannot express.
    #[doc(hidden)]
    fn write(&self, config: &mut Map<String, Value>) -> Result<()>;

    /// The same configuration with an output projection of its own in place of the embedding table; none if there is no such
    /// model.
    #[doc(hidden)]
    fn untied(&self) -> Option<Self> {
        None
    }

    /// How the file's tensors become the model's parameters.
    #[doc(hidden)]
    fn rules(&self) -> TensorRules;

    /// Tensors by which sizes are checked before a model is made, with the shapes that the configuration asks for: those of
    /// the last layer, and of what takes memory without being a parameter.
    #[doc(hidden)]
    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        Vec::new()
    }

    /// Patterns of parameters that a file may lack, which then keep their initial values.
    #[doc(hidden)]
    fn optional(&self) -> &'static [&'static str] {
        &[]
    }

    /// Tensors that a file may hold although the model computes them, and their required values.
    #[doc(hidden)]
    fn constants(&self) -> Vec<Constant> {
        Vec::new()
    }

    /// The contents of `generation_config.json`, if there should be one.
    #[doc(hidden)]
    fn generation(&self) -> Option<Map<String, Value>> {
        None
    }
}

/// A tensor that a file may hold although the model computes it.
pub struct Constant {
    /// Its name in the file.
    pub(super) name: String,
    /// Its shape.
    pub(super) shape: Vec<usize>,
    /// Computes what it must be.
    pub(super) values: Box<dyn Fn() -> Vec<f32>>,
}

/// Reads the configuration in a folder. A projection of its own that the folder's weights have counts, whatever
/// `tie_word_embeddings` says: transformers 5 computes with it, and 4 does not.
///
/// # Errors
/// [`ModelError::Io`] and [`ModelError::Json`] for a file that cannot be read, [`ModelError::Config`] for another kind
/// of model or a value that this crate does not support.
pub fn read_published<C: Format>(folder: &Path) -> Result<C> {
    let fields = Fields::read(&folder.join("config.json"))?;
    match fields.text("model_type")? {
        Some(found) if C::MODEL_TYPES.contains(&found) => {
            let config = C::read(&fields)?;
            CONFIG_KEYS.check_left_over(&fields)?;
            let untied = config.untied().filter(|_| has_weights(folder));
            let Some(untied) = untied else { return Ok(config) };
            let found = config
                .rules()
                .own_projection(&tensors_of(folder)?.floats, |copy| copy.ends_with(OUTPUT_PROJECTION));
            tell_own_projection(folder, found.as_ref());
            Ok(if found.is_some() { untied } else { config })
        }
        found => {
            let found = found.map_or(Value::Null, Value::from);
            Err(fields.refuse("model_type", &found, &listed(C::MODEL_TYPES.iter().copied())))
        }
    }
}

/// The output projection of left-to-right models and encoder–decoders.
const OUTPUT_PROJECTION: &str = "lm_head.weight";

/// Warns that a model computes with an output projection of its own.
pub(super) fn tell_own_projection(folder: &Path, names: Option<&(String, String)>) {
    if let Some((own, table)) = names {
        let folder = folder.display();
        tracing::warn!(
            "{folder}: the output projection is `{own}` of the file, which differs from `{table}`"
        );
    }
}

/// The `model_type` in a folder's `config.json`, if it has one: it tells as which configuration to read it.
///
/// # Errors
/// [`ModelError::Io`] and [`ModelError::Json`] for a file that cannot be read.
pub fn model_type(folder: &Path) -> Result<Option<String>> {
    Ok(Fields::read(&folder.join("config.json"))?.text("model_type")?.map(str::to_string))
}

/// Reads a folder's configuration and weights.
///
/// # Errors
/// Those of [`read_published`] and of [`TensorRules::load`].
pub fn load_published<C: Published>(
    folder: &Path,
    init: &mut ParamInit,
) -> Result<(C, C::Model, LoadReport)> {
    let config: C = read_published(folder)?;
    let (model, report) = load_published_as(&config, folder, init)?;
    Ok((config, model, report))
}

/// Loads a folder's weights into a model of `config`, which may differ from the folder's in what is no parameter, such
/// as dropout.
///
/// # Errors
/// Those of [`TensorRules::load`]; [`ModelError::Weights`] for a tensor that differs from what the model computes
/// instead.
pub fn load_published_as<C: Published>(
    config: &C,
    folder: &Path,
    init: &mut ParamInit,
) -> Result<(C::Model, LoadReport)> {
    let (rules, mut tensors) = (config.rules(), tensors_of(folder)?);
    for (name, expected) in config.telling() {
        let mut found = tensors.shapes();
        let found = found.find(|(found, _)| rules.canonical(found) == rules.canonical(&name));
        match found.map(|(_, shape)| shape) {
            Some(found) if found == expected => (),
            Some(found) => return Err(ModelError::Shape { path: folder.into(), name, expected, found }),
            None => {
                let reason = format!("tensor `{name}` is missing, which the configuration asks for");
                return Err(ModelError::Weights { path: folder.into(), reason });
            }
        }
    }
    let model = config.init(&mut init.deferred());
    for Constant { name, shape, values } in config.constants() {
        let found =
            tensors.floats.keys().find(|found| rules.canonical(found) == rules.canonical(&name)).cloned();
        let Some((name, found)) = found.and_then(|found| tensors.floats.remove_entry(&found)) else {
            continue;
        };
        // Nothing is computed that is larger than what was read.
        if found.shape().to_vec() != shape {
            let found = found.shape().to_vec();
            return Err(ModelError::Shape { path: folder.into(), name, expected: shape, found });
        }
        if !is_close(&found, &values()) {
            let reason = format!("tensor `{name}` differs from what the model computes instead");
            return Err(ModelError::Weights { path: folder.into(), reason });
        }
    }
    let (mut model, report, integers) = rules.put(model, folder, tensors, config.optional())?;
    set_integers(&mut model, "", integers);
    Ok((model, report))
}

/// Whether two tensors of a shape are equal up to rounding, also in half precision.
fn is_close(found: &TensorData, expected: &[f32]) -> bool {
    found.iter::<f32>().zip(expected).all(|(found, expected)| (found - expected).abs() <= 1e-2)
}

/// Checks that [`save_published`] can save such a model, before the first step of a long run.
///
/// # Errors
/// [`ModelError::Setting`] with the key that has to change.
pub fn check_published<C: Format>(config: &C) -> Result<()> {
    to_json(config, FloatType::F32).map(drop)
}

/// Saves a model as `config.json` and `model.safetensors` or its shards in `folder`, which is created if necessary.
/// Each file is written under a temporary name and renamed, the weights first.
///
/// # Errors
/// Before anything is written: [`ModelError::Setting`] for a configuration that the format cannot express;
/// [`ModelError::NonFinite`] and [`ModelError::Narrowed`] for weights that are not finite, or would not be as `dtype`.
/// Then any error in writing.
pub fn save_published<C: Published>(
    folder: &Path,
    model: &C::Model,
    config: &C,
    dtype: FloatType,
) -> Result<SaveReport> {
    let json = serde_json::to_string_pretty(&to_json(config, dtype)?).expect("plain values serialise");
    let (tensors, report) = stored_tensors(folder, model, &config.rules(), dtype)?;
    save_tensors(folder, &tensors, MAX_SHARD_SIZE)?;
    if let Some(generation) = config.generation() {
        let json = serde_json::to_string_pretty(&generation).expect("plain values serialise");
        write_text(&folder.join(GENERATION), &(json + "\n"))?;
    }
    write_text(&folder.join("config.json"), &(json + "\n"))?;
    Ok(report)
}

fn to_json<C: Format>(config: &C, dtype: FloatType) -> Result<Value> {
    let mut map = Map::new();
    map.insert("model_type".into(), C::MODEL_TYPES[0].into());
    config.write(&mut map)?;
    map.insert("torch_dtype".into(), dtype.name().into());
    Ok(Value::Object(map))
}

/// A model's tensors by their names in a file, as `dtype`; `folder` is their destination, for errors.
pub(super) fn stored_tensors<M: Module>(
    folder: &Path,
    model: &M,
    rules: &TensorRules,
    dtype: FloatType,
) -> Result<(NamedTensors, SaveReport)> {
    let mut report = SaveReport::default();
    let mut tensors = NamedTensors::new();
    let mut parameters = weights::collect(model);
    let shapes: Vec<(String, Vec<usize>)> =
        parameters.iter().map(|(path, data)| (path.clone(), data.shape().to_vec())).collect();
    for transfer in Transfer::all(rules, &shapes)? {
        for (name, data) in transfer.store(&mut parameters) {
            if let Some((index, value)) = first_non_finite(&data) {
                return Err(ModelError::NonFinite { path: folder.into(), name, index, value });
            }
            let stored = stored_as(&data, dtype);
            if dtype != FloatType::F32 && overflows(&data, &stored) {
                return Err(ModelError::Narrowed { path: folder.into(), name, dtype: dtype.name() });
            }
            if !transfer.known {
                report.unknown.push(name.clone());
            }
            tensors.insert(name, stored);
        }
    }
    rules.add_copies(&mut tensors);
    Ok((tensors, report))
}
