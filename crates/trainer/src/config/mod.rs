//! A run's configuration: strict, layered, and complete once resolved.
//!
//! A config is merged from three layers, each overriding the previous one: the defaults and presets, the TOML
//! file, and the `--set section.key=value` arguments. The layers merge as tables, so that a layer sets only
//! what it changes; a table is replaced as a whole if its `kind` changes or if a `--set` gives a table. A
//! `preset` applies in the layer that names it: in a file, the file's other keys override it; in a `--set`, it
//! overrides the file. The merged table is then read strictly: an unknown key, a wrong type or a value out of
//! range is an error that names its location and what was expected. All unknown and all missing keys are named at
//! once.
//!
//! Configs may gain fields: none of their structs can be built as a literal outside this crate. Without a file,
//! build one with [`RunConfig::parse`] or [`FineTuneConfig::parse`](crate::finetune::FineTuneConfig::parse),
//! and set fields.
//!
//! Paths in a config are relative to the **current directory** of the process, not to the config's folder,
//! so that a config resolved into a run folder keeps its meaning.
//!
//! ```
//! use cloze_trainer::config::RunConfig;
//!
//! let config = RunConfig::load("../../configs/bert-tiny-sample.toml", &["model.preset=mini".to_owned()])?;
//! let model = config.model.as_new().expect("it names no checkpoint");
//! assert_eq!((model.n_layers, model.d_model), (4, 256));
//!
//! let typo = RunConfig::load("../../configs/bert-tiny-sample.toml", &["train.step=9".to_owned()]);
//! assert_eq!(
//!     typo.unwrap_err().to_string(),
//!     "--set train.step=9: unknown key `train.step`; did you mean `train.steps`?"
//! );
//! # Ok::<(), cloze_trainer::TrainerError>(())
//! ```

pub(crate) mod awd_lstm;
pub(crate) mod denoising;
pub(crate) mod elmo;
pub(crate) mod language_model;
pub(crate) mod languages;
pub(crate) mod layered;
mod layers;
mod mistakes;
mod objective;
mod output;
pub(crate) mod permutation;
mod run;
mod sections;
pub(crate) mod shards;
mod strict;
pub(crate) mod validate;

use std::collections::BTreeMap;

use cloze_data::{CorpusConfig, ExampleConfig};
use serde::{Deserialize, Serialize};

use crate::distillation::DistillationSection;
use crate::engine::folder_config::flatten;
pub use crate::engine::folder_config::{Difference, FolderConfig};
pub use crate::engine::{Averaging, CheckpointSection, LogSection, NonFinite, OptimizerSection, Precision};
use crate::error::{Place, Result, TrainerError};
pub use awd_lstm::{AwdLstmRun, AwdLstmRunConfig, AwdLstmSection, RegularisationSection};
pub use cloze_model::blocks::{Activation, NormPlacement, PositionKind};
pub use denoising::{DenoisingExamples, DenoisingRun, DenoisingRunConfig};
pub(crate) use elmo::OF_BYTES;
pub use elmo::{ElmoRun, ElmoRunConfig, ElmoSection};
pub use language_model::{
    HeldOut, LanguageModelConfig, LanguageModelEval, LanguageModelRun, LanguageModelSection,
    LanguageModelShape, NewLanguageModel, PretrainedLanguageModel,
};
pub use layered::ConfigFile;
use layers::{Node, TAG, Value};
pub use objective::ObjectiveSection;
pub use output::OutputSection;
pub use permutation::{
    NewXlnet, PermutationConfig, PermutationRun, PretrainedXlnet, SegmentSection, XlnetSection,
};
pub use run::{Common, Pace, Run};
pub use sections::{
    EvalSection, ModelPreset, ModelSection, NewModel, PretrainedModel, RunSection, TokenizerSection,
    TrainSection,
};
pub use validate::{Check, Complaint};

/// Configures a run that pretrains an encoder: any file that is of no other kind.
///
/// [`RunConfig::load`] resolves one from a file; [`RunConfig::to_toml`] writes it with every default and
/// preset spelled out, which reads back as the same config.
pub type RunConfig = Run<Pretraining>;

/// The sections of a [`RunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Pretraining {
    /// `[objective]`: what is predicted. Default masked tokens, and sentence pairs if examples have them.
    #[serde(default, skip_serializing_if = "ObjectiveSection::is_default")]
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary. Default the checkpoint's, with `model.path`.
    pub tokenizer: TokenizerSection,
    /// `[examples]`: sentence pairs and masking.
    pub examples: ExampleConfig,
    /// `[model]`: the encoder, new or a checkpoint's.
    pub model: ModelSection,
    /// `[train]`: steps and batches.
    pub train: TrainSection,
    /// `[distillation]`: a teacher of masked pieces. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distillation: Option<DistillationSection>,
    /// `[eval]`: held-out evaluation.
    #[serde(default)]
    pub eval: EvalSection,
}

/// Keys or key prefixes that do not affect the weights: a run may be resumed with other values of them.
pub(crate) const FREE_KEYS: [&str; 9] = [
    "run.name",
    "train.workers",
    "train.prefetch",
    "train.recompute",
    "eval.every",
    "eval.batch_size",
    "eval.max_examples",
    "checkpoint.",
    "log.",
];

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<RunConfig> {
    let mut merged = layered::merge(file, sets, expand_model)?;
    complete_model(&mut merged, &NEW_KEYS)?;
    strict::read(&merged, &known_keys(), |config: &mut RunConfig| {
        config.complete();
        validate::validate(config)
    })
}

