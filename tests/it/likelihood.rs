//! Scores of sentences against minicons and transformers: `tests/fixtures/likelihood/export.py`.

use crate::golden::fixture;
use burn::tensor::Device;
use cloze_trainer::likelihood::{Likelihood, LikelihoodConfig, Metric, SentenceScore, Slot};
use serde_json::Value;

const TOLERANCE: f64 = 1e-4;

fn golden() -> Value {
    let path = fixture("likelihood").join("golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn numbers(row: &Value) -> Vec<f64> {
    row.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn load(name: &str, config: LikelihoodConfig) -> Likelihood {
    Likelihood::load(&fixture("likelihood").join(name), config, &Device::flex()).unwrap()
}

fn config(metric: Option<Metric>, predicts_first: bool, batch_tokens: usize) -> LikelihoodConfig {
    let mut config = LikelihoodConfig::default();
    (config.metric, config.predicts_first, config.batch_tokens) = (metric, predicts_first, batch_tokens);
    config
}

fn score(model: &Likelihood, sentences: &[String]) -> Vec<SentenceScore> {
    let encoded: Vec<_> = sentences.iter().map(|text| model.encode(text, None).unwrap()).collect();
    let mut done = 0;
    let scores = model.score(&encoded, &mut |n| done += n).unwrap();
    assert_eq!(done, encoded.iter().map(|sentence| sentence.n_pieces()).sum::<usize>());
    scores
}

fn check(name: &str, scores: &[SentenceScore], expected: &Value) {
    let expected = expected.as_array().unwrap();
    assert_eq!(scores.len(), expected.len());
    for (number, (score, expected)) in scores.iter().zip(expected).enumerate() {
        let expected = numbers(expected);
        let found: Vec<f64> = score.pieces.iter().map(|piece| piece.log_prob).collect();
        assert_eq!(found.len(), expected.len(), "{name}, sentence {number}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() < TOLERANCE,
                "{name}, sentence {number}: {found} is not {expected}"
            );
        }
        assert!(
            (score.sum() - expected.iter().sum::<f64>()).abs() < TOLERANCE * expected.len().max(1) as f64
        );
    }
}

#[test]
fn pseudo_log_likelihood_is_that_of_minicons() {
    let golden = golden();
    let sentences = texts(&golden["sentences"]);
    for name in ["bert", "roberta", "xlnet"] {
        for metric in [Metric::Pll, Metric::WordL2r] {
            // All copies together, and one by one.
            for batch_tokens in [4096, 1] {
                let model = load(name, config(Some(metric), true, batch_tokens));
                let found = score(&model, &sentences);
                check(name, &found, &golden[name][metric.to_string()]);
                if let Value::Array(tokens) = &golden[name]["tokens"] {
                    for (score, tokens) in found.iter().zip(tokens) {
                        let found: Vec<&str> =
                            score.pieces.iter().map(|piece| piece.token.as_str()).collect();
                        assert_eq!(found, texts(tokens));
                    }
                }
            }
        }
        let default = score(&load(name, LikelihoodConfig::default()), &sentences);
        check(name, &default, &golden[name]["word-l2r"]);
    }
}

#[test]
fn the_chain_rule_is_that_of_minicons() {
    let golden = golden();
    // Without a begin-of-text piece, nothing of a sentence of one piece is predicted.
    let sentences = texts(&golden["sentences"]);
    for (name, predicts_first) in [("given", false), ("predicted", true)] {
        for batch_tokens in [4096, 1] {
            let model = load("gpt2", config(None, predicts_first, batch_tokens));
            check(name, &score(&model, &sentences), &golden["gpt2"][name]);
        }
    }
}

#[test]
fn a_target_is_scored_given_its_source_as_by_transformers() {
    let golden = golden();
    for batch_tokens in [4096, 1] {
        let model = load("t5", config(None, true, batch_tokens));
        let pairs = golden["pairs"].as_array().unwrap().iter().map(texts);
        let encoded: Vec<_> = pairs.map(|pair| model.encode(&pair[1], Some(&pair[0])).unwrap()).collect();
        let scores = model.score(&encoded, &mut |_| ()).unwrap();
        check("t5", &scores, &golden["t5"]);
        assert!(scores.iter().all(|score| score.pieces.last().unwrap().token == "</s>"));
    }
}

#[test]
fn objects_of_facts_have_the_ranks_and_scores_of_transformers() {
    let golden = golden();
    let facts = &golden["facts"];
    let objects = texts(&facts["objects"]);
    let model = load("bert", LikelihoodConfig::default());
    let mut at = 0;
    for pattern in texts(&facts["patterns"]) {
        for fact in facts["facts"].as_array().unwrap() {
            let [subject, right] = &texts(fact)[..] else { panic!("a subject and an object") };
            let text = pattern.replace("[X]", subject);
            let (before, after) = text.split_once("[Y]").unwrap();
            let slot = Slot { before: before.into(), after: after.into() };
            let pieces: Vec<Vec<u32>> =
                objects.iter().map(|object| model.pieces_in(&slot, object).unwrap()).collect();
            let found = model.word_scores(std::slice::from_ref(&slot), &objects, &pieces).unwrap();
            for (found, expected) in found[0].iter().zip(numbers(&facts["scores"][at])) {
                assert!((found - expected).abs() < TOLERANCE, "{text}: {found} is not {expected}");
            }
            let right = &pieces[objects.iter().position(|object| object == right).unwrap()];
            let rank = facts["ranks"][at].as_u64().unwrap() as usize;
            assert_eq!(rank == 0, right.len() > 1);
            if let [id] = right[..] {
                let answer = &model.answers(&[(slot, id)], 10).unwrap()[0];
                assert_eq!(answer.rank, rank, "{text}");
                let expected: Vec<u32> = numbers(&facts["top"][at]).iter().map(|id| *id as u32).collect();
                assert_eq!(answer.best, expected, "{text}");
            }
            at += 1;
        }
    }
}
