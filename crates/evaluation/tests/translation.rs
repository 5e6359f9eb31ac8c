//! Scores of translations against sacreBLEU's, bit for bit (`data/translation/export.py`).

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_evaluation::translation::{
    self, Bleu, Chrf, Compared, Corpus, Metric, PairedTest, Score, Smoothing, Ter, Tokenization, VERSION,
};
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

fn chrf(settings: &Value) -> Chrf {
    let usual = Chrf::default();
    let number = |key: &str| settings[key].as_u64().map(|number| number as usize);
    Chrf {
        char_order: number("char_order").unwrap_or(usual.char_order),
        word_order: number("word_order").unwrap_or(usual.word_order),
        beta: number("beta").map_or(usual.beta, |beta| beta as u32),
        lowercase: settings["lowercase"] == true,
        whitespace: settings["whitespace"] == true,
        epsilon_smoothing: settings["eps_smoothing"] == true,
    }
}

fn ter(settings: &Value) -> Ter {
    Ter {
        normalized: settings["normalized"] == true,
        no_punctuation: settings["no_punct"] == true,
        asian_support: settings["asian_support"] == true,
        case_sensitive: settings["case_sensitive"] == true,
    }
}

/// Does something with the metric of a golden case.
macro_rules! with_metric {
    ($case:expr, $metric:ident => $body:expr) => {
        match $case["metric"].as_str().unwrap() {
            "bleu" => {
                let $metric = bleu(&$case["settings"]);
                $body
            }
            "chrf" => {
                let $metric = chrf(&$case["settings"]);
                $body
            }
            _ => {
                let $metric = ter(&$case["settings"]);
                $body
            }
        }
    };
}

#[track_caller]
fn same_number(ours: f64, theirs: &Value, what: &str) {
    let theirs = theirs.as_f64().unwrap();
    assert_eq!(ours.to_bits(), theirs.to_bits(), "{what}: {ours}, not {theirs}");
}

/// Text of ours with the version that sacreBLEU's has.
fn versioned(golden: &Value, text: &str) -> String {
    text.replace(VERSION, golden["versions"]["sacrebleu"].as_str().unwrap())
}

/// Compares a score of a golden case, its line and its JSON.
fn same_score(golden: &Value, case: &Value, score: &Score, what: &str) {
    same_number(score.value, &case["score"], what);
    assert_eq!(versioned(golden, &score.line(2)), case["line"].as_str().unwrap(), "{what}");
    assert_eq!(versioned(golden, &score.json(1).to_string()), case["json"].to_string(), "{what}");
}

/// Compares the score of a golden case, and the scores of single sentences.
fn same(golden: &Value, case: &Value, metric: &impl Metric) {
    let what = format!("{} {}", case["corpus"], case["settings"]);
    let (hypotheses, references) = texts(golden, case);
    let score = translation::score(metric, &hypotheses, &references).unwrap();
    same_score(golden, case, &score, &what);
    for (place, (hypothesis, expected)) in
        hypotheses.iter().zip(case["sentences"].as_array().unwrap()).enumerate()
    {
        let references: Vec<[&String; 1]> = references.iter().map(|lines| [&lines[place]]).collect();
        let score = translation::score(metric, &[hypothesis], &references).unwrap().value;
        same_number(score, expected, &format!("{what}, line {place}"));
    }
}

fn all_are_the_same<M: Metric>(kind: &str, least: usize, metric: impl Fn(&Value) -> M) {
    let golden = golden();
    let cases = golden[kind].as_array().unwrap();
    assert!(cases.len() >= least);
    cases.iter().for_each(|case| same(&golden, case, &metric(&case["settings"])));
}

#[test]
fn bleu_is_sacrebleus() {
    all_are_the_same("bleu", 150, bleu);
}

#[test]
fn chrf_is_sacrebleus() {
    all_are_the_same("chrf", 60, chrf);
}

#[test]
fn ter_is_sacrebleus() {
    all_are_the_same("ter", 80, ter);
}

#[test]
fn confidence_is_sacrebleus() {
    let golden = golden();
    for case in golden["confidence"].as_array().unwrap() {
        let what = format!("{} {} {}", case["corpus"], case["metric"], case["n"]);
        let (hypotheses, references) = texts(&golden, case);
        let [n, seed] = ["n", "seed"].map(|key| case[key].as_u64().unwrap());
        let score = with_metric!(case, metric => {
            let corpus = Corpus::of(&metric, &hypotheses, &references).unwrap();
            corpus.score_with_confidence(&metric, n as usize, seed).unwrap()
        });
        let confidence = score.confidence.unwrap();
        same_number(confidence.mean, &case["mean"], &format!("{what}, mean"));
        same_number(confidence.half_width, &case["half_width"], &format!("{what}, half width"));
        same_score(&golden, case, &score, &what);
    }
}

#[test]
fn comparisons_are_sacrebleus() {
    let golden = golden();
    for case in golden["comparisons"].as_array().unwrap() {
        let what = format!("{} {} {} {}", case["corpus"], case["metric"], case["settings"], case["test"]);
        let (hypotheses, references) = texts(&golden, case);
        let [n, seed] = ["n", "seed"].map(|key| case[key].as_u64().unwrap());
        let test = if case["test"] == "bs" { PairedTest::Bootstrap } else { PairedTest::Randomization };
        let systems = golden["systems"][case["corpus"].as_str().unwrap()].as_array().unwrap();
        let (signature, compared) = with_metric!(case, metric => {
            let corpus = |lines: &[String]| Corpus::of(&metric, lines, &references).unwrap();
            let systems: Vec<Corpus> = systems.iter().map(|system| corpus(&strings(system))).collect();
            translation::compare(&metric, test, &corpus(&hypotheses), &systems, n as usize, seed).unwrap()
        });
        assert_eq!(versioned(&golden, &signature.to_string()), case["signature"].as_str().unwrap());
        let results = case["results"].as_array().unwrap();
        assert_eq!(compared.len(), results.len());
        for (place, (ours, theirs)) in compared.iter().zip(results).enumerate() {
            let Compared { value, p_value, confidence } = *ours;
            let pairs = [
                ("score", Some(value)),
                ("p_value", p_value),
                ("mean", confidence.map(|confidence| confidence.mean)),
                ("ci", confidence.map(|confidence| confidence.half_width)),
            ];
            for (key, ours) in pairs {
                let what = format!("{what}, system {place}, {key}");
                match ours {
                    Some(ours) => same_number(ours, &theirs[key], &what),
                    None => assert!(theirs[key].is_null(), "{what}"),
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_scored_is_named() {
    let score = |hypotheses: &[&str], references: &[&[&str]]| {
        let score = translation::score(&Bleu::default(), hypotheses, references);
        score.map(|score| score.value).map_err(|error| error.to_string())
    };
    assert_eq!(score(&["a b c d"], &[&["a b c d"]]), Ok(100.000_000_000_000_04));
    let nothing = Err("nothing to score: there are no lines or no references".to_owned());
    assert_eq!(score(&[], &[&[]]), nothing);
    assert_eq!(score(&["a"], &[]), nothing);
    assert_eq!(
        Corpus::of_sums().score(&Bleu::default()).map_err(|error| error.to_string()).err(),
        nothing.err()
    );
    let error = score(&["a", "b"], &[&["a", "b"], &["a"]]).unwrap_err();
    assert_eq!(error, "1 lines of references for 2 translations; expected one for each");
}
