//! Classifiers and taggers that read all layers of an ELMo by a mix of their own (Peters et al. 2018, §3.2 and 3.3). Their kind
//! is told by the checkpoint's folder.

use super::super::config::{FineTuneConfig, TaskSection};
use super::super::model_folder::TaskFile;
use super::super::reading::{Reading, draw_shots};
use super::super::start::{Prepared, new_parameters, prepare_backbone};
use super::super::tags::{TagTask, TaggingSection};
use super::super::task::{Task, bad_setting};
use super::super::texts::TextTask;
use super::form::RecurrentForm;
use super::tags::RecurrentTags;
use super::texts::RecurrentTexts;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::finetune::TaskData;
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::labelled::LabelledSource;
use cloze_model::elmo::{ElmoClassifierConfig, ElmoConfig, ElmoEncoder, ElmoReaderConfig, ElmoTaggerConfig};
use cloze_model::huggingface::{Format, Published, load_published, model_type};
use cloze_model::{HasBackbone, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// Whether a folder has an ELMo.
pub(in crate::finetune) fn is_elmo(folder: &Path) -> bool {
    // What is wrong with a folder is told by whoever loads it.
    model_type(folder).ok().flatten().as_deref() == Some(ElmoConfig::MODEL_TYPES[0])
}

/// Trains a task's model on the ELMo in `model.path` as `config` says.
///
/// # Errors
/// Settings that such a model does not have; those of the checkpoint, of the data and of the run.
pub(in crate::finetune) fn fine_tune_elmo(
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    folder: RunFolder,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    check(config)?;
    let mut tokenizer = Tokenizer::load(&config.model.path)?;
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    let run = Run { config, options, folder, tokenizer: &tokenizer };
    match &config.task {
        TaskSection::Tagging(section) => run.tags(section, progress),
        _ => run.texts(progress),
    }
}

/// What a run is made of.
struct Run<'a> {
    config: &'a FineTuneConfig,
    options: &'a RunOptions<'a>,
    folder: RunFolder,
    tokenizer: &'a Tokenizer,
}

impl Run<'_> {
    fn texts(self, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let Self { config, tokenizer, .. } = self;
        let (task, examples, skipped) = TextTask::read(&config.task, &config.data.train)?;
        let (shape, encoder, mut init) = self.encoder()?;
        let mut shape = ElmoClassifierConfig::new(shape, task.n_outputs());
        self.put_dropout(&mut shape.reader);
        shape.validate()?;
        let model = match encoder {
            Some(encoder) => shape.init_with(encoder, &mut init),
            None => shape.init(&mut init),
        };
        let task = RecurrentTexts::from(task);
        let data = self.reading(progress).selected::<RecurrentTexts<_>>(
            (examples, skipped),
            |source: &LabelledSource| task.0.read_more(source),
            |examples| TextTask::encode(tokenizer, examples, config.data.max_len),
            |examples| draw_shots(config, task.0.labels.as_ref(), examples),
        )?;
        self.train(&task, data, shape, model, progress)
    }

    fn tags(self, section: &TaggingSection, progress: &mut dyn RunProgress) -> Result<Outcome> {
        let Self { config, tokenizer, .. } = self;
        let (task, examples, skipped) = TagTask::read(section, &config.data.train)?;
        let (shape, encoder, mut init) = self.encoder()?;
        let mut shape =
            ElmoTaggerConfig { crf: section.crf, ..ElmoTaggerConfig::new(shape, task.labels.len()) };
        self.put_dropout(&mut shape.reader);
        shape.validate()?;
        let model = match encoder {
            Some(encoder) => shape.init_with(encoder, &mut init),
            None => shape.init(&mut init),
        };
        let task = RecurrentTags::from(task);
        let model = task.with_rules(model);
        let data = self.reading(progress).data::<RecurrentTags<_>>(
            (examples, skipped),
            |source: &LabelledSource| task.0.read_more(source),
            |examples| Ok(task.0.encode(tokenizer, examples, config.data.max_len)?.0),
        )?;
        self.train(&task, data, shape, model, progress)
    }

    fn reading<'p>(&'p self, progress: &'p mut dyn RunProgress) -> Reading<'p> {
        Reading { config: self.config, held_out: self.folder.held_out(), progress }
    }

    /// The checkpoint's encoder, if the run begins with its weights, and what new parameters are drawn with.
    fn encoder(&self) -> Result<(ElmoConfig, Option<ElmoEncoder>, ParamInit)> {
        let (config, path) = (self.config, &self.config.model.path);
        let device = self.options.device.clone().autodiff();
        let (mut shape, elmo, _) = load_published::<ElmoConfig>(path, &mut ParamInit::new(&device, 0))?;
        if self.tokenizer.vocab_size() > shape.vocab_size() {
            let (tokenizer, model) = (self.tokenizer.vocab_size(), shape.vocab_size());
            return Err(TrainerError::VocabularyMismatch { folder: path.clone(), tokenizer, model });
        }
        let mut encoder = elmo.encoder;
        shape.dropout = config.model.dropout.hidden.unwrap_or(shape.dropout);
        encoder.dropout = shape.dropout;
        let init = new_parameters(config, &device);
        Ok((shape, Some(encoder).filter(|_| !config.model.untrained), init))
    }

    fn put_dropout(&self, reader: &mut ElmoReaderConfig) {
        reader.dropout = self.config.model.dropout.head.unwrap_or(reader.dropout);
    }

    fn train<T, C>(
        self,
        task: &T,
        data: TaskData<T>,
        shape: C,
        model: C::Model,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome>
    where
        T: Task<Model = C::Model>,
        C: Published<Model: HasBackbone> + Send + Sync + 'static,
    {
        let Self { config, options, folder, tokenizer } = self;
        let file = TaskFile { task: task.section(), max_len: config.data.max_len, pairs: task.pairs() };
        let form = Box::new(RecurrentForm { config: shape, tokenizer, file });
        let origin = match config.model.untrained {
            true => ["all".into(), String::new()],
            false => ["reader.*, output.*".into(), "the language model's output.*".into()],
        };
        let Prepared { recipe, model, settings } =
            prepare_backbone(config, task, data, model, form, origin, progress)?;
        train_in(&folder, &recipe, model, &settings, options, progress)
    }
}

/// Refuses what such a model does not have.
fn check(config: &FineTuneConfig) -> Result<()> {
    let (model, train) = (&config.model, &config.train);
    let refuse = |key: &str, found: &dyn std::fmt::Display, expected: &str| {
        Err(bad_setting(key, found, format!("{expected}: `model.path` is an ELMo")))
    };
    match &config.task {
        TaskSection::Tagging(_) => {}
        TaskSection::Classification { pooling, .. }
        | TaskSection::MultiLabel { pooling, .. }
        | TaskSection::Regression { pooling, .. } => {
            if let Some(pooling) = pooling {
                return refuse("task.pooling", &format!("{pooling:?}"), "none");
            }
        }
        _ => return refuse("task.kind", &"another", "classification, multi-label, regression or tagging"),
    }
    if let Some(dropout) = model.dropout.attention {
        return refuse("model.dropout.attention", &dropout, "none, but `hidden` or `head`");
    }
    if model.lora.is_some() {
        return refuse("model.lora", &"a table", "none");
    }
    if train.recompute {
        return refuse("train.recompute", &true, "false");
    }
    Ok(())
}
