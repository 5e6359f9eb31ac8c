//! Run configurations: damaged files, and every key with every odd value.

use anyhow::Result;
use serde_json::Value;

use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::{Attempt, Limits, Ran};
use crate::campaign::random::Random;
use crate::campaign::world::SHORT;

/// The configurations.
const CONFIGS: [&str; 7] =
    ["pretrain", "classification", "tagging", "answers", "choices", "regression", "prompt"];

/// What makes a run short.
fn short(name: &str) -> &'static str {
    if name == "pretrain" { SHORT.0 } else { SHORT.1 }
}

/// What keys of names may be, by how they end: another choice is to work to the end, or be refused before the first
/// step.
const CHOICES: [(&str, &[&str]); 14] = [
    ("model.norm", &["pre", "post"]),
    ("model.activation", &["gelu", "gelu-tanh", "relu", "tanh"]),
    ("pairs.kind", &["next-sentence", "sentence-order", "doc-sentences", "full-sentences"]),
    ("tokenizer.kind", &["train-wordpiece", "train-byte-bpe", "load", "checkpoint"]),
    ("schedule.kind", &["linear", "cosine", "constant", "inverse-sqrt"]),
    ("masking.unit", &["token", "whole-word"]),
    ("masking.random_from", &["uniform", "unigram"]),
    ("train.precision", &["f32", "bf16"]),
    ("optimizer.algorithm", &["adamw", "lamb"]),
    ("train.non_finite", &["stop", "skip"]),
    ("corpus.language", &["en", "de", "ja", "xx"]),
    ("task.pooling", &["mean", "cls", "max", "mean-sqrt-len", "weighted-mean", "last-token"]),
    ("scheme", &["iob1", "bio", "bioes"]),
    ("format", &["auto", "text", "jsonl", "parquet", "csv", "tsv", "xml", "conll", "squad"]),
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
    let name = *case.random.pick(&CONFIGS);
    let path = format!("seeds/{name}.toml");
    let seed = String::from_utf8(case.read(&path)?)?;
    let damaged = match (seed.parse::<toml::Table>(), case.random.below(5)) {
        (Ok(table), 1..) => mutate::toml(&mut case.random, &table).into_bytes(),
        _ => mutate::text(&mut case.random, &seed),
    };
    case.write(&path, damaged)?;
    train(case, Attempt::new(["train", &path, "--out", "out", "--set", short(name)]))?;
    Ok(())
}

/// A key or two with `--set`.
pub fn settings(case: &mut Case<'_>) -> Result<()> {
    case.world.bring_data(case)?;
    // Half of all keys are of pretraining.
    let which = case.random.below(2 * CONFIGS.len());
    let name = CONFIGS[which.saturating_sub(CONFIGS.len())];
    // The keys with all that has a default, as runs write them.
    let of_run = if name == "pretrain" {
        "runs/mlm/config.toml".to_owned()
    } else {
        format!("runs/{name}/config.toml")
    };
    let resolved: toml::Table = String::from_utf8(case.world.read(&of_run)?)?.parse()?;
    let mut keys = Vec::new();
    collect(&serde_json::to_value(&resolved)?, "", &mut keys);
    keys.extend(OPTIONAL.iter().map(|key| (key.to_string(), Value::Null)));
    let start = Attempt::new(["train", &format!("seeds/{name}.toml"), "--out", "out", "--set", short(name)]);
    let mut attempt = start.clone();
    let mut first = String::new();
    for _ in 0..1 + case.random.below(3) / 2 {
        let (key, default) = case.random.pick(&keys).clone();
        let value = value(&mut case.random, &key, &default);
        attempt = attempt.arg("--set").arg(format!("{key}={value}"));
        first = key;
    }
    let ran = train(case, attempt)?;
    // What an error says would do, does.
    let error = ran.error();
    if let (Some(2), Some(bound)) = (ran.code, bound(&error, &first)) {
        let ran = case.unjudged(start.arg("--set").arg(format!("{first}={bound}")).seconds(10))?;
        // A key that the task has no use for at all is refused whatever its number.
        let told = format!("`{first}` is {bound}; expected a whole number");
        case.expect(
            !ran.error().contains(&told),
            format!("expected {bound} or more of `{first}`, which is then refused"),
        );
    }
    Ok(())
}

/// The least value that an error about `key` says is expected.
fn bound<'a>(error: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = error.split_once(&format!("`{key}` is "))?;
    let (_, rest) = rest.split_once("expected ")?;
    let (before, _) = rest.split_once(" or more")?;
    let bound = before.rsplit(' ').next()?;
    bound.parse::<f64>().ok().map(|_| bound)
}

/// An odd value for a key, mostly of its default's type.
fn value(random: &mut Random, key: &str, default: &Value) -> String {
    let choices = CHOICES.iter().find(|(end, _)| key.ends_with(end));
    if let (Some((_, choices)), true) = (choices, random.one_in(2)) {
        return format!("{:?}", random.pick(choices));
    }
    match (default, random.below(5)) {
        (Value::Number(_), 1..) => loop {
            let extreme = mutate::extreme(random);
            let value = *random.pick(&[extreme, extreme, "nan", "inf", "1000000000", "-1", "0"]);
            // What fits this machine and not the campaign's limit of memory is no case.
            let size = value.parse::<f64>().map_or(0.0, f64::abs);
            if !(5_000.0..1e9).contains(&size) {
                return value.to_owned();
            }
        },
        (Value::Bool(is), 1..) => (!is).to_string(),
        (Value::Null, _) if random.one_in(2) => mutate::extreme(random).to_owned(),
        _ => random.pick(&WORDS).to_string(),
    }
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

/// The paths of all that is no table, with their values.
fn collect(value: &Value, path: &str, keys: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(value, &path, keys);
            }
        }
        _ => keys.push((path.to_owned(), value.clone())),
    }
}

/// Trains for a while: a run that is long as it was asked to be is no hang, and one that cannot end says so before
/// its first step.
fn train(case: &mut Case<'_>, attempt: Attempt) -> Result<Ran> {
    let limits = Limits { time: std::time::Duration::from_secs(10), memory: 2_000, file: None };
    let ran = case.unjudged(Attempt { limits, ..attempt })?;
    // A step of many thousand batches takes its time: a run that has measured its first model is at work.
    if ran.timed_out && (logged(case) > 0 || ran.error().contains("evaluation after step 0")) {
        return Ok(ran);
    }
    case.judged(&ran);
    if !ran.succeeded() && is_refusal(&ran) && trained(case) {
        let error = ran.error();
        let line = error.lines().rfind(|line| line.starts_with("error:")).unwrap_or_default();
        case.fault(format!("refused after training: {line}"));
    }
    Ok(ran)
}

/// Records of steps among the metrics.
fn logged(case: &Case<'_>) -> usize {
    let metrics = case.read("out/metrics.jsonl").unwrap_or_default();
    let is_step = |line: &&str| line.contains(r#""event":"train""#);
    String::from_utf8_lossy(&metrics).lines().filter(is_step).count()
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
        let paths: Vec<&str> = keys.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["a.b", "a.c", "d"]);
    }

    #[test]
    fn the_least_value_is_read_from_the_error() {
        let error = "error: run.toml:3: `train.epochs` is -1; expected a whole number of 0 or more";
        assert_eq!(bound(error, "train.epochs"), Some("0"));
        assert_eq!(bound(error, "train.steps"), None);
        assert_eq!(bound("`a` is 1; expected some or more", "a"), None);
    }
}
