//! Damaged checkpoints: with the checksums that they had, and with ones that fit the damage.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::campaign::case::Case;
use crate::campaign::formats::safetensors;
use crate::campaign::mutate;
use crate::campaign::world::{RUNS, checkpoints};

const FILES: [&str; 4] = ["model.safetensors", "optimizer.safetensors", "state.json", "checksums.json"];

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let run = &RUNS[0];
    let (whole, _) = case.world.whole(run)?;
    case.world.bring_data(case)?;
    case.bring("unfinished", "run")?;
    let newest = checkpoints(&case.path("run")).pop().context("the unfinished run has no checkpoint")?;
    let valid = case.random.one_in(2);
    if case.random.one_in(8) {
        // The run's other files, which a kill or a disk may have left in any state.
        let name = *case.random.pick(&["metrics.jsonl", "tokenizer.json", "config.toml", ".lock"]);
        case.damage(&format!("run/{name}"))?;
        case.run(run.attempt("run").arg("--resume").seconds(30))?;
        return Ok(());
    }
    let name = *case.random.pick(&FILES);
    let path = newest.join(name);
    let seed = fs::read(&path)?;
    let damaged =
        match (safetensors::parts(&seed), serde_json::from_slice::<Value>(&seed), case.random.below(3)) {
            (_, _, 0) => mutate::bytes(&mut case.random, &seed),
            (Some((header, data)), _, _) => safetensors::file(&mutate::json(&mut case.random, &header), data),
            (_, Ok(state), _) => mutate::json(&mut case.random, &state).into_bytes(),
            _ => mutate::bytes(&mut case.random, &seed),
        };
    // Whether the damage says the same in other bytes.
    let same = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let is_damage = name != "checksums.json" || same(&damaged) != same(&seed);
    match case.random.one_in(12) {
        true => fs::remove_file(&path)?,
        false => fs::write(&path, damaged)?,
    }
    if valid && name != "checksums.json" {
        let sum = |name: &&str| {
            let bytes = fs::read(newest.join(name)).unwrap_or_default();
            (name.to_string(), Value::from(blake3::hash(&bytes).to_hex().to_string()))
        };
        let sums: serde_json::Map<String, Value> = FILES[..3].iter().map(sum).collect();
        fs::write(newest.join("checksums.json"), json!(sums).to_string())?;
    }
    let ran = case.run(run.attempt("run").arg("--resume").seconds(30))?;
    if !valid && is_damage {
        case.expect(ran.succeeded(), "a damaged checkpoint is not passed over");
    }
    // With checksums that fit, what a checkpoint says is believed: another result may come of it.
    if ran.succeeded() && !valid {
        case.expect_same(
            &whole.join("model"),
            &case.path("run/model"),
            "unequal bits after a damaged checkpoint",
        );
    }
    Ok(())
}
