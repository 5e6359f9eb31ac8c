//! Texts of every kind that a language model is measured on.

use anyhow::Result;

use super::expect_finite;
use crate::campaign::case::Case;
use crate::campaign::mutate::{self, ODD};
use crate::campaign::program::Attempt;
use crate::campaign::world::corpus;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&["mlm", "left-to-right"]);
    case.bring(&format!("models/{model}"), "model")?;
    if case.random.one_in(4) {
        let file = *case.random.pick(&["model/config.json", "model/tokenizer.json"]);
        case.damage(file)?;
    }
    let text = match case.random.below(4) {
        0 => case.random.pick(&ODD).repeat(1 + case.random.below(2_000)).into_bytes(),
        1 => corpus(1).into_bytes(),
        _ => mutate::text(&mut case.random, &corpus(1)),
    };
    case.write("text", text)?;
    let mut attempt = Attempt::new(["perplexity", "--model", "model", "text"]);
    if case.random.one_in(2) {
        attempt = attempt.arg("--json");
    }
    if case.random.one_in(3) {
        attempt = attempt.arg("--stride").arg(mutate::extreme(&mut case.random));
    }
    if case.random.one_in(4) {
        attempt = attempt.arg("text").arg("missing");
    }
    let ran = case.run(attempt.seconds(60))?;
    expect_finite(case, &ran);
    Ok(())
}
