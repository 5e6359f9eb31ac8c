//! Run configurations: damaged files, and every key with every odd value.

use anyhow::Result;
use serde_json::Value;

use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::{Attempt, Limits, Ran};

/// The configurations, each with what makes it short.
const CONFIGS: [(&str, &str); 7] = [
    ("pretrain", "train.steps=3"),
    ("classification", "train.epochs=1"),
    ("tagging", "train.epochs=1"),
    ("answers", "train.epochs=1"),
    ("choices", "train.epochs=1"),
    ("regression", "train.epochs=1"),
    ("prompt", "train.epochs=1"),
];

/// Values that the keys of names have, and of other things.
const WORDS: [&str; 34] = [
    "\"pre\"",
    "\"post\"",
    "\"gelu\"",
    "\"gelu-tanh\"",
    "\"relu\"",
    "\"tanh\"",
    "\"bf16\"",
    "\"skip\"",
    "\"lamb\"",
    "\"cosine\"",
    "\"inverse-sqrt\"",
    "\"constant\"",
    "\"noam\"",
    "\"whole-word\"",
    "\"unigram\"",
    "\"sentence-order\"",
    "\"doc-sentences\"",
    "\"full-sentences\"",
    "\"max\"",
    "\"cls\"",
    "\"last-token\"",
    "\"mean-sqrt-len\"",
    "\"weighted-mean\"",
    "\"bioes\"",
    "\"iob1\"",
    "\"truncate\"",
    "\"tiny\"",
    "true",
    "false",
    "[]",
    "{}",
    "[\"a\"]",
    "\"\\u001b[31m\"",
    "\"x\"",
];

/// A damaged configuration file.
pub fn file(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    let (name, short) = *case.random.pick(&CONFIGS);
    let path = format!("seeds/{name}.toml");
    let seed = String::from_utf8(case.read(&path)?)?;
    let damaged = match (seed.parse::<toml::Table>(), case.random.below(5)) {
        (Ok(table), 1..) => mutate::toml(&mut case.random, &table).into_bytes(),
        _ => mutate::text(&mut case.random, &seed),
    };
    case.write(&path, damaged)?;
    train(case, Attempt::new(["train", &path, "--out", "out", "--set", short]))
}

/// A key or two with `--set`.
pub fn settings(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    let (name, short) = *case.random.pick(&CONFIGS);
    // The keys with all that has a default, as runs write them.
    let of_run = if name == "pretrain" {
        "runs/mlm/config.toml".to_owned()
    } else {
        format!("runs/{name}/config.toml")
    };
    let resolved: toml::Table = String::from_utf8(case.world.read(&of_run)?)?.parse()?;
    let mut keys = Vec::new();
    collect(&serde_json::to_value(&resolved)?, "", &mut keys);
    keys.extend(OPTIONAL.iter().map(ToString::to_string));
    let mut attempt = Attempt::new(["train", &format!("seeds/{name}.toml"), "--out", "out", "--set", short]);
    for _ in 0..1 + case.random.below(3) / 2 {
        let key = case.random.pick(&keys).clone();
        let value = match case.random.below(8) {
            0 => "nan".to_owned(),
            1 => "inf".to_owned(),
            2 | 3 => case.random.pick(&WORDS).to_string(),
            _ => mutate::extreme(&mut case.random).to_owned(),
        };
        attempt = attempt.arg("--set").arg(format!("{key}={value}"));
    }
    train(case, attempt)
}

/// Keys that have no default, which a run writes only where they are set.
const OPTIONAL: [&str; 24] = [
    "model.preset",
    "model.freeze",
    "model.freeze_layers",
    "model.layer_decay",
    "model.lora",
    "model.lora.rank",
    "model.lora.alpha",
    "model.lora.dropout",
    "model.dropout.hidden",
    "model.dropout.head",
    "data.dev_fraction",
    "data.shots",
    "data.train.delimiter",
    "data.train.n_columns",
    "data.train.columns.text",
    "eval.patience",
    "eval.metric",
    "task.labels",
    "task.class_weights",
    "task.pooling",
    "task.null_threshold",
    "task.positive",
    "optimizer.groups",
    "task.crf",
];

/// The paths of all that is no table.
fn collect(value: &Value, path: &str, keys: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(value, &path, keys);
            }
        }
        _ => keys.push(path.to_owned()),
    }
}

/// Trains for a while: a run that is long as it was asked to be is no hang, and one that cannot end says so before
/// its first step.
fn train(case: &mut Case<'_>, attempt: Attempt) -> Result<()> {
    let limits = Limits { time: std::time::Duration::from_secs(10), memory: 2_000, file: None };
    let ran = case.unjudged(Attempt { limits, ..attempt })?;
    if ran.timed_out && logged(case) > 0 {
        return Ok(());
    }
    case.judged(&ran);
    if !ran.succeeded() && is_refusal(&ran) && trained(case) {
        let error = ran.error();
        let line = error.lines().rfind(|line| line.starts_with("error:")).unwrap_or_default();
        case.fault(format!("refused after training: {line}"));
    }
    Ok(())
}

/// Lines of metrics.
fn logged(case: &Case<'_>) -> usize {
    case.read("out/metrics.jsonl").map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

/// Whether an error is none of training itself, which may come to numbers that are not finite.
fn is_refusal(ran: &Ran) -> bool {
    let error = ran.error();
    matches!(ran.code, Some(1 | 2)) && !error.contains("finite") && !error.contains("stopped after")
}

/// Whether steps were made: a checkpoint is there.
fn trained(case: &Case<'_>) -> bool {
    !crate::campaign::world::checkpoints(&case.path("out")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths() {
        let mut keys = Vec::new();
        collect(&serde_json::json!({"a": {"b": 1, "c": [2]}, "d": true}), "", &mut keys);
        assert_eq!(keys, ["a.b", "a.c", "d"]);
    }
}
