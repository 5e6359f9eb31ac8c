//! Recurrent classifiers and taggers, trained from scratch on labelled data: `[model.recurrent]` in place of a checkpoint;
//! classifiers with the encoder of an AWD-LSTM; and classifiers and taggers with an ELMo's.

mod awd_lstm;
mod elmo;
mod format;
mod fresh;
mod models;
pub(super) mod section;

use super::config::Tuning;
use super::kind::RecurrentTask;
use super::model_folder::{TASK_FILE, TaskFile};
use super::section::TaskSection;
use super::tags::Tags;
use super::task::bad_setting;
use super::task_model::{AnyTaskModel, TaskModel};
use super::task_run::TaskRun;
use super::texts::Texts;
use crate::engine::Outcome;
use crate::fit::check_vocabulary;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig};
use cloze_model::elmo::{ElmoClassifierConfig, ElmoConfig, ElmoTaggerConfig};
use cloze_model::huggingface::{Format, load_published, model_type};
use cloze_model::tasks::{RecurrentClassifierConfig, RecurrentTaggerConfig};
use cloze_tokenizer::Tokenizer;
pub(super) use fresh::check;
pub use section::RecurrentSection;
use std::path::Path;

/// The prefixes of these models' `model_type`.
const KINDS: [&str; 3] = ["cloze-recurrent", "cloze-awd-lstm", "cloze-elmo"];

/// What a recurrent model starts from.
pub(super) enum Body<'a> {
    /// Nothing.
    Fresh(&'a RecurrentSection),
    /// An AWD-LSTM's encoder.
    AwdLstm,
    /// An ELMo's layers.
    Elmo,
}

impl<'a> Body<'a> {
    /// The body of a run's model, if it is recurrent.
    pub fn of(config: Tuning<'a>) -> Option<Self> {
        if let Some(section) = &config.model.recurrent {
            return Some(Self::Fresh(section));
        }
        if config.model.path.as_os_str().is_empty() {
            return None;
        }
        // What is wrong with a folder is told by whoever loads it.
        match model_type(&config.model.path).ok().flatten()?.as_str() {
            kind if kind == AwdLstmConfig::MODEL_TYPES[0] => Some(Self::AwdLstm),
            kind if kind == ElmoConfig::MODEL_TYPES[0] => Some(Self::Elmo),
            _ => None,
        }
    }
}

/// Trains a recurrent model for a task, if it has any.
///
/// # Errors
/// Settings that such a model does not support; those of the checkpoint, of the data and of the run.
pub(super) fn fine_tune(
    body: Body<'_>,
    task: Option<RecurrentTask<'_>>,
    run: TaskRun<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    match body {
        Body::Fresh(section) => fresh::fine_tune(section, task, run, progress),
        Body::AwdLstm => awd_lstm::fine_tune(task, run, progress),
        Body::Elmo => elmo::fine_tune(task, run, progress),
    }
}

/// The model in a folder and its task, if the model is recurrent.
///
/// # Errors
/// A missing or damaged file in the folder; 8 bits, which recurrent layers do not support.
pub(super) fn open(
    folder: &Path,
    tokenizer: &Tokenizer,
    device: &Device,
    int8: bool,
) -> Result<Option<(TaskFile, Box<dyn AnyTaskModel>)>> {
    let found = model_type(folder)?;
    let is_of_awd_lstm = found.as_deref() == Some(AwdLstmClassifierConfig::MODEL_TYPES[0]);
    let is_of_elmo = found.as_deref().is_some_and(|found| found.starts_with("cloze-elmo"));
    if !found.is_some_and(|found| KINDS.iter().any(|kind| found.starts_with(kind))) {
        return Ok(None);
    }
    if int8 {
        return Err(bad_setting("int8", true, "false: the model is recurrent".into()));
    }
    let bad =
        |reason: &str| TrainerError::BadTaskFile { path: folder.join(TASK_FILE), reason: reason.into() };
    let file =
        TaskFile::read(folder)?.ok_or_else(|| bad("missing; expected the task of a recurrent model"))?;
    let init = &mut ParamInit::new(device, 0);
    let check = |pieces: usize, outputs: usize, expected: usize| {
        check_vocabulary(tokenizer, folder, pieces)?;
        match outputs == expected {
            true => Ok(()),
            false => Err(bad(&format!("a task of {expected} outputs; expected {outputs}, the model's"))),
        }
    };
    let is_text = matches!(
        file.task,
        TaskSection::Classification { .. } | TaskSection::MultiLabel { .. } | TaskSection::Regression { .. }
    );
    let model: Box<dyn AnyTaskModel> = match &file.task {
        _ if is_text && is_of_awd_lstm => {
            let task = Texts::saved(&file.task, file.pairs)?;
            let (config, model, _) = load_published::<AwdLstmClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_outputs, task.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        _ if is_text && is_of_elmo => {
            let task = Texts::saved(&file.task, file.pairs)?;
            let (config, model, _) = load_published::<ElmoClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size(), config.n_outputs, task.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        TaskSection::Tagging(section) if is_of_elmo => {
            let task = Tags::spelt_out(section)?;
            let (config, model, _) = load_published::<ElmoTaggerConfig>(folder, init)?;
            check(config.encoder.vocab_size(), config.n_tags, task.labels.len())?;
            let model = task.with_rules(model);
            Box::new(TaskModel { task, model })
        }
        TaskSection::Tagging(section) => {
            let task = Tags::spelt_out(section)?;
            let (config, model, _) = load_published::<RecurrentTaggerConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_tags, task.labels.len())?;
            let model = task.with_rules(model);
            Box::new(TaskModel { task, model })
        }
        _ if is_text => {
            let task = Texts::saved(&file.task, file.pairs)?;
            let (config, model, _) = load_published::<RecurrentClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_outputs, task.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        _ => return Err(bad("another task; expected classification, multi-label, regression or tagging")),
    };
    Ok(Some((file, model)))
}
