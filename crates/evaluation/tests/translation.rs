//! Scores of translations against sacreBLEU's, bit for bit (`data/translation/export.py`).

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_evaluation::translation::{self, Bleu, Corpus, Metric, Smoothing, Tokenization, VERSION};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("data/translation/golden.json")).unwrap()
}

fn strings(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The hypotheses and the references of a golden case.
fn texts(golden: &Value, case: &Value) -> (Vec<String>, Vec<Vec<String>>) {
    let corpus = &golden["corpora"][case["corpus"].as_str().unwrap()];
    let references = corpus["references"].as_array().unwrap().iter().map(strings);
    (strings(&corpus["hypotheses"]), references.collect())
}

fn bleu(settings: &Value) -> Bleu {
    let text = |key: &str| settings[key].as_str();
    Bleu {
        tokenization: Tokenization::named(text("tokenize").unwrap_or("13a")).unwrap(),
        smoothing: Smoothing::named(
            text("smooth_method").unwrap_or("exp"),
            settings["smooth_value"].as_f64(),
        )
        .unwrap(),
        lowercase: settings["lowercase"] == true,
        effective_order: settings["effective_order"] == true,
    }
}

/// Compares the score of a golden case, its line and JSON, and the scores of single sentences.
fn same(golden: &Value, case: &Value, metric: &impl Metric) {
    let what = format!("{} {}", case["corpus"], case["settings"]);
    let (hypotheses, references) = texts(golden, case);
    let score = translation::score(metric, &hypotheses, &references).unwrap();
    assert_eq!(score.value.to_bits(), case["score"].as_f64().unwrap().to_bits(), "{what}: {}", score.line(9));
    let ours = |line: &str| line.replace(VERSION, golden["versions"]["sacrebleu"].as_str().unwrap());
    assert_eq!(ours(&score.line(2)), case["line"].as_str().unwrap(), "{what}");
    assert_eq!(ours(&score.json(1).to_string()), case["json"].to_string(), "{what}");
    for (place, (hypothesis, expected)) in
        hypotheses.iter().zip(case["sentences"].as_array().unwrap()).enumerate()
    {
        let references: Vec<[&String; 1]> = references.iter().map(|lines| [&lines[place]]).collect();
        let score = translation::score(metric, &[hypothesis], &references).unwrap().value;
        assert_eq!(score.to_bits(), expected.as_f64().unwrap().to_bits(), "{what}, line {place}: {score}");
    }
}

#[test]
fn bleu_is_sacrebleus() {
    let golden = golden();
    let cases = golden["bleu"].as_array().unwrap();
    assert!(cases.len() > 100);
    cases.iter().for_each(|case| same(&golden, case, &bleu(&case["settings"])));
}

#[test]
fn what_cannot_be_scored_is_named() {
    let score = |hypotheses: &[&str], references: &[&[&str]]| {
        let score = translation::score(&Bleu::default(), hypotheses, references);
        score.map(|score| score.value).map_err(|error| error.to_string())
    };
    assert_eq!(score(&["a b c d"], &[&["a b c d"]]), Ok(100.000_000_000_000_04));
    let nothing = Err("nothing to score: no lines or no references".to_owned());
    assert_eq!(score(&[], &[&[]]), nothing);
    assert_eq!(score(&["a"], &[]), nothing);
    assert_eq!(
        Corpus::of_sums().score(&Bleu::default()).map_err(|error| error.to_string()).err(),
        nothing.err()
    );
    let error = score(&["a", "b"], &[&["a", "b"], &["a"]]).unwrap_err();
    assert_eq!(error, "1 lines of references for 2 translations; each has one line in each list");
}
