//! Configurations as versions of transformers write them: keys added, renamed and nested. The answers are the same, or what
//! is not followed is named.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::expect_finite;
use crate::campaign::case::Case;
use crate::campaign::mutate;
use crate::campaign::program::Attempt;
use crate::campaign::world::corpus;

/// Every key of transformers' own classes with its default, by version and class.
const KEYS: &str = include_str!("../../../../tests/fixtures/settings/keys.json");

/// A change to a configuration.
enum Change {
    /// Nothing else may come out.
    Same,
    /// Something else comes out, or it is refused.
    Other,
    /// The key is named.
    Named(String),
}

pub fn attack(case: &mut Case<'_>) -> Result<()> {
    let (model, class) = *case.random.pick(&[("mlm", "bert"), ("left-to-right", "gpt2"), ("llama", "llama")]);
    case.bring(&format!("models/{model}"), "model")?;
    case.write("text", corpus(1))?;
    let attempt = || match model {
        "mlm" => Attempt::new(["embed", "--model", "model"]).input("the law of 1800\nRome saw the river\n"),
        _ => Attempt::new(["perplexity", "--model", "model", "--json", "text"]),
    };
    let before = case.run(attempt())?;
    let mut config = case.world.json(&format!("models/{model}/config.json"))?;
    let change = match config.as_object_mut() {
        Some(map) => changed(case, class, map)?,
        None => return Ok(()),
    };
    case.write("model/config.json", config.to_string())?;
    let ran = case.run(attempt())?;
    expect_finite(case, &ran);
    match change {
        Change::Same => {
            case.expect(
                ran.succeeded(),
                format!("the same configuration is refused: {}", ran.error().trim()),
            );
            case.expect(!ran.succeeded() || ran.out == before.out, "the same configuration, other answers");
        }
        Change::Other => {
            let is_same = ran.succeeded() && ran.out == before.out;
            case.expect(!is_same, "a setting is there and not read");
        }
        Change::Named(key) => {
            let same = ran.succeeded() && ran.out == before.out;
            case.expect(same, "an unknown key changes the answers");
            case.expect(ran.error().contains(&key), format!("an unknown key is not named: `{key}`"));
        }
    }
    Ok(())
}

/// Changes a configuration of a class.
fn changed(case: &mut Case<'_>, class: &str, map: &mut Map<String, Value>) -> Result<Change> {
    let theta = map.get("rope_theta").cloned();
    Ok(match (case.random.below(5), theta) {
        (0, _) => {
            let key = format!("novel_{}", case.random.below(1_000));
            map.insert(key.clone(), serde_json::from_str(mutate::extreme(&mut case.random))?);
            Change::Named(key)
        }
        (1, _) => {
            let dtype = map.shift_remove("torch_dtype").unwrap_or_default();
            map.insert("dtype".into(), dtype);
            map.insert("transformers_version".into(), "5.24.0".into());
            Change::Same
        }
        // As transformers 5 writes it.
        (2, Some(theta)) => {
            map.shift_remove("rope_theta");
            map.insert("rope_parameters".into(), json!({"rope_type": "default", "rope_theta": theta}));
            Change::Same
        }
        (3, Some(_)) => {
            match case.random.below(4) {
                0 => drop(map.insert("rope_theta".into(), json!(7.0))),
                1 => {
                    map.shift_remove("rope_theta");
                    map.insert("rope_parameters".into(), json!({"rope_type": "default", "rope_theta": 7.0}));
                }
                2 => {
                    let scaling = json!({"rope_type": "linear", "factor": 3.0});
                    map.insert("rope_scaling".into(), scaling);
                }
                _ => {
                    map.shift_remove("rope_theta");
                    let scaled = json!({"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0});
                    map.insert("rope_parameters".into(), scaled);
                }
            }
            Change::Other
        }
        _ => {
            let keys: Value = serde_json::from_str(KEYS)?;
            let version = *case.random.pick(&["4.57.6", "5.24.0"]);
            let defaults = keys[version][class].as_object().cloned().unwrap_or_default();
            let (share, all) = (case.random.below(8), case.random.one_in(2));
            for (i, (key, value)) in defaults.into_iter().enumerate() {
                if (all || i % 8 == share) && !map.contains_key(&key) {
                    map.insert(key, value);
                }
            }
            Change::Same
        }
    })
}
