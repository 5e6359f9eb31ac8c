//! Recurrent classifiers and taggers, trained from scratch on labelled data: `[model.recurrent]` in place of a checkpoint;
//! classifiers with the encoder of an AWD-LSTM; and classifiers and taggers with an ELMo's.

mod awd_lstm;
mod elmo;
mod form;
mod predict;
mod section;
mod tags;
mod texts;

use super::config::{FineTuneConfig, FineTuneRun, TaskSection};
use super::model_folder::{TASK_FILE, TaskFile};
use super::predictor::{AnyTaskModel, TaskModel};
use super::reading::{Reading, draw_shots};
use super::start::{Prepared, new_parameters, prepare_new};
use super::tags::TagTask;
use super::task::{Task, bad_setting};
use super::texts::TextTask;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
pub(super) use awd_lstm::{fine_tune_awd_lstm, is_awd_lstm};
use burn::tensor::Device;
use cloze_data::labelled::{LabelledSource, TaggedSentence, TextExample, TokenSequence};
use cloze_model::awd_lstm::AwdLstmClassifierConfig;
use cloze_model::elmo::{ElmoClassifierConfig, ElmoTaggerConfig};
use cloze_model::huggingface::{Format, Published, load_published, model_type};
use cloze_model::tasks::{RecurrentClassifierConfig, RecurrentTaggerConfig};
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::Tokenizer;
pub(super) use elmo::{fine_tune_elmo, is_elmo};
use form::RecurrentForm;
pub use section::RecurrentSection;
use std::path::Path;
use tags::RecurrentTags;
use texts::RecurrentTexts;

/// What the `model_type` of these models begins with.
const KINDS: [&str; 3] = ["cloze-recurrent", "cloze-awd-lstm", "cloze-elmo"];

/// What a run is made of.
struct Run<'a> {
    config: &'a FineTuneConfig,
    section: &'a RecurrentSection,
    options: &'a RunOptions<'a>,
    folder: RunFolder,
}

/// Trains a recurrent model as `config` says.
///
/// # Errors
/// Those of reading the data and the tokenizer; of the run.
pub(super) fn fine_tune(
    config: &FineTuneConfig,
    section: &RecurrentSection,
    options: &RunOptions<'_>,
    folder: RunFolder,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let run = Run { config, section, options, folder };
    match &config.task {
        TaskSection::Tagging(_) => run.tags(progress),
        _ => run.texts(progress),
    }
}

impl Run<'_> {
    fn reading<'p>(&'p self, progress: &'p mut dyn RunProgress) -> Reading<'p> {
        Reading { config: self.config, held_out: self.folder.held_out(), progress }
    }

    fn texts(self, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let FineTuneRun { task: section, data, .. } = &self.config.kind;
        let (task, examples, skipped) = TextTask::read(section, &data.train)?;
        let texts = |example: &TextExample| [Some(example.text.clone()), example.pair.clone()];
        let tokenizer = self.section.tokenizer(examples.iter().flat_map(texts).flatten(), progress)?;
        let model = self.section.classifier(tokenizer.vocab_size(), task.n_outputs());
        let task = RecurrentTexts::from(task);
        let data = self.reading(progress).selected::<RecurrentTexts<_>>(
            (examples, skipped),
            |source: &LabelledSource| task.0.read_more(source),
            |examples| TextTask::encode(&tokenizer, examples, data.max_len),
            |examples| draw_shots(self.config, task.0.labels.as_ref(), examples),
        )?;
        self.train(&task, data, &tokenizer, model, |model| model, progress)
    }

    fn tags(self, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let FineTuneRun { task: section, data, .. } = &self.config.kind;
        let TaskSection::Tagging(section) = section else {
            return Err(bad_setting("task.kind", "another", "tagging".into()));
        };
        let (task, examples, skipped) = TagTask::read(section, &data.train)?;
        let texts = |sentence: &TaggedSentence| sentence.words.join(" ");
        let tokenizer = self.section.tokenizer(examples.iter().map(texts), progress)?;
        let model = self.section.tagger(tokenizer.vocab_size(), task.labels.len(), section.crf);
        let task = RecurrentTags::from(task);
        let data = self.reading(progress).data::<RecurrentTags<_>>(
            (examples, skipped),
            |source: &LabelledSource| task.0.read_more(source),
            |examples| Ok(task.0.encode(&tokenizer, examples, data.max_len)?.0),
        )?;
        self.train(&task, data, &tokenizer, model, |model| task.with_rules(model), progress)
    }

    fn train<T, C>(
        self,
        task: &T,
        data: super::TaskData<T>,
        tokenizer: &Tokenizer,
        config: C,
        finish: impl FnOnce(C::Model) -> C::Model,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome>
    where
        T: Task<Model = C::Model>,
        C: Published + Send + Sync + 'static,
    {
        let device = self.options.device.clone().autodiff();
        let model = finish(config.init(&mut new_parameters(self.config, &device)));
        let max_len = self.config.data.max_len;
        let file = TaskFile { task: task.section(), max_len, pairs: task.pairs() };
        let form = Box::new(RecurrentForm { config, tokenizer, file });
        let Prepared { recipe, model, settings } =
            prepare_new(self.config, task, data, model, form, progress)?;
        train_in(&self.folder, &recipe, model, &settings, self.options, progress)
    }
}

/// The model in a folder and its task, if it is one of these.
///
/// # Errors
/// Whatever is missing or damaged in the folder; 8 bits, which recurrent layers do not multiply in.
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
        if tokenizer.vocab_size() > pieces {
            let tokenizer = tokenizer.vocab_size();
            return Err(TrainerError::VocabularyMismatch { folder: folder.into(), tokenizer, model: pieces });
        }
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
            let task = RecurrentTexts::from(TextTask::saved(&file.task, file.pairs)?);
            let (config, model, _) = load_published::<AwdLstmClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_outputs, task.0.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        _ if is_text && is_of_elmo => {
            let task = RecurrentTexts::from(TextTask::saved(&file.task, file.pairs)?);
            let (config, model, _) = load_published::<ElmoClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size(), config.n_outputs, task.0.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        TaskSection::Tagging(section) if is_of_elmo => {
            let task = RecurrentTags::from(TagTask::spelt_out(section)?);
            let (config, model, _) = load_published::<ElmoTaggerConfig>(folder, init)?;
            check(config.encoder.vocab_size(), config.n_tags, task.0.labels.len())?;
            let model = task.with_rules(model);
            Box::new(TaskModel { task, model })
        }
        TaskSection::Tagging(section) => {
            let task = RecurrentTags::from(TagTask::spelt_out(section)?);
            let (config, model, _) = load_published::<RecurrentTaggerConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_tags, task.0.labels.len())?;
            let model = task.with_rules(model);
            Box::new(TaskModel { task, model })
        }
        _ if is_text => {
            let task = RecurrentTexts::from(TextTask::saved(&file.task, file.pairs)?);
            let (config, model, _) = load_published::<RecurrentClassifierConfig>(folder, init)?;
            check(config.encoder.vocab_size, config.n_outputs, task.0.n_outputs())?;
            Box::new(TaskModel { task, model })
        }
        _ => return Err(bad("another task; expected classification, multi-label, regression or tagging")),
    };
    Ok(Some((file, model)))
}

/// What the encoder reads.
fn sequences<'a>(all: impl IntoIterator<Item = &'a TokenSequence>) -> Sequences {
    all.into_iter().map(|sequence| sequence.input_ids.as_slice()).collect()
}
