//! safetensors: headers, numbers, shards and their index.

use std::fs;

use anyhow::{Context, Result};

use super::{MODELS, ask, expect_finite};
use crate::campaign::case::Case;
use crate::campaign::formats::safetensors;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;

const FILE: &str = "model/model.safetensors";

/// A damaged file of weights.
pub fn file(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&MODELS);
    case.bring(&format!("models/{model}"), "model")?;
    let seed = case.read(FILE)?;
    let (header, data) = safetensors::parts(&seed).context("the world's weights cannot be read")?;
    let damaged = match case.random.below(4) {
        0 => mutate::bytes(&mut case.random, &seed),
        1 => {
            // In the header or close to it, which most bytes are not.
            let head = mutate::bytes(&mut case.random, &seed[..seed.len() - data.len()]);
            [&head, data].concat()
        }
        _ => safetensors::file(&mutate::json(&mut case.random, &header), data),
    };
    case.write(FILE, damaged)?;
    let attempt = ask(case, model, "model");
    let ran = case.run(attempt)?;
    expect_finite(case, &ran);
    Ok(())
}

/// Weights that are no numbers, in a tensor that everything goes through.
pub fn not_finite(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&["mlm", "classification", "tagging", "answers", "regression"]);
    case.bring(&format!("models/{model}"), "model")?;
    let mut bytes = case.read(FILE)?;
    let (header, data) = safetensors::parts(&bytes).context("the world's weights cannot be read")?;
    let start = bytes.len() - data.len();
    let used = [
        "embeddings.LayerNorm.weight",
        "attention.self.value.weight",
        "output.dense.bias",
        "output.LayerNorm.bias",
    ];
    let tensors: Vec<_> = safetensors::tensors(&header)
        .into_iter()
        .filter(|(name, _)| used.iter().any(|used| name.ends_with(used)) && !name.contains("cls."))
        .collect();
    let (name, range) = case.random.pick(&tensors).clone();
    let value = *case.random.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    let at = start + range.start + 4 * case.random.below(range.len() / 4);
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    case.write(FILE, bytes)?;
    let evaluates = model != "mlm" && case.random.one_in(2);
    let attempt = match evaluates {
        true => {
            case.world.bring_data(case)?;
            Attempt::new(["eval", "--model", "model", &format!("seeds/{model}.toml")])
        }
        false => match (model, case.random.below(2)) {
            ("mlm", 0) => Attempt::new(["embed", "--model", "model"]).input("the law of Rome\n"),
            ("mlm", _) => Attempt::new(["fill-mask", "--model", "model", "the [MASK] of Rome"]),
            ("classification" | "regression", _) => {
                Attempt::new(["predict", "--model", "model"]).input("\"the law\"\n")
            }
            _ => {
                Attempt::new(["predict", "--model", "model"]).input(super::question(model, "the law of Rome"))
            }
        },
    };
    let ran = case.run(attempt)?;
    if ran.succeeded() {
        case.fault(format!("exit status 0 with `{value}` in a weight of `{name}`"));
    } else {
        let short =
            name.rsplit('.').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join(".");
        let error = ran.error();
        case.expect(
            error.contains(&short),
            format!("the error does not name the tensor `{name}`: `{}`", error.trim()),
        );
    }
    Ok(())
}

/// Shards that lack, differ, are swapped; a damaged index.
pub fn shards(case: &mut Case<'_>) -> Result<()> {
    case.bring("models/shards", "model")?;
    const INDEX: &str = "model/model.safetensors.index.json";
    let seed: serde_json::Value = serde_json::from_slice(&case.read(INDEX)?)?;
    let mut files: Vec<String> = fs::read_dir(case.path("model"))?
        .flatten()
        .map(|entry| format!("model/{}", entry.file_name().to_string_lossy()))
        .filter(|name| name.ends_with(".safetensors"))
        .collect();
    files.sort();
    let [a, b] = [case.random.pick(&files).clone(), case.random.pick(&files).clone()];
    match case.random.below(8) {
        0 => fs::remove_file(case.path(&a))?,
        1 => {
            let bytes = case.read(&b)?;
            case.write(&a, bytes)?;
        }
        2 => case.damage(&a)?,
        3 => {
            let bytes = mutate::text(&mut case.random, &seed.to_string());
            case.write(INDEX, bytes)?;
        }
        _ => {
            let text = mutate::json(&mut case.random, &seed);
            case.write(INDEX, text)?;
        }
    }
    let attempt = ask(case, "mlm", "model");
    let ran = case.run(attempt)?;
    expect_finite(case, &ran);
    case.expect(!ran.error().contains("model configuration"), "shards are called a model configuration");
    Ok(())
}
