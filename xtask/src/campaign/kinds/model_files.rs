//! `config.json` and the files that say how a model is used.

use anyhow::Result;
use serde_json::{Value, json};

use super::{MODELS, ask, expect_finite};
use crate::campaign::case::Case;
use crate::campaign::mutate;

/// A damaged `config.json`.
pub fn config(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&MODELS);
    case.bring(&format!("models/{model}"), "model")?;
    let mut seed = case.world.json(&format!("models/{model}/config.json"))?;
    if case.random.one_in(3) {
        seed["model_type"] =
            (*case.random.pick(&["roberta", "distilbert", "albert", "electra", "gpt2", ""])).into();
    }
    damage(case, "model/config.json", &seed)?;
    let attempt = ask(case, model, "model");
    let ran = case.run(attempt)?;
    expect_finite(case, &ran);
    Ok(())
}

/// Damaged `task.json`, `modules.json` and the modules' own configurations.
pub fn modules(case: &mut Case<'_>) -> Result<()> {
    let model = *case.random.pick(&MODELS);
    case.bring(&format!("models/{model}"), "model")?;
    let name = match model {
        "mlm" => {
            let modules = json!([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]);
            let pooling = json!({"word_embedding_dimension": 16, "pooling_mode_cls_token": false,
                "pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": false,
                "pooling_mode_mean_sqrt_len_tokens": false, "include_prompt": true});
            let sentence = json!({"max_seq_length": 32, "do_lower_case": false});
            let all = [
                ("modules.json", modules),
                ("1_Pooling/config.json", pooling),
                ("sentence_bert_config.json", sentence),
            ];
            for (name, value) in &all {
                case.write(format!("model/{name}"), value.to_string())?;
            }
            case.random.pick(&all).0
        }
        _ => *case.random.pick(&["task.json", "task.json", "tokenizer_config.json"]),
    };
    let place = format!("model/{name}");
    let seed: Value = serde_json::from_slice(&case.read(&place)?)?;
    damage(case, &place, &seed)?;
    let attempt = ask(case, model, "model");
    let ran = case.run(attempt)?;
    expect_finite(case, &ran);
    Ok(())
}

fn damage(case: &mut Case<'_>, place: &str, seed: &Value) -> Result<()> {
    let damaged = match case.random.below(6) {
        0 => mutate::text(&mut case.random, &seed.to_string()),
        _ => mutate::json(&mut case.random, seed).into_bytes(),
    };
    case.write(place, damaged)
}
