//! Classifiers and taggers trained from scratch.

use super::super::config::Tuning;
use super::super::kind::RecurrentTask;
use super::super::start::new_parameters;
use super::super::tags::{TagTask, Tags};
use super::super::task::bad_setting;
use super::super::task_run::TaskRun;
use super::super::texts::{TextTask, Texts};
use super::format::RecurrentFormat;
use super::section::RecurrentSection;
use crate::Result;
use crate::config::validate::{Check, ensure};
use crate::engine::Outcome;
use crate::metrics::progress::RunProgress;
use cloze_data::labelled::{TaggedSentence, TextExample};
use cloze_model::tasks::{
    DropoutOverrides, RecurrentForSequenceClassification, RecurrentForTokenClassification,
};

/// The tasks that recurrent models support.
const TASKS: &str = "classification, multi-label, regression or tagging with `[model.recurrent]`";

/// Checks `[model.recurrent]` and the keys it excludes.
pub(in crate::finetune) fn check(
    section: &RecurrentSection,
    task: Option<RecurrentTask<'_>>,
    config: Tuning<'_>,
) -> Check {
    let (model, train) = (&config.model, &config.train);
    ensure(task.is_some(), "task.kind", "another", TASKS)?;
    if let Some(pooling) = task.and_then(RecurrentTask::pooling) {
        let expected = "none with `[model.recurrent]`, which has its own `pooling`";
        return ensure(false, "task.pooling", format!("{pooling:?}"), expected);
    }
    let none = "nothing with `[model.recurrent]`, which has no checkpoint";
    ensure(!model.untrained, "model.untrained", true, none)?;
    ensure(model.dropout == DropoutOverrides::default(), "model.dropout", "a table", none)?;
    ensure(model.freeze.is_empty(), "model.freeze", model.freeze.join(", "), none)?;
    ensure(model.freeze_layers.is_none(), "model.freeze_layers", model.freeze_layers.unwrap_or(0), none)?;
    ensure(model.layer_decay.is_none(), "model.layer_decay", model.layer_decay.unwrap_or(1.0), none)?;
    ensure(!model.gradual_unfreezing, "model.gradual_unfreezing", true, none)?;
    ensure(model.lora.is_none(), "model.lora", "a table", none)?;
    ensure(model.layers.is_none(), "model.layers", "given", none)?;
    ensure(!train.recompute, "train.recompute", true, "false with `[model.recurrent]`")?;
    section.check(matches!(task, Some(RecurrentTask::Tags(_))))
}

/// Trains a recurrent model from scratch.
///
/// # Errors
/// Those of reading the data and the tokenizer; of the run.
pub(super) fn fine_tune(
    section: &RecurrentSection,
    task: Option<RecurrentTask<'_>>,
    run: TaskRun<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let config = run.config;
    let max_len = config.data.max_len;
    let init = &mut new_parameters(config, &run.options.device.clone().autodiff());
    match task {
        Some(RecurrentTask::Texts(of)) => {
            let (task, train) = Texts::<RecurrentForSequenceClassification>::read(of, &config.data.train)?;
            let texts = |example: &TextExample| [Some(example.text.clone()), example.pair.clone()];
            let tokenizer = section.tokenizer(train.examples.iter().flat_map(texts).flatten(), progress)?;
            let shape = section.classifier(tokenizer.vocab_size(), task.n_outputs());
            let data = task.data(train, &tokenizer, &run, progress)?;
            let model = shape.init(init);
            let format = RecurrentFormat::of(shape, &tokenizer, &task, max_len);
            let distillation = run.teacher::<_, TextTask>(&task, &data, progress)?;
            run.train_student(&task, data, model, format, distillation, progress)
        }
        Some(RecurrentTask::Tags(of)) => {
            let (task, train) = Tags::<RecurrentForTokenClassification>::read(of, &config.data.train)?;
            let texts = |sentence: &TaggedSentence| sentence.words.join(" ");
            let tokenizer = section.tokenizer(train.examples.iter().map(texts), progress)?;
            let shape = section.tagger(tokenizer.vocab_size(), task.labels.len(), of.crf);
            let data = task.data(train, &tokenizer, &run, progress)?;
            let model = task.with_rules(shape.init(init));
            let format = RecurrentFormat::of(shape, &tokenizer, &task, max_len);
            let distillation = run.teacher::<_, TagTask>(&task, &data, progress)?;
            run.train_student(&task, data, model, format, distillation, progress)
        }
        None => Err(bad_setting("task.kind", "another", TASKS.into())),
    }
}
