//! Senses of words: odd labelled sentences, damaged vectors, odd lines.

use anyhow::Result;
use serde_json::{Value, json};

use super::expect_finite;
use crate::campaign::case::{self, Case};
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::sentence;

/// A sentence whose fourth word has one of two senses.
fn labelled(i: usize) -> Value {
    let text = sentence(i);
    let tokens: Vec<&str> = text.split(' ').collect();
    let lemma = tokens[4];
    json!({"tokens": tokens, "senses": [{"index": 4, "lemma": lemma, "pos": "n", "sense": format!("{lemma}.{}", i % 2)}]})
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/mlm", "model")?;
    let lines = |range: std::ops::Range<usize>| range.map(|i| labelled(i).to_string()).collect::<Vec<_>>();
    let mut train = lines(0..24);
    let is_odd = case.random.one_in(3);
    if is_odd {
        let at = case.random.below(train.len());
        train[at] = mutate::json(&mut case.random, &labelled(at));
    }
    case.write("train.jsonl", train.join("\n") + "\n")?;
    case.write("dev.jsonl", lines(24..30).join("\n") + "\n")?;
    let made = case.run(Attempt::new([
        "senses",
        "train",
        "--model",
        "model",
        "--data",
        "train.jsonl",
        "--layers",
        "last",
        "--out",
        "senses",
    ]))?;
    case.expect(made.succeeded() || is_odd, "senses of whole sentences are refused");
    if !made.succeeded() {
        return Ok(());
    }
    let mut names = case::files(&case.path("senses"));
    names.retain(|name| case.path("senses").join(name).is_file());
    if case.random.one_in(2) {
        let name = format!("senses/{}", case.random.pick(&names).display());
        case.damage(&name)?;
    }
    let attempt = match case.random.below(2) {
        0 => Attempt::new(["senses", "eval", "--senses", "senses", "--data", "dev.jsonl", "--json"]),
        _ => {
            let mut line = labelled(case.random.below(40));
            if let Some(senses) = line["senses"].as_array_mut() {
                senses
                    .iter_mut()
                    .filter_map(Value::as_object_mut)
                    .for_each(|sense| drop(sense.remove("sense")));
            }
            let line = match case.random.below(3) {
                0 => mutate::json(&mut case.random, &line),
                1 => {
                    let text = sentence(3).repeat(1 + case.random.below(400));
                    json!({"text": text, "senses": [{"start": 4, "end": 10, "lemma": "senate", "pos": "n"}]})
                        .to_string()
                }
                _ => line.to_string(),
            };
            Attempt::new(["senses", "tag", "--senses", "senses"]).input(line + "\n")
        }
    };
    let ran = case.run(attempt)?;
    expect_finite(case, &ran);
    Ok(())
}
