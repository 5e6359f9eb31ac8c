//! A fine-tuning run from the config to the saved model.

mod measure;
mod start;
mod steps;

use super::answers::AnswerTask;
use super::choices::ChoiceTask;
use super::config::{FineTuneConfig, TaskSection};
use super::prompt::PromptTask;
use super::reading::{Data, Reading, few, inputs_of};
use super::tags::TagTask;
use super::task::Task;
use super::texts::TextTask;
use crate::evaluation::figures::Figures;
use crate::metrics::progress::RunProgress;
use crate::metrics::{METRICS_FILE, curve, jsonl};
use crate::run::RunOptions;
use crate::run_folder::{RunFolder, write_whole};
use crate::training::Training;
use crate::{Result, TrainerError};
use cloze_data::labelled::{Buckets, LabelledSource, TagReport};
use cloze_model::bert::BertConfig;
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum FineTuned {
    /// The best model is saved in this Hugging Face folder.
    Done {
        /// The folder.
        model: PathBuf,
        /// Its figures on the development data, where there is any.
        dev: Option<Figures>,
        /// Its figures on the test data, where there is any.
        test: Option<Figures>,
    },
    /// It was stopped after this step, which has a checkpoint.
    Stopped {
        /// The last step made.
        step: u64,
    },
}

/// The figures of a run that has ended, as its folder keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub dev: Option<Figures>,
    pub test: Option<Figures>,
}

/// Fine-tunes a checkpoint as `config` says: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Whatever is wrong with the config's data, checkpoint, or run folder; a non-finite loss where the config says
/// to stop on one.
pub fn fine_tune(
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<FineTuned> {
    let folder = match options.resume {
        true => RunFolder::resume(&options.folder, config)?,
        false => RunFolder::create(&options.folder, config)?,
    };
    folder.check_inputs(inputs_of(config)?)?;
    forget(&folder.result())?;
    let tokenizer = Tokenizer::load(&config.model.path)?;
    let max_len = config.data.max_len;
    let reading = Reading { config, held_out: folder.held_out(), progress: &mut *progress };
    let begun = Begun { config, options, folder, tokenizer: &tokenizer };
    match &config.task {
        section @ (TaskSection::Classification { .. } | TaskSection::Regression { .. }) => {
            let (task, examples, skipped) = TextTask::read(section, &config.data.train)?;
            let encode = |examples| TextTask::encode(&tokenizer, examples, max_len);
            let select = |examples| few(config, task.labels.as_ref(), examples);
            let read = |source: &LabelledSource| task.read_more(source);
            let data = reading.selected::<TextTask>((examples, skipped), read, encode, select)?;
            begun.run(&task, data, progress)
        }
        section @ TaskSection::Answers { .. } => {
            let (task, examples, skipped) = AnswerTask::read(section, &config.data.train)?;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let data =
                reading.data::<AnswerTask>((examples, skipped), |source| task.read_more(source), encode)?;
            begun.run(&task, data, progress)
        }
        TaskSection::MultipleChoice {} => {
            let task = ChoiceTask;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let train = task.read(&config.data.train)?;
            let data = reading.data::<ChoiceTask>(train, |source| task.read(source), encode)?;
            begun.run(&task, data, progress)
        }
        TaskSection::Prompt(section) => {
            let task = PromptTask::new(section, &tokenizer, &config.model.path)?;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let select = |examples| few(config, Some(&task.labels), examples);
            let train = task.read(&config.data.train)?;
            let data = reading.selected::<PromptTask>(train, |source| task.read(source), encode, select)?;
            begun.run(&task, data, progress)
        }
        TaskSection::Tagging(section) => {
            let (task, examples, skipped) = TagTask::read(section, &config.data.train)?;
            let mut lost = TagReport::default();
            let encode = |examples| {
                let (encoded, report) = task.encode(&tokenizer, examples, max_len)?;
                lost.truncated_words += report.truncated_words;
                lost.vanished_words += report.vanished_words;
                Ok(encoded)
            };
            let data =
                reading.data::<TagTask>((examples, skipped), |source| task.read_more(source), encode)?;
            let TagReport { truncated_words, vanished_words, .. } = lost;
            if truncated_words + vanished_words > 0 {
                progress.note(&format!(
                    "words without a tag of the model's: {truncated_words} cut off, {vanished_words} \
                     without pieces"
                ));
            }
            begun.run(&task, data, progress)
        }
    }
}

/// What a run has before its task and data.
struct Begun<'a> {
    config: &'a FineTuneConfig,
    options: &'a RunOptions<'a>,
    folder: RunFolder,
    tokenizer: &'a Tokenizer,
}

impl Begun<'_> {
    fn run<T: Task>(self, task: &T, data: Data<T>, progress: &mut dyn RunProgress) -> Result<FineTuned> {
        let stop = self.options.stop;
        Run::start(self, task, data, progress)?.finish(stop, progress)
    }
}

/// Removes a file, if it is there.
fn forget(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TrainerError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// A run under way.
struct Run<'a, T: Task> {
    config: &'a FineTuneConfig,
    task: &'a T,
    folder: RunFolder,
    encoder: BertConfig,
    training: Training<T::Model>,
    data: Data<T>,
    buckets: Buckets,
    /// Steps of an epoch.
    epoch: u64,
    /// Steps of the whole run.
    steps: u64,
    tokenizer: &'a Tokenizer,
}

impl<T: Task> Run<'_, T> {
    /// Makes the steps that are left, and measures and reports what came of them.
    fn finish(mut self, stop: &AtomicBool, progress: &mut dyn RunProgress) -> Result<FineTuned> {
        let done = self.steps(stop, progress);
        progress.finish();
        if !done? {
            return Ok(FineTuned::Stopped { step: self.training.state.step });
        }
        // Nothing was measured: without development data, and without a step.
        if self.training.state.best.is_none() {
            self.export()?;
        }
        let model = self.folder.model();
        let best = self.best_model()?;
        let records = jsonl::read(&self.folder.path().join(METRICS_FILE))?;
        curve::draw(&self.folder.curve(), &self.config.run.name, &records)?;
        let mut measured = [None, None];
        for (place, split) in ["dev", "test"].into_iter().enumerate() {
            measured[place] = self.report(&best, split, progress)?;
        }
        let [dev, test] = measured;
        let ended = Ended { dev: dev.clone(), test: test.clone() };
        let text = serde_json::to_string_pretty(&ended).expect("figures are strings and numbers");
        write_whole(&self.folder.result(), (text + "\n").as_bytes())?;
        Ok(FineTuned::Done { model, dev, test })
    }
}
