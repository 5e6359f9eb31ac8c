//! Classifiers and taggers on a learned mix of all layers of an ELMo (Peters et al. 2018, §3.2 and 3.3),
//! recognised by the checkpoint's folder.

use super::super::config::Tuning;
use super::super::kind::RecurrentTask;
use super::super::start::new_parameters;
use super::super::tags::{TagTask, Tags};
use super::super::task::bad_setting;
use super::super::task_run::TaskRun;
use super::super::texts::{TextTask, Texts};
use super::format::RecurrentFormat;
use super::section::for_any_length;
use crate::Result;
use crate::engine::Outcome;
use crate::fit::check_vocabulary;
use crate::metrics::progress::RunProgress;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::elmo::{
    ElmoClassifierConfig, ElmoConfig, ElmoEncoder, ElmoForSequenceClassification, ElmoForTokenClassification,
    ElmoReaderConfig, ElmoTaggerConfig,
};
use cloze_model::huggingface::load_published;
use cloze_tokenizer::Tokenizer;

/// Trains a task's model on the ELMo in `model.path`.
///
/// # Errors
/// Settings that such a model does not support; those of the checkpoint, of the data and of the run.
pub(super) fn fine_tune(
    task: Option<RecurrentTask<'_>>,
    run: TaskRun<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let config = run.config;
    check(task, config)?;
    let (tokenizer, max_len) = (for_any_length(run.tokenizer()?)?, config.data.max_len);
    let put_dropout = |reader: &mut ElmoReaderConfig| {
        reader.dropout = config.model.dropout.head.unwrap_or(reader.dropout);
    };
    let origin = match config.model.untrained {
        true => ["all".into(), String::new()],
        false => ["reader.*, output.*".into(), "the language model's output.*".into()],
    };
    match task {
        Some(RecurrentTask::Tags(section)) => {
            let (task, train) = Tags::<ElmoForTokenClassification>::read(section, &config.data.train)?;
            let (shape, encoder, mut init) = encoder(config, &tokenizer, &run.options.device)?;
            let mut shape =
                ElmoTaggerConfig { crf: section.crf, ..ElmoTaggerConfig::new(shape, task.labels.len()) };
            put_dropout(&mut shape.reader);
            shape.validate()?;
            let model = task.with_rules(shape.init_with(encoder, &mut init));
            let data = task.data(train, &tokenizer, &run, progress)?;
            let format = RecurrentFormat::of(shape, &tokenizer, &task, max_len);
            let distillation = run.teacher::<_, TagTask>(&task, &data, progress)?;
            run.train_backbone(&task, data, model, format, origin, distillation, progress)
        }
        Some(RecurrentTask::Texts(section)) => {
            let (task, train) = Texts::<ElmoForSequenceClassification>::read(section, &config.data.train)?;
            let (shape, encoder, mut init) = encoder(config, &tokenizer, &run.options.device)?;
            let mut shape = ElmoClassifierConfig::new(shape, task.n_outputs());
            put_dropout(&mut shape.reader);
            shape.validate()?;
            let model = shape.init_with(encoder, &mut init);
            let data = task.data(train, &tokenizer, &run, progress)?;
            let format = RecurrentFormat::of(shape, &tokenizer, &task, max_len);
            let distillation = run.teacher::<_, TextTask>(&task, &data, progress)?;
            run.train_backbone(&task, data, model, format, origin, distillation, progress)
        }
        None => {
            let expected = "classification, multi-label, regression or tagging: `model.path` is an ELMo";
            Err(bad_setting("task.kind", "another", expected.into()))
        }
    }
}

/// The checkpoint's encoder, newly initialised if the config ignores its weights, and the initialiser of new
/// parameters.
fn encoder(
    config: Tuning<'_>,
    tokenizer: &Tokenizer,
    device: &Device,
) -> Result<(ElmoConfig, ElmoEncoder, ParamInit)> {
    let path = &config.model.path;
    let device = device.clone().autodiff();
    let (mut shape, elmo, _) = load_published::<ElmoConfig>(path, &mut ParamInit::new(&device, 0))?;
    check_vocabulary(tokenizer, path, shape.vocab_size())?;
    shape.dropout = config.model.dropout.hidden.unwrap_or(shape.dropout);
    shape.validate()?;
    let mut init = new_parameters(config, &device);
    let mut encoder = elmo.encoder;
    encoder.dropout = shape.dropout;
    if config.model.untrained {
        encoder = shape.init_encoder(&mut init);
    }
    Ok((shape, encoder, init))
}

/// Rejects settings that such a model does not support.
fn check(task: Option<RecurrentTask<'_>>, config: Tuning<'_>) -> Result<()> {
    let (model, train) = (&config.model, &config.train);
    let refuse = |key: &str, found: &dyn std::fmt::Display, expected: &str| {
        Err(bad_setting(key, found, format!("{expected}: `model.path` is an ELMo")))
    };
    if let Some(pooling) = task.and_then(RecurrentTask::pooling) {
        return refuse("task.pooling", &format!("{pooling:?}"), "none");
    }
    if let Some(dropout) = model.dropout.attention {
        return refuse("model.dropout.attention", &dropout, "none, but `hidden` or `head`");
    }
    if model.lora.is_some() {
        return refuse("model.lora", &"a table", "none");
    }
    if model.layers.is_some() {
        return refuse("model.layers", &"given", "none");
    }
    if train.recompute {
        return refuse("train.recompute", &true, "false");
    }
    Ok(())
}
