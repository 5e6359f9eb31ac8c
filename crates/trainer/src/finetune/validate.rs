//! Validates fine-tuning config values beyond their types.

use super::config::Tuning;
use super::kind::TaskKind;
use super::recurrent;
use crate::config::Precision;
use crate::config::validate::{
    Check, at_least, averaging, below_one, ensure, optimizer, positive, schedule_of_epochs, shown,
};
use crate::pruning::PruningSection;
use crate::quantization::{InputRounding, QuantizationSection};

/// Checks every value of `config` for a kind of task, and their consistency; returns the first complaint.
pub(super) fn validate(kind: &dyn TaskKind, config: Tuning<'_>) -> Check {
    kind.check(config)?;
    model(kind, config)?;
    data(kind, config)?;
    if let Some(section) = config.distillation {
        section.check(config.train.recompute)?;
    }
    if let Some(section) = config.pruning {
        section.check()?;
        pruning(section, config)?;
    }
    if let Some(section) = config.quantization {
        rounding(section, config)?;
    }
    let train = &config.train;
    // Only a prompt says something without having been trained.
    let least = u64::from(kind.needs_training());
    at_least(least, "train.epochs", train.epochs)?;
    at_least(1, "train.batch_size", train.batch_size)?;
    at_least(1, "train.batch_tokens", train.batch_tokens.unwrap_or(1))?;
    at_least(1, "train.accumulate", train.accumulate)?;
    optimizer(&config.common.optimizer)?;
    schedule_of_epochs(&config.common.schedule)?;
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

fn model(kind: &dyn TaskKind, config: Tuning<'_>) -> Check {
    let section = &config.model;
    let has_path = !section.path.as_os_str().is_empty();
    if let Some(fresh) = &section.recurrent {
        ensure(!has_path, "model.path", section.path.display(), "none with `[model.recurrent]`")?;
        return recurrent::check(fresh, kind.recurrent(), config);
    }
    ensure(
        has_path || !kind.needs_checkpoint(),
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

/// Checks what cannot be combined with masks.
fn pruning(section: &PruningSection, config: Tuning<'_>) -> Check {
    let none = |is_none: bool, key: &'static str, found: &'static str, expected: &'static str| {
        ensure(is_none, key, found, expected)
    };
    let model = config.model;
    none(
        model.recurrent.is_none(),
        "pruning",
        "given",
        "none with `[model.recurrent]`: masks are for encoders",
    )?;
    none(model.lora.is_none(), "model.lora", "given", "none with `[pruning]`: masks act on trained weights")?;
    let averages = config.common.average.is_some();
    none(!averages, "average", "given", "none with `[pruning]`: a mean of models has the zeros of none")?;
    let is_half = config.train.precision == Precision::F16;
    none(
        !is_half,
        "train.precision",
        "\"f16\"",
        "\"f32\" or \"bf16\" with `[pruning]`: the scale of FP16's loss changes",
    )?;
    if section.tickets().is_some() {
        let key = "train.batch_tokens";
        none(
            config.train.batch_tokens.is_none(),
            key,
            "given",
            "none with rounds, which have equal numbers of steps",
        )?;
        let key = "model.gradual_unfreezing";
        none(
            !model.gradual_unfreezing,
            key,
            "true",
            "false with rounds, which begin again at its first epoch",
        )?;
        none(
            config.eval.patience.is_none(),
            "eval.patience",
            "given",
            "none with rounds: each has its whole schedule",
        )?;
    }
    Ok(())
}

/// Checks what cannot be combined with rounding.
fn rounding(section: &QuantizationSection, config: Tuning<'_>) -> Check {
    let none =
        |is_none: bool, key: &'static str, expected: &'static str| ensure(is_none, key, "given", expected);
    let model = config.model;
    none(
        model.recurrent.is_none(),
        "quantization",
        "none with `[model.recurrent]`: the layers of encoders are rounded",
    )?;
    none(model.lora.is_none(), "model.lora", "none with `[quantization]`: trained weights are rounded")?;
    none(
        config.common.average.is_none(),
        "average",
        "none with `[quantization]`: a mean of models is not rounded",
    )?;
    none(config.pruning.is_none(), "pruning", "none with `[quantization]`: prune first, then round")?;
    section.check()?;
    let forgets = section.inputs != InputRounding::Exact && config.train.recompute;
    let expected = "false with `[quantization]`, which rounds inputs that would be recomputed exactly";
    ensure(!forgets, "train.recompute", true, expected)
}

fn data(kind: &dyn TaskKind, config: Tuning<'_>) -> Check {
    let data = &config.data;
    at_least(1, "data.max_len", data.max_len)?;
    if let Some(language) = data.language.as_ref().filter(|_| config.model.recurrent.is_some()) {
        let expected = "no such key with `[model.recurrent]`, which has no language embeddings";
        ensure(false, "data.language", format!("\"{language}\""), expected)?;
    }
    if let Some(shots) = data.shots {
        at_least(1, "data.shots", shots)?;
        ensure(kind.has_classes(), "data.shots", shots, "a task with a class for each example")?;
    }
    at_least(1, "data.examples", data.examples.unwrap_or(1))?;
    if let Some(share) = data.dev_fraction {
        let key = "data.dev_fraction";
        ensure(share > 0.0 && share < 1.0, key, shown(share), "a number above 0 and below 1")?;
        ensure(
            data.dev.is_empty(),
            key,
            shown(share),
            "nothing with `data.dev` (`data.dev=[]` removes that)",
        )?;
    }
    Ok(())
}
