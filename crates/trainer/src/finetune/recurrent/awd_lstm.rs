//! ULMFiT's third stage: a classifier on the encoder of a language model (Howard & Ruder 2018, §3.3),
//! recognised by the checkpoint's folder.
//!
//! Deviation: gradients flow through whole texts, truncated to the maximum length, whereas the paper's BPTT for
//! text classification covers only their last parts.

use super::super::config::Tuning;
use super::super::kind::RecurrentTask;
use super::super::start::new_parameters;
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
use cloze_model::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig, AwdLstmForSequenceClassification};
use cloze_model::huggingface::load_published;
use cloze_tokenizer::Tokenizer;

/// Fine-tunes the language model in `model.path`.
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
    let Some(RecurrentTask::Texts(section)) = task else {
        let expected = "classification, multi-label or regression: `model.path` is an AWD-LSTM";
        return Err(bad_setting("task.kind", "another", expected.into()));
    };
    let tokenizer = for_any_length(run.tokenizer()?)?;
    let (task, train) = Texts::<AwdLstmForSequenceClassification>::read(section, &config.data.train)?;
    let (shape, model, origin) = model(config, task.n_outputs(), &tokenizer, &run.options.device)?;
    let data = task.data(train, &tokenizer, &run, progress)?;
    let format = RecurrentFormat::of(shape, &tokenizer, &task, config.data.max_len);
    let distillation = run.teacher::<_, TextTask>(&task, &data, progress)?;
    run.train_backbone(&task, data, model, format, origin, distillation, progress)
}

/// The classifier, its new parameters, and the checkpoint's unused ones.
fn model(
    config: Tuning<'_>,
    n_outputs: usize,
    tokenizer: &Tokenizer,
    device: &Device,
) -> Result<(AwdLstmClassifierConfig, AwdLstmForSequenceClassification, [String; 2])> {
    let path = &config.model.path;
    let device = device.clone().autodiff();
    let (mut encoder, language_model, _) =
        load_published::<AwdLstmConfig>(path, &mut ParamInit::new(&device, 0))?;
    check_vocabulary(tokenizer, path, encoder.vocab_size)?;
    // A classifier predicts no pieces.
    let unused = if encoder.output.take().is_some() { "adaptive.*" } else { "output_bias" };
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
    Ok((shape, model, ["head.*".into(), unused.into()]))
}

/// Rejects settings that such a model does not support.
fn check(task: Option<RecurrentTask<'_>>, config: Tuning<'_>) -> Result<()> {
    let (model, train) = (&config.model, &config.train);
    let refuse = |key: &str, found: &dyn std::fmt::Display, expected: &str| {
        Err(bad_setting(key, found, format!("{expected}: `model.path` is an AWD-LSTM")))
    };
    if let Some(pooling) = task.and_then(RecurrentTask::pooling) {
        return refuse("task.pooling", &format!("{pooling:?}"), "none");
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
    if model.layers.is_some() {
        return refuse("model.layers", &"given", "none");
    }
    if train.recompute {
        return refuse("train.recompute", &true, "false");
    }
    Ok(())
}