impl RunConfig {
    /// The names of the languages that serve as the model's token types, in order; empty if token types are not
    /// languages.
    pub(crate) fn language_names(&self) -> Vec<String> {
        match self.model.has_language_embeddings() {
            true => self.corpus.languages.iter().map(|language| language.name.clone()).collect(),
            false => Vec::new(),
        }
    }

    /// Fills in values that depend on other keys.
    fn complete(&mut self) {
        if let ModelSection::New(model) = &mut self.model {
            model.complete();
        }
    }
}

/// The table `[model]` of a layer.
fn model_table(layer: &mut Node) -> Option<&mut BTreeMap<String, Node>> {
    layer.table_mut()?.get_mut("model")?.table_mut()
}

const NEW: &str = "new";
const PRETRAINED: &str = "pretrained";

/// Infers a layer's model `kind` from its keys.
fn mark_model(layer: &mut Node, kinds: &[(&str, &str)]) {
    let Some(model) = model_table(layer) else {
        return;
    };
    for (key, kind) in kinds {
        if let Some(place) = model.get(*key).map(|node| node.place.clone()) {
            model.entry(TAG.to_owned()).or_insert_with(|| Node::scalar(*kind, place));
        }
    }
}

/// Infers the kind of model from a layer's `model.path` or `model.preset`, and adds the preset's sizes below
/// the layer's own.
fn expand_model(layer: &mut Node) {
    mark_model(layer, &[("path", PRETRAINED), ("preset", NEW)]);
    let Some(model) = model_table(layer) else {
        return;
    };
    let Some(Node { value: Value::Scalar(toml::Value::String(name)), place, .. }) = model.get("preset")
    else {
        return;
    };
    // An unknown name is left for strict reading to refuse.
    let Some(preset) = ModelPreset::ALL.into_iter().find(|preset| preset.name() == name) else {
        return;
    };
    let place = place.clone();
    for (key, size) in preset.sizes() {
        model
            .entry(key.to_owned())
            .or_insert_with(|| Node::scalar(toml::Value::Integer(size as i64), place.clone()));
    }
}

/// Fills in implied values: a model without a `path` is new; one with a `path` has its own tokenizer and its
/// own sizes, so none of `new_keys`.
fn complete_model(merged: &mut Node, new_keys: &[&str]) -> Result<()> {
    let of_model = merged.place_of("model");
    // Without the section it is a new model, whose sizes are missing.
    if let Some(root) = merged.table_mut() {
        root.entry("model".to_owned()).or_insert_with(|| Node::empty(of_model.clone()));
    }
    let Some(model) = model_table(merged) else {
        return Ok(());
    };
    let kind = Value::Scalar(toml::Value::String(PRETRAINED.into()));
    if model.get(TAG).is_none_or(|node| node.value != kind) {
        model.entry(TAG.to_owned()).or_insert_with(|| Node::scalar(NEW, of_model));
        return Ok(());
    }
    // A preset before the sizes that it stands for.
    let of_new = ["preset"].into_iter().chain(model.keys().map(String::as_str));
    let own = [TAG, "path", "hidden_dropout", "attention_dropout", "language_embeddings"];
    let clash = of_new.filter(|key| !own.contains(key)).find_map(|key| Some((key, model.get(key)?)));
    // A misspelt key is left for strict reading to refuse.
    if let Some((key, node)) = clash.filter(|(key, _)| *key == "preset" || new_keys.contains(key)) {
        return Err(TrainerError::BadValue {
            place: node.place.clone(),
            key: format!("model.{key}"),
            found: strict::describe(node),
            expected: "it to be absent: `model.path` brings its own".into(),
        });
    }
    let place = model.get("path").map_or(of_model, |node| node.place.clone());
    if let Some(root) = merged.table_mut() {
        let own = || {
            let mut tokenizer = Node::empty(place.clone());
            if let Some(table) = tokenizer.table_mut() {
                table.insert(TAG.to_owned(), Node::scalar("checkpoint", place.clone()));
            }
            tokenizer
        };
        root.entry("tokenizer".to_owned()).or_insert_with(own);
    }
    Ok(())
}

/// The keys of a [`NewModel`] that a checkpoint determines.
const NEW_KEYS: [&str; 14] = [
    "family",
    "n_layers",
    "d_model",
    "n_heads",
    "d_ff",
    "d_embedding",
    "positions",
    "max_positions",
    "local_window",
    "global_every",
    "activation",
    "norm",
    "layer_norm_eps",
    "init_std",
];

/// A minimal config.
const MINIMAL: &str = r#"
run.name = "minimal"
corpus.files = ["corpus.txt"]
tokenizer = { kind = "train-wordpiece", vocab_size = 4096 }
examples = { seq_len = 64, pairs.kind = "next-sentence" }
model.preset = "tiny"
train = { steps = 100, batch_size = 8 }
optimizer.lr = 1e-3
schedule.kind = "linear"
"#;

/// Every dotted key of a resolved minimal config, so that a key in the wrong section gets the right suggestion.
fn known_keys() -> Vec<String> {
    let config = Node::parse(MINIMAL, &Place::argument("")).and_then(|mut node| {
        expand_model(&mut node);
        complete_model(&mut node, &NEW_KEYS)?;
        strict::read(&node, &[], |config: &mut RunConfig| {
            config.complete();
            Ok(())
        })
    });
    config.map_or_else(|_| Vec::new(), |config| flatten(&config).into_keys().collect())
}

#[cfg(test)]
mod tests;
