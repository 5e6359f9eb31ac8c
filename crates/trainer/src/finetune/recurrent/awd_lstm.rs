//! ULMFiT's third stage: a classifier with the encoder of a language model (Howard & Ruder 2018, §3.3). Its kind is told by
//! the checkpoint's folder.
//!
//! Deviation: gradients go through whole texts, cut to the greatest length, where the paper's BPTT for text classification
//! goes through their last parts.

use super::super::config::{FineTuneConfig, TaskSection};
use super::super::model_folder::TaskFile;
use super::super::reading::{Reading, draw_shots};
use super::super::start::{Prepared, new_parameters, prepare_backbone};
use super::super::task::{Task, bad_setting};
use super::super::texts::TextTask;
use super::form::RecurrentForm;
use super::texts::RecurrentTexts;
use crate::engine::run_folder::RunFolder;
use crate::engine::{Outcome, RunOptions, train_in};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::labelled::LabelledSource;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig, AwdLstmForSequenceClassification};
use cloze_model::huggingface::{Format, load_published, model_type};
use cloze_tokenizer::Tokenizer;
use std::path::Path;

/// Whether a folder has an AWD-LSTM language model.
pub(in crate::finetune) fn is_awd_lstm(folder: &Path) -> bool {
    // What is wrong with a folder is told by whoever loads it.
    model_type(folder).ok().flatten().as_deref() == Some(AwdLstmConfig::MODEL_TYPES[0])
}

/// Fine-tunes the language model in `model.path` as `config` says.
///
/// # Errors
/// Settings that such a model does not have; those of the checkpoint, of the data and of the run.
pub(in crate::finetune) fn fine_tune_awd_lstm(
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    folder: RunFolder,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    check(config)?;
    let mut tokenizer = Tokenizer::load(&config.model.path)?;
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    let (task, examples, skipped) = TextTask::read(&config.task, &config.data.train)?;
    let task = RecurrentTexts::<AwdLstmForSequenceClassification>::from(task);
    let (shape, model, origin) = model(config, task.0.n_outputs(), &tokenizer, options)?;
    let reading = Reading { config, held_out: folder.held_out(), progress };
    let data = reading.selected::<RecurrentTexts<_>>(
        (examples, skipped),
        |source: &LabelledSource| task.0.read_more(source),
        |examples| TextTask::encode(&tokenizer, examples, config.data.max_len),
        |examples| draw_shots(config, task.0.labels.as_ref(), examples),
    )?;
    let file = TaskFile { task: task.section(), max_len: config.data.max_len, pairs: task.pairs() };
    let form = Box::new(RecurrentForm { config: shape, tokenizer: &tokenizer, file });
    let Prepared { recipe, model, settings } =
        prepare_backbone(config, &task, data, model, form, origin, progress)?;
    train_in(&folder, &recipe, model, &settings, options, progress)
}

/// The classifier, what of it is new, and what of the checkpoint it does not use.
fn model(
    config: &FineTuneConfig,
    n_outputs: usize,
    tokenizer: &Tokenizer,
    options: &RunOptions<'_>,
) -> Result<(AwdLstmClassifierConfig, AwdLstmForSequenceClassification, [String; 2])> {
    let path = &config.model.path;
    let device = options.device.clone().autodiff();
    let (encoder, language_model, _) =
        load_published::<AwdLstmConfig>(path, &mut ParamInit::new(&device, 0))?;
    if tokenizer.vocab_size() > encoder.vocab_size {
        let (tokenizer, model) = (tokenizer.vocab_size(), encoder.vocab_size);
        return Err(TrainerError::VocabularyMismatch { folder: path.clone(), tokenizer, model });
    }
    let mut shape = AwdLstmClassifierConfig::new(encoder, n_outputs);
    if let Some(dropout) = config.model.dropout.head {
        (shape.head_dropout, shape.inner_dropout) = (dropout, dropout);
    }
    shape.validate()?;
    let mut init = new_parameters(config, &device);
    if config.model.untrained {
        let model = shape.init(&mut init);
        return Ok((shape, model, ["all".into(), String::new()]));
    }
    let model = AwdLstmForSequenceClassification {
        encoder: language_model.encoder,
        head: shape.init_head(&mut init),
    };
    Ok((shape, model, ["head.*".into(), "output_bias".into()]))
}

/// Refuses what such a model does not have.
fn check(config: &FineTuneConfig) -> Result<()> {
    let (model, train) = (&config.model, &config.train);
    let refuse = |key: &str, found: &dyn std::fmt::Display, expected: &str| {
        Err(bad_setting(key, found, format!("{expected}: `model.path` is an AWD-LSTM")))
    };
    match &config.task {
        TaskSection::Classification { pooling, .. }
        | TaskSection::MultiLabel { pooling, .. }
        | TaskSection::Regression { pooling, .. } => {
            if let Some(pooling) = pooling {
                return refuse("task.pooling", &format!("{pooling:?}"), "none");
            }
        }
        _ => return refuse("task.kind", &"another", "classification, multi-label or regression"),
    }
    for (key, dropout) in [("hidden", model.dropout.hidden), ("attention", model.dropout.attention)] {
        if let Some(dropout) = dropout {
            return refuse(&format!("model.dropout.{key}"), &dropout, "none, but `model.dropout.head`");
        }
    }
    if let Some(language) = &config.data.language {
        return refuse("data.language", &format!("\"{language}\""), "none");
    }
    if model.lora.is_some() {
        return refuse("model.lora", &"a table", "none");
    }
    if train.recompute {
        return refuse("train.recompute", &true, "false");
    }
    Ok(())
}
