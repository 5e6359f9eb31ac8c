use crate::bert::Pooling;
use crate::{ModelError, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How a sentence-transformers folder makes embeddings of a model's states: `modules.json` and the files
/// it names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentenceConfig {
    /// The ways of pooling that are switched on, such as `mean_tokens`; empty for a folder without them.
    pub pooling_modes: Vec<String>,
    /// Whether embeddings are scaled to length 1.
    pub normalize: bool,
    /// The most tokens of a sentence, special ones among them.
    pub max_len: Option<usize>,
    /// Whether the text is lower-cased before the tokenizer sees it.
    pub lowercase: bool,
}

#[derive(Deserialize)]
struct ModuleEntry {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct SentenceBert {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

impl SentenceConfig {
    /// Reads a folder's `modules.json`, `sentence_bert_config.json` and pooling configuration; none for a
    /// folder without `modules.json`.
    ///
    /// # Errors
    /// A file that does not parse; a module other than the encoder, pooling and normalisation.
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("modules.json");
        if !path.is_file() {
            return Ok(None);
        }
        let mut config = Self::default();
        for module in read_json::<Vec<ModuleEntry>>(&path)? {
            // The last part of a class's path: packages were renamed over the years.
            match module.kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => {
                    let path = folder.join(&module.path).join("sentence_bert_config.json");
                    if path.is_file() {
                        let found: SentenceBert = read_json(&path)?;
                        (config.max_len, config.lowercase) = (found.max_seq_length, found.do_lower_case);
                    }
                }
                "Pooling" => {
                    config.pooling_modes =
                        pooling_modes(&read_json(&folder.join(&module.path).join("config.json"))?);
                }
                "Normalize" => config.normalize = true,
                _ => {
                    return Err(ModelError::Config(format!(
                        "{}: module `{}` is not supported, expected Transformer, Pooling and Normalize",
                        path.display(),
                        module.kind
                    )));
                }
            }
        }
        Ok(Some(config))
    }

    /// The pooling that this crate has for the folder's; mean, as sentence-transformers has it, where none
    /// is named.
    ///
    /// # Errors
    /// [`ModelError::Config`] for another one, or several at once.
    pub fn pooling(&self) -> Result<Pooling> {
        match &*self.pooling_modes {
            [] => Ok(Pooling::Mean),
            [one] if one == "mean_tokens" => Ok(Pooling::Mean),
            [one] if one == "cls_token" => Ok(Pooling::Cls),
            other => Err(ModelError::Config(format!(
                "pooling `{}` is not supported, expected `mean_tokens` or `cls_token`",
                other.join("` with `")
            ))),
        }
    }
}

/// `pooling_mode_mean_tokens: true`, or in newer files `pooling_mode: "mean"`.
fn pooling_modes(config: &BTreeMap<String, Value>) -> Vec<String> {
    let named = |mode: &Value| match mode.as_str() {
        Some("mean") => Some("mean_tokens".to_string()),
        Some("cls") => Some("cls_token".to_string()),
        other => other.map(str::to_string),
    };
    config
        .iter()
        .filter_map(|(key, value)| match key.strip_prefix("pooling_mode")? {
            "" => match value {
                Value::Array(modes) => Some(modes.iter().filter_map(named).collect()),
                mode => Some(named(mode).into_iter().collect()),
            },
            mode => (value == &Value::Bool(true)).then(|| vec![mode.trim_start_matches('_').to_string()]),
        })
        .flat_map(|modes: Vec<String>| modes)
        .collect()
}

/// Reads a JSON file; errors name it.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).map_err(|source| ModelError::Io { path: path.into(), source })?;
    serde_json::from_str(&text).map_err(|source| ModelError::Json { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(modules: &str, pooling: &str, bert: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for (name, text) in [
            ("modules.json", modules),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", bert),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    const MODULES: &str = r#"[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

    #[test]
    fn the_modules_decide() {
        let old = r#"{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#;
        let dir = folder(MODULES, old, r#"{"max_seq_length": 256, "do_lower_case": false}"#);
        let found = SentenceConfig::load(dir.path()).unwrap().unwrap();
        assert_eq!(found.pooling().unwrap(), Pooling::Mean);
        assert_eq!((found.max_len, found.normalize, found.lowercase), (Some(256), false, false));

        let new = r#"{"embedding_dimension": 384, "pooling_mode": "cls"}"#;
        let with_norm = MODULES.replace("}]", r#"}, {"path": "2", "type": "x.Normalize"}]"#);
        let dir = folder(&with_norm, new, r#"{"do_lower_case": true}"#);
        let found = SentenceConfig::load(dir.path()).unwrap().unwrap();
        assert_eq!(found.pooling().unwrap(), Pooling::Cls);
        assert_eq!((found.max_len, found.normalize, found.lowercase), (None, true, true));

        let none = tempfile::tempdir().unwrap();
        assert_eq!(SentenceConfig::load(none.path()).unwrap(), None);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let several = r#"{"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}"#;
        let dir = folder(MODULES, several, "{}");
        let message = SentenceConfig::load(dir.path()).unwrap().unwrap().pooling().unwrap_err().to_string();
        assert_eq!(
            message,
            "model configuration: pooling `cls_token` with `max_tokens` is not supported, \
             expected `mean_tokens` or `cls_token`"
        );
        let dir = folder(&MODULES.replace("models.Pooling", "models.Dense"), "{}", "{}");
        let message = SentenceConfig::load(dir.path()).unwrap_err().to_string();
        assert!(
            message.contains("module `sentence_transformers.models.Dense` is not supported"),
            "{message}"
        );
        let dir = folder(MODULES, "[", "{}");
        assert!(SentenceConfig::load(dir.path()).unwrap_err().to_string().contains("1_Pooling"));
    }
}
