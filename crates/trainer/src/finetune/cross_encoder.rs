//! The activation that sentence-transformers' `CrossEncoder` applies to a model's single output: an entry in
//! `config.json` that transformers ignores.

use super::section::ValueLoss;
use crate::{Result, TrainerError};
use cloze_files::write_atomic;
use cloze_model::ModelError;
use serde_json::{Value, json};
use std::path::Path;

/// The key of sentence-transformers' own settings, and that of the function.
const SECTION: &str = "sentence_transformers";
const ACTIVATION: &str = "activation_fn";
/// The function's key before sentence-transformers 4.
const OLD_ACTIVATION: &str = "sbert_ce_default_activation_function";
/// The file of sentence-transformers 6.
const OWN: &str = "config_sentence_transformers.json";

/// Adds the function to the `config.json` of a saved single-output model.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn write_activation(folder: &Path, loss: ValueLoss) -> Result<()> {
    let class = match loss {
        ValueLoss::SquaredError => "torch.nn.modules.linear.Identity",
        ValueLoss::BinaryCrossEntropy => "torch.nn.modules.activation.Sigmoid",
    };
    let mut config = read(folder, "config.json")?;
    config[SECTION] = json!({ ACTIVATION: class });
    Ok(write_atomic(&folder.join("config.json"), format!("{config:#}\n").as_bytes())?)
}

/// The loss that matches a folder's function. As in `CrossEncoder` and the pipelines of transformers, the
/// default is the sigmoid, unless `problem_type` is `regression`.
///
/// # Errors
/// A file that cannot be read, another function, or a prompt before every text.
pub(super) fn loss_of(folder: &Path) -> Result<ValueLoss> {
    let config = read(folder, "config.json")?;
    // sentence-transformers 6 has a file of its own, which takes precedence.
    let own = match folder.join(OWN).symlink_metadata() {
        Ok(_) => read(folder, OWN)?,
        Err(_) => Value::Null,
    };
    let is_own = own["model_type"] == "CrossEncoder";
    if let Some(prompt) = own["default_prompt_name"].as_str().filter(|_| is_own) {
        return Err(ModelError::Config(format!(
            "{}: `default_prompt_name` is \"{}\", expected null: a cross-encoder's prompts are not supported",
            folder.join(OWN).display(),
            prompt.escape_debug()
        ))
        .into());
    }
    let said = [
        own[ACTIVATION].as_str().filter(|_| is_own),
        config[SECTION][ACTIVATION].as_str(),
        config[OLD_ACTIVATION].as_str(),
    ];
    let class = said.into_iter().flatten().next().unwrap_or(match config["problem_type"].as_str() {
        Some("regression") => "Identity",
        _ => "Sigmoid",
    });
    match class.rsplit('.').next().unwrap_or_default() {
        "Sigmoid" => Ok(ValueLoss::BinaryCrossEntropy),
        "Identity" => Ok(ValueLoss::SquaredError),
        _ => Err(ModelError::Config(format!(
            "{}: the activation `{}` is not supported, expected Identity or Sigmoid",
            folder.join("config.json").display(),
            class.escape_debug()
        ))
        .into()),
    }
}

fn read(folder: &Path, file: &str) -> Result<Value> {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
    let malformed = |error: serde_json::Error| ModelError::Config(format!("{}: {error}", path.display()));
    let config: Value = serde_json::from_str(&text).map_err(malformed)?;
    match config.is_object() {
        true => Ok(config),
        false => Err(ModelError::Config(format!("{}: expected an object", path.display())).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        for (config, expected) in [
            (r#"{"hidden_size": 8}"#, ValueLoss::BinaryCrossEntropy),
            (r#"{"problem_type": "regression"}"#, ValueLoss::SquaredError),
            (
                r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}"#,
                ValueLoss::SquaredError,
            ),
            (
                r#"{"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}"#,
                ValueLoss::BinaryCrossEntropy,
            ),
        ] {
            std::fs::write(&path, config).unwrap();
            assert_eq!(loss_of(folder.path()).unwrap(), expected, "{config}");
        }
        for loss in [ValueLoss::BinaryCrossEntropy, ValueLoss::SquaredError] {
            std::fs::write(&path, r#"{"hidden_size": 8}"#).unwrap();
            write_activation(folder.path(), loss).unwrap();
            assert_eq!(loss_of(folder.path()).unwrap(), loss);
            let config = read(folder.path(), "config.json").unwrap();
            assert_eq!(config["hidden_size"], 8);
        }
        std::fs::write(&path, r#"{"sentence_transformers": {"activation_fn": "a.Tanh"}}"#).unwrap();
        let error = loss_of(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with(
            "config.json: the activation `a.Tanh` is not supported, expected Identity or Sigmoid"
        ));
        // As sentence-transformers 6.2 saves it.
        std::fs::write(&path, "{}").unwrap();
        let own = folder.path().join(OWN);
        let of = |activation: &str, prompt: &str| {
            let text = format!(
                r#"{{"model_type": "CrossEncoder", "activation_fn": "{activation}", "default_prompt_name": {prompt}}}"#
            );
            std::fs::write(&own, text).unwrap();
            loss_of(folder.path()).map_err(|error| error.to_string())
        };
        assert_eq!(of("torch.nn.modules.linear.Identity", "null"), Ok(ValueLoss::SquaredError));
        assert_eq!(of("torch.nn.modules.activation.Sigmoid", "null"), Ok(ValueLoss::BinaryCrossEntropy));
        let error = of("torch.nn.modules.linear.Identity", "\"query\"").unwrap_err();
        assert!(error.contains("`default_prompt_name` is \"query\""), "{error}");
        std::fs::remove_file(&own).unwrap();
        std::fs::write(&path, "[]").unwrap();
        let error = write_activation(folder.path(), ValueLoss::SquaredError).unwrap_err().to_string();
        assert!(error.ends_with("config.json: expected an object"), "{error}");
    }
}
