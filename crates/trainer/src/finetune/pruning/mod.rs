//! Taking heads, neurons and layers out of a trained model for good, by their importance on its training data.
//!
//! The outputs of the smaller model are those of the whole one with zeros in place of what was removed. Training with
//! masks is the affair of `[pruning]` in a configuration.

mod choice;
mod importance;
mod job;
mod layers;

pub use importance::{Importance, importance};
pub(super) use job::Job;

use super::config::FineTuneRun;
use super::kind::TaskSettings;
use super::model_folder::TaskFile;
use super::predictor::kind_of;
use super::section::TaskSection;
use super::task::bad_setting;
use super::task_run::TaskRun;
use crate::Result;
use crate::config::Run;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions};
use crate::metrics::progress::RunProgress;
use cloze_evaluation::figures::Figures;
use cloze_model::bert::Removal;
use cloze_model::huggingface::PretrainedConfig;
use cloze_tokenizer::Tokenizer;
use std::cell::RefCell;
use std::path::Path;

/// How much is removed from a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PruneConfig {
    /// The share of all heads, from 0 to below 1. The least important of all layers are removed, but each layer keeps
    /// one.
    pub heads: f64,
    /// The share of each layer's neurons, from 0 to below 1.
    pub neurons: f64,
    /// The layers to keep, counted from 0, in order.
    pub layers: Option<Vec<usize>>,
    /// How many layers stay. Those go first whose absence costs the least development loss, one after another.
    pub n_layers: Option<usize>,
    /// Whether all shapes stay, with zeros in place of what is removed.
    pub padded: bool,
    /// How many training examples the importance is measured on, evenly spaced in the data.
    pub examples: usize,
    /// The share of all heads, and of each layer's neurons, that is removed before the importance is measured anew.
    pub per_round: f64,
}

impl Default for PruneConfig {
    /// Nothing is removed; a tenth a round, by 1,024 examples.
    fn default() -> Self {
        Self {
            heads: 0.0,
            neurons: 0.0,
            layers: None,
            n_layers: None,
            padded: false,
            examples: 1_024,
            per_round: 0.1,
        }
    }
}

impl PruneConfig {
    /// Checks the values that depend on no model.
    ///
    /// # Errors
    /// [`TrainerError::Setting`](crate::TrainerError::Setting) with the option's name.
    pub fn check(&self) -> Result<()> {
        for (key, share) in [("--heads", self.heads), ("--neurons", self.neurons)] {
            if !(0.0..1.0).contains(&share) {
                return Err(bad_setting(key, share, "a share of 0 or more and below 1, such as 0.5".into()));
            }
        }
        if !(self.per_round > 0.0 && self.per_round <= 1.0) {
            let expected = "a share above 0, at most 1".into();
            return Err(bad_setting("--per-round", self.per_round, expected));
        }
        for (key, n) in [("--examples", self.examples), ("--n-layers", self.n_layers.unwrap_or(1))] {
            if n == 0 {
                return Err(bad_setting(key, n, "at least 1".into()));
            }
        }
        Ok(())
    }
}

/// What was removed from a model, and what it cost.
#[derive(Debug, Clone)]
pub struct PruneReport {
    /// The layers that stay, by their numbers in the whole model.
    pub layers: Vec<usize>,
    /// For each removed layer, in order, the development loss without it.
    pub layer_losses: Vec<(usize, f64)>,
    /// The importance of all heads and neurons before any was removed; none if none were to be.
    pub importance: Option<Importance>,
    /// The heads and neurons removed, by layer.
    pub removal: Removal,
    /// How often the importance was measured.
    pub rounds: usize,
    /// The parameters of before and after.
    pub parameters: [usize; 2],
    /// The figures on the development data of before and after; none without such data.
    pub figures: Option<[Figures; 2]>,
}

/// The task of a model, with its labels in the order of the head's outputs; none if the folder does not say it, as that of
/// an embedding model.
fn task_of(model: &Path) -> Result<Option<TaskFile>> {
    if let Some(file) = TaskFile::read(model)? {
        return Ok(Some(file));
    }
    let (config, tokenizer) = (PretrainedConfig::read(&model.join("config.json"))?, Tokenizer::load(model)?);
    Ok(TaskFile::of_config(model, &config, &tokenizer).ok())
}

/// Removes heads, neurons and layers from the model in `model` and writes the smaller one to `out`, with everything
/// that is needed to use it. Data and task are those of `config`; the labels and the settings of the task are the
/// model's own. `options.folder` is for working files.
///
/// # Errors
/// Shares that leave no head or neuron; a model of another task, without a trained head, or whose layers share their
/// parameters; those of reading model and data.
pub fn prune(
    config: &Run<FineTuneRun<TaskSection>>,
    model: &Path,
    out: &Path,
    pruning: &PruneConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<PruneReport> {
    pruning.check()?;
    let mut config = config.clone();
    let run = &mut config.kind;
    run.model.path = model.into();
    // Nothing is trained.
    run.model.recurrent = None;
    run.model.untrained = false;
    run.model.layers = None;
    run.model.lora = None;
    run.distillation = None;
    run.pruning = None;
    if let Some(file) = task_of(model)? {
        let (of_model, of_config) = (kind_of(&file.task), kind_of(&run.task));
        if of_model != of_config {
            let expected = format!("{of_model}, the task of the model in {}", model.display());
            return Err(bad_setting("task.kind", of_config, expected));
        }
        // An embedding's losses belong to the data.
        if !matches!(file.task, TaskSection::Embedding(_)) {
            run.task = file.task;
        }
    }
    let folder = RunFolder::open(&options.folder, &config, false)?;
    let job = Job { config: pruning, out, report: RefCell::new(None) };
    let run = TaskRun { config: config.tuning(), options, folder, pruning: Some(&job) };
    let _: Outcome = config.task.kind().tune(run, progress)?;
    job.report.into_inner().ok_or_else(|| {
        bad_setting("task.kind", kind_of(&config.task), "a task whose models have an encoder".into())
    })
}
