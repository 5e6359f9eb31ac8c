//! Sentences and test suites of every kind that a model scores.

use anyhow::Result;

use super::expect_finite;
use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;
use crate::campaign::world::{corpus, sentence};

/// The models of the world that score sentences.
const MODELS: [&str; 3] = ["mlm", "left-to-right", "translator"];

/// Sentences.
pub fn likelihood(case: &mut Case<'_>) -> Result<()> {
    bring(case)?;
    let text = match case.random.below(4) {
        0 => case.random.pick(&ODD).repeat(1 + case.random.below(2_000)).into_bytes(),
        1 => (0..6)
            .map(|at| format!("{}\t{}\n", sentence(at), sentence(at + 1)))
            .collect::<String>()
            .into_bytes(),
        _ => mutate::text(&mut case.random, &corpus(1)),
    };
    let mut attempt = Attempt::new(["likelihood", "--model", "model"]).input(text);
    for switch in
        ["--json", "--metric=pll", "--first-piece=given", "--on-bad-row=skip", "--batch-tokens=1", "--int8"]
    {
        if case.random.one_in(3) {
            attempt = attempt.arg(switch);
        }
    }
    let ran = case.run(attempt.seconds(60))?;
    expect_finite(case, &ran);
    Ok(())
}

/// Test suites.
pub fn knowledge(case: &mut Case<'_>) -> Result<()> {
    bring(case)?;
    let (a, b) = (sentence(1), sentence(2));
    let suites = [
        (
            "pairs",
            "suite.jsonl",
            format!("{{\"sentence_good\": {a:?}, \"sentence_bad\": {b:?}, \"UID\": \"a\"}}\n").repeat(3),
        ),
        ("choices", "suite.txt", format!("0\u{1}{a}\u{1}{b}\n1\u{1}{b}\u{1}{a}\u{1}0\u{1}{a}\u{1}{b}\n")),
        (
            "facts",
            "suite.jsonl",
            "{\"pattern\": \"the [X] of [Y].\"}\n{\"sub_label\": \"law\", \"obj_label\": \"year\"}\n"
                .repeat(2),
        ),
        ("values", "suite.csv", "1\tthe law is [MASK] here\tof\tthe\n2\t[MASK] law\tthe\tof\n".to_owned()),
    ];
    let (kind, file, text) = case.random.pick(&suites).clone();
    let text = mutate::text(&mut case.random, &text);
    case.write(file, text)?;
    let mut attempt = Attempt::new(["knowledge", kind, "--model", "model", file]);
    for switch in ["--json", "--out=report", "--on-bad-row=skip", "--metric=pll"] {
        if case.random.one_in(3) {
            attempt = attempt.arg(switch);
        }
    }
    if kind == "facts" && case.random.one_in(2) {
        attempt = attempt.arg("--candidates").arg(*case.random.pick(&["objects", "suite.jsonl", "missing"]));
    }
    if case.random.one_in(6) {
        case.write("suite.zip", case.read(file)?)?;
        attempt = attempt.arg("suite.zip");
    }
    let ran = case.run(attempt.seconds(60))?;
    expect_finite(case, &ran);
    Ok(())
}

/// A model, now and then a damaged one.
fn bring(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&MODELS);
    case.bring(&format!("models/{model}"), "model")?;
    if case.random.one_in(6) {
        let file = *case.random.pick(&["model/config.json", "model/tokenizer.json"]);
        case.damage(file)?;
    }
    Ok(())
}
