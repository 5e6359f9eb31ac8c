//! The values a fine-tuning config may have, beyond their types.

use super::config::{FineTuneConfig, TaskSection};
use super::tags::TaggingSection;
use crate::config::validate::{
    Check, at_least, below_one, ensure, final_fraction, not_negative, optimizer, positive,
};

/// Checks every value of `config` and how they go together; the first complaint is returned.
pub(super) fn validate(config: &FineTuneConfig) -> Check {
    task(config)?;
    model(config)?;
    data(config)?;
    let train = &config.train;
    // Only a prompt says something without having been trained.
    let least = u64::from(!matches!(config.task, TaskSection::Prompt(_)));
    at_least(least, "train.epochs", train.epochs)?;
    at_least(1, "train.batch_size", train.batch_size)?;
    optimizer(&config.optimizer)?;
    final_fraction(&config.schedule)?;
    at_least(1, "eval.per_epoch", config.eval.per_epoch)?;
    if let Some(patience) = config.eval.patience {
        at_least(1, "eval.patience", patience)?;
        let has_dev = !config.data.dev.is_empty() || config.data.dev_fraction.is_some();
        ensure(
            has_dev,
            "eval.patience",
            patience,
            "none without `data.dev` or `data.dev_fraction` to measure with",
        )?;
    }
    Ok(())
}

fn task(config: &FineTuneConfig) -> Check {
    match &config.task {
        TaskSection::Classification { label_smoothing, class_weights, .. } => {
            loss(*label_smoothing, class_weights)
        }
        TaskSection::Tagging(tagging) => tags(tagging),
        TaskSection::Answers { max_answer, n_best, null_threshold, .. } => {
            at_least(1, "task.max_answer", *max_answer)?;
            at_least(1, "task.n_best", *n_best)?;
            let threshold = null_threshold.unwrap_or(0.0);
            ensure(threshold.is_finite(), "task.null_threshold", threshold, "a number")
        }
        TaskSection::Prompt(_) => {
            let head = config.model.dropout.head;
            let expected = "none: the masked-LM head has no dropout";
            ensure(head.is_none(), "model.dropout.head", head.unwrap_or(0.0), expected)
        }
        TaskSection::Regression { .. } | TaskSection::MultipleChoice {} => Ok(()),
    }
}

fn tags(tagging: &TaggingSection) -> Check {
    let TaggingSection { crf, crf_lr_scale, label_smoothing, class_weights, .. } = tagging;
    loss(*label_smoothing, class_weights)?;
    let with_crf = |what: &str| format!("{what} with `task.crf`, whose loss is of whole sentences");
    ensure(!crf || *label_smoothing == 0.0, "task.label_smoothing", label_smoothing, with_crf("0"))?;
    let weights = format!("{class_weights:?}");
    ensure(!crf || class_weights.is_empty(), "task.class_weights", weights, with_crf("none"))?;
    not_negative("task.crf_lr_scale", *crf_lr_scale)
}

fn loss(label_smoothing: f64, class_weights: &[f32]) -> Check {
    below_one("task.label_smoothing", label_smoothing)?;
    for weight in class_weights {
        not_negative("task.class_weights", f64::from(*weight))?;
    }
    let counts = class_weights.is_empty() || class_weights.iter().any(|weight| *weight > 0.0);
    ensure(counts, "task.class_weights", format!("{class_weights:?}"), "a number above 0 among them")
}

fn model(config: &FineTuneConfig) -> Check {
    let decay = config.model.layer_decay.unwrap_or(1.0);
    ensure(decay > 0.0 && decay <= 1.0, "model.layer_decay", decay, "a number above 0, at most 1")?;
    match &config.model.lora {
        None => Ok(()),
        Some(lora) => {
            at_least(1, "model.lora.rank", lora.rank)?;
            positive("model.lora.alpha", lora.alpha)?;
            below_one("model.lora.dropout", lora.dropout)
        }
    }
}

fn data(config: &FineTuneConfig) -> Check {
    let data = &config.data;
    at_least(1, "data.max_len", data.max_len)?;
    if let Some(shots) = data.shots {
        at_least(1, "data.shots", shots)?;
        let has_classes = matches!(config.task, TaskSection::Classification { .. } | TaskSection::Prompt(_));
        ensure(has_classes, "data.shots", shots, "a task with a class for each example")?;
    }
    if let Some(share) = data.dev_fraction {
        let key = "data.dev_fraction";
        ensure(share > 0.0 && share < 1.0, key, format!("{share:e}"), "a number above 0 and below 1")?;
        ensure(data.dev.is_empty(), key, share, "nothing beside `data.dev` (`data.dev=[]` leaves that out)")?;
    }
    Ok(())
}
