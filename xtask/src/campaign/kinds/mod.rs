//! The kinds of attack, one file each.

mod archives;
mod cache;
mod checkpoints;
mod configs;
mod corpora;
mod dialects;
mod disks;
mod embeddings;
mod folders;
mod glue;
mod hub;
mod images;
mod kills;
mod knowledge;
mod labelled;
mod lexicon;
mod model_files;
mod numbers;
mod parallel;
mod patterns;
mod perplexity;
mod pickle;
mod probe;
mod pull;
mod races;
mod reports;
mod score;
mod search;
mod seeds;
mod senses;
mod sentencepiece;
mod texts;
mod tokenizers;
mod transfer;
mod weights;
mod writing;

use anyhow::Result;
use serde_json::Value;

use super::case::Case;
use super::program::{Attempt, Ran};
use super::world::sentence;

/// A kind of attack.
pub struct Kind {
    pub name: &'static str,
    /// Does one case.
    pub attack: fn(&mut Case<'_>) -> Result<()>,
}

/// All of them, in the order of their first cases.
pub const KINDS: [Kind; 46] = [
    Kind { name: "tokenizer-json", attack: tokenizers::json },
    Kind { name: "tokenizer-files", attack: tokenizers::files },
    Kind { name: "sentencepiece", attack: sentencepiece::attack },
    Kind { name: "patterns", attack: patterns::attack },
    Kind { name: "config-json", attack: model_files::config },
    Kind { name: "dialects", attack: dialects::attack },
    Kind { name: "module-json", attack: model_files::modules },
    Kind { name: "weights", attack: weights::file },
    Kind { name: "not-finite", attack: weights::not_finite },
    Kind { name: "shards", attack: weights::shards },
    Kind { name: "pickle", attack: pickle::attack },
    Kind { name: "run-config", attack: configs::file },
    Kind { name: "run-settings", attack: configs::settings },
    Kind { name: "labelled", attack: labelled::attack },
    Kind { name: "images", attack: images::attack },
    Kind { name: "corpora", attack: corpora::attack },
    Kind { name: "checkpoints", attack: checkpoints::attack },
    Kind { name: "prepared-cache", attack: cache::attack },
    Kind { name: "hub-cache", attack: hub::attack },
    Kind { name: "pull", attack: pull::attack },
    Kind { name: "texts", attack: texts::attack },
    Kind { name: "numbers", attack: numbers::attack },
    Kind { name: "parallel", attack: parallel::attack },
    Kind { name: "perplexity", attack: perplexity::attack },
    Kind { name: "likelihood", attack: knowledge::likelihood },
    Kind { name: "knowledge", attack: knowledge::knowledge },
    Kind { name: "score", attack: score::attack },
    Kind { name: "translate", attack: writing::translate },
    Kind { name: "generate", attack: writing::generate },
    Kind { name: "search", attack: search::attack },
    Kind { name: "embeddings", attack: embeddings::attack },
    Kind { name: "retrieval", attack: embeddings::retrieval },
    Kind { name: "senses", attack: senses::attack },
    Kind { name: "lexicon", attack: lexicon::attack },
    Kind { name: "lexicon-build", attack: lexicon::build },
    Kind { name: "tokenizers-compared", attack: lexicon::tokenizers },
    Kind { name: "glue", attack: glue::attack },
    Kind { name: "probe", attack: probe::attack },
    Kind { name: "transfer", attack: transfer::attack },
    Kind { name: "archives", attack: archives::attack },
    Kind { name: "reports", attack: reports::attack },
    Kind { name: "seeds", attack: seeds::attack },
    Kind { name: "folders", attack: folders::attack },
    Kind { name: "races", attack: races::attack },
    Kind { name: "kills", attack: kills::attack },
    Kind { name: "disks", attack: disks::attack },
];

/// The models of the world, each with what it is asked.
const MODELS: [&str; 7] = ["mlm", "classification", "tagging", "answers", "choices", "regression", "prompt"];

/// A call that reads the model in `folder`, of the kind that the world's `model` is.
fn ask(case: &mut Case<'_>, model: &str, folder: &str) -> Attempt {
    let long = (0..30).map(sentence).collect::<Vec<_>>().join(" ");
    let call = |command: &str| Attempt::new([command, "--model", folder]);
    let text = case.random.pick(&["the law of 1800", &long, "", "😀 é x\u{301}"]).to_string();
    match (model, case.random.below(4)) {
        ("mlm", 0 | 1) => call("embed").input(format!("{text}\n\n{text} again\n")),
        ("mlm", 2) => call("fill-mask").input(format!("{text} [MASK]\n[MASK] [MASK] {text}\n")),
        (_, 3) => Attempt::new(["convert", "--model", folder, "--out", "converted"]),
        _ => call("predict").input(question(model, &text)),
    }
}

/// A line of input for a model that is fine-tuned for `task`, and another one.
fn question(task: &str, text: &str) -> String {
    let text = Value::from(text);
    match task {
        "answers" => format!("{{\"question\": \"What?\", \"context\": {text}}}\n"),
        "choices" => format!("{{\"text\": {text}, \"choices\": [\"law\", {text}]}}\n"),
        "tagging" => format!("{{\"text\": {text}}}\n{{\"words\": [\"Rome\", {text}]}}\n"),
        _ => format!("{text}\n{{\"text\": {text}, \"pair\": {text}}}\n"),
    }
}

/// What is wrong with numbers that are printed: they are finite.
fn expect_finite(case: &mut Case<'_>, ran: &Ran) {
    if !ran.succeeded() {
        return;
    }
    for line in ran.output().lines() {
        let bad = match serde_json::from_str::<Value>(line) {
            // A line of nothing has no prediction.
            Ok(Value::Null) => false,
            Ok(value) => has_null_number(&value),
            Err(_) => line.contains("NaN") || line.contains("inf %"),
        };
        if bad {
            let line: String = line.chars().take(120).collect();
            return case.fault(format!("exit status 0 with numbers that are not finite: {line}"));
        }
    }
}

/// Whether a number that JSON cannot write became null: in lists and beside scores.
fn has_null_number(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(|value| value.is_null() || has_null_number(value)),
        // No answer was looked for in an empty context.
        Value::Object(map) if map.get("answer").is_some_and(|answer| answer == "") => false,
        Value::Object(map) => {
            let number = |key: &String| ["score", "value", "probability", "loss"].contains(&key.as_str());
            map.iter().any(|(key, value)| (number(key) && value.is_null()) || has_null_number(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_own_names() {
        let mut names = KINDS.map(|kind| kind.name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
    }

    #[test]
    fn numbers_that_became_null_are_seen() {
        let seen = |text: &str| has_null_number(&serde_json::from_str(text).unwrap());
        assert!(seen(r#"{"embedding":[0.1,null]}"#) && seen(r#"{"label":"a","score":null}"#));
        assert!(!seen(r#"{"answer":"","start":null,"end":null,"score":null}"#));
    }
}
