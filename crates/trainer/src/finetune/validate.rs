//! The values a fine-tuning config may have, beyond their types.

use super::config::Tuning;
use crate::config::validate::{
    Check, at_least, averaging, below_one, ensure, final_fraction, not_negative, optimizer, positive,
};

/// Checks every value of `config` and how they go together; the first complaint is returned.
pub(super) fn validate(config: Tuning<'_>) -> Check {
    config.task.check(config)?;
    model(config)?;
    data(config)?;
    let train = &config.train;
    // Only a prompt says something without having been trained.
    let least = u64::from(config.task.needs_training());
    at_least(least, "train.epochs", train.epochs)?;
    at_least(1, "train.batch_size", train.batch_size)?;
    at_least(1, "train.batch_tokens", train.batch_tokens.unwrap_or(1))?;
    at_least(1, "train.accumulate", train.accumulate)?;
    optimizer(&config.common.optimizer)?;
    final_fraction(&config.common.schedule)?;
    at_least(1, "eval.per_epoch", config.eval.per_epoch)?;
    let has_dev = !config.data.dev.is_empty() || config.data.dev_fraction.is_some();
    averaging(config.common.average.as_ref(), has_dev)?;
    if let Some(patience) = config.eval.patience {
        at_least(1, "eval.patience", patience)?;
        ensure(
            has_dev,
            "eval.patience",
            patience,
            "it to be absent: it requires `data.dev` or `data.dev_fraction`",
        )?;
    }
    Ok(())
}

/// Checks what a cross-entropy is told of smoothing and of classes' weights.
pub(super) fn check_loss(label_smoothing: f64, class_weights: &[f32]) -> Check {
    below_one("task.label_smoothing", label_smoothing)?;
    for weight in class_weights {
        not_negative("task.class_weights", f64::from(*weight))?;
    }
    let counts = class_weights.is_empty() || class_weights.iter().any(|weight| *weight > 0.0);
    ensure(counts, "task.class_weights", format!("{class_weights:?}"), "a number above 0 among them")
}

fn model(config: Tuning<'_>) -> Check {
    let section = &config.model;
    let has_path = !section.path.as_os_str().is_empty();
    if let Some(recurrent) = &section.recurrent {
        ensure(!has_path, "model.path", section.path.display(), "none beside `[model.recurrent]`")?;
        return recurrent.check(config);
    }
    ensure(
        has_path || !config.task.needs_checkpoint(),
        "model.path",
        "missing",
        "a checkpoint's folder, or `[model.recurrent]` instead",
    )?;
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

fn data(config: Tuning<'_>) -> Check {
    let data = &config.data;
    at_least(1, "data.max_len", data.max_len)?;
    if let Some(language) = data.language.as_ref().filter(|_| config.model.recurrent.is_some()) {
        let expected = "no such key with `[model.recurrent]`, which has no language embeddings";
        ensure(false, "data.language", format!("\"{language}\""), expected)?;
    }
    if let Some(shots) = data.shots {
        at_least(1, "data.shots", shots)?;
        ensure(config.task.has_classes(), "data.shots", shots, "a task with a class for each example")?;
    }
    if let Some(share) = data.dev_fraction {
        let key = "data.dev_fraction";
        ensure(share > 0.0 && share < 1.0, key, format!("{share:e}"), "a number above 0 and below 1")?;
        ensure(data.dev.is_empty(), key, share, "nothing beside `data.dev` (`data.dev=[]` leaves that out)")?;
    }
    Ok(())
}
