//! `cloze transfer`: odd sentences, and models that differ.

use anyhow::Result;

use super::expect_finite;
use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::sentence;

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    for model in ["mlm", "classification", "regression"] {
        case.bring(&format!("models/{model}"), model)?;
    }
    let whole: String = (0..12).map(|i| sentence(i) + "\n").collect();
    let is_odd = case.random.one_in(2);
    let text = if is_odd { mutate::text(&mut case.random, &whole) } else { whole.into_bytes() };
    case.write("sentences.txt", text)?;
    let damages = case.random.one_in(4);
    if damages {
        let file = *case.random.pick(&["config.json", "model.safetensors", "tokenizer.json"]);
        case.damage(&format!("regression/{file}"))?;
    }
    let layers = (*case.random.pick(&["0,-1", "-1", "0", "99", "-99"])).to_owned();
    let call = ["transfer", "--sentences", "sentences.txt", "--out", "out", "--layers", &layers, "--json"];
    let models = ["mlm", "classification", "last=regression"];
    let ran = case.run(Attempt::new(call.into_iter().chain(models)).seconds(60))?;
    let is_whole = !is_odd && !damages && !layers.ends_with("99");
    case.expect(ran.succeeded() || !is_whole, "whole sentences and models are refused");
    if is_whole {
        expect_finite(case, &ran);
    }
    Ok(())
}
