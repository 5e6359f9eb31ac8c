use super::families::listed;
use crate::bert::{Pooling, SentencePooling};
use crate::nearest;
use crate::{ModelError, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// How a sentence-transformers folder makes embeddings from a model's states: `modules.json` and the files that it
/// names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentenceConfig {
    /// The enabled ways of pooling, such as `mean`, in the order in which they are concatenated; empty for a folder
    /// without them.
    pub pooling_modes: Vec<String>,
    /// The folders of the modules [`Dense`](super::Dense) that map the pooled states one after the other, in the model's folder.
    pub dense: Vec<String>,
    /// Whether embeddings are scaled to length 1.
    pub normalize: bool,
    /// The maximum number of tokens in a sentence, including special tokens.
    pub max_len: Option<usize>,
    /// Whether the text is lower-cased before tokenization.
    pub lowercase: bool,
    /// What may be put before a text, such as `"search_query: "`, by name.
    pub prompts: BTreeMap<String, String>,
    /// The name of the prompt before texts that are given none.
    pub default_prompt: Option<String>,
    /// Whether the states of a prompt's tokens are left out of the pooling.
    pub excludes_prompt: bool,
    /// How embeddings are compared, such as `cosine`, where the folder says it.
    pub similarity: Option<String>,
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

/// `config_sentence_transformers.json`
#[derive(Deserialize)]
struct SentencePrompts {
    prompts: Option<BTreeMap<String, String>>,
    default_prompt_name: Option<String>,
    similarity_fn_name: Option<String>,
}

impl SentenceConfig {
    /// Reads a folder's `modules.json`, `sentence_bert_config.json`, pooling configuration and prompts; none for a folder
    /// without `modules.json`.
    ///
    /// # Errors
    /// A malformed file; a module other than the encoder, pooling, `Dense` and normalisation, or modules in another order.
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("modules.json");
        if !path.is_file() {
            return Ok(None);
        }
        let mut config = Self::default();
        let mut order = 0;
        for module in read_json::<Vec<ModuleEntry>>(&path, "a list of modules, each with a `type`")? {
            // The last part of a class's path: packages were renamed over the years.
            let kind = module.kind.rsplit('.').next().unwrap_or_default();
            let place = ORDER.iter().position(|known| *known == kind).unwrap_or(order);
            if place < order {
                return Err(ModelError::Config(format!(
                    "{}: module `{}` comes after `{}`, expected the order {}",
                    path.display(),
                    module.kind,
                    ORDER[order],
                    ORDER.join(", ")
                )));
            }
            order = place;
            match kind {
                "Transformer" => {
                    let path = folder.join(&module.path).join("sentence_bert_config.json");
                    if path.is_file() {
                        let found: SentenceBert = read_json(&path, "a sentence encoder's configuration")?;
                        (config.max_len, config.lowercase) = (found.max_seq_length, found.do_lower_case);
                    }
                }
                "Pooling" => {
                    let path = folder.join(&module.path).join("config.json");
                    let pooling = read_json(&path, "a pooling configuration")?;
                    config.pooling_modes = pooling_modes(&pooling);
                    config.excludes_prompt = pooling.get("include_prompt") == Some(&Value::Bool(false));
                }
                "Dense" => config.dense.push(module.path),
                "Normalize" => config.normalize = true,
                _ => {
                    return Err(ModelError::Config(format!(
                        "{}: module `{}` is not supported, expected one of {}",
                        path.display(),
                        module.kind,
                        ORDER.join(", ")
                    )));
                }
            }
        }
        let path = folder.join("config_sentence_transformers.json");
        if path.is_file() {
            let found: SentencePrompts = read_json(&path, "a configuration of sentence-transformers")?;
            (config.prompts, config.default_prompt) =
                (found.prompts.unwrap_or_default(), found.default_prompt_name);
            config.similarity = found.similarity_fn_name;
        }
        Ok(Some(config))
    }

    /// Writes the files that [`load`](Self::load) reads into the folder of an encoder whose states have `d_model` features.
    ///
    /// # Errors
    /// An unknown pooling mode; modules `Dense`, which have weights; a file that cannot be written.
    pub fn save(&self, folder: &Path, d_model: usize) -> Result<()> {
        self.pooling()?;
        self.check_trained()?;
        let mut modules = vec![("", "Transformer"), ("1_Pooling", "Pooling")];
        if self.normalize {
            modules.push(("2_Normalize", "Normalize"));
        }
        let modules: Vec<Value> = modules
            .into_iter()
            .enumerate()
            .map(|(idx, (path, kind))| {
                let kind = format!("sentence_transformers.models.{kind}");
                json!({ "idx": idx, "name": idx.to_string(), "path": path, "type": kind })
            })
            .collect();
        let mean = ["mean".to_owned()];
        let on = if self.pooling_modes.is_empty() { &mean[..] } else { &self.pooling_modes };
        let mut pooling = json!({
            "word_embedding_dimension": d_model,
            "include_prompt": !self.excludes_prompt,
        });
        for (name, key, _) in MODES {
            pooling[key] = on.iter().any(|mode| mode == name).into();
        }
        // A list says in which order several stand, which the keys of older files cannot.
        if on.len() > 1 {
            pooling["pooling_mode"] = on.into();
        }
        let bert = json!({ "max_seq_length": self.max_len, "do_lower_case": self.lowercase });
        let prompts = json!({
            "prompts": self.prompts,
            "default_prompt_name": self.default_prompt,
            "similarity_fn_name": self.similarity,
        });
        // sentence-transformers looks for a folder of each module that has a path.
        for path in ["1_Pooling", "2_Normalize"].into_iter().take(1 + usize::from(self.normalize)) {
            let path = folder.join(path);
            fs::create_dir_all(&path).map_err(ModelError::io("create", &path))?;
        }
        for (name, value) in [
            ("modules.json", Value::Array(modules)),
            ("1_Pooling/config.json", pooling),
            ("sentence_bert_config.json", bert),
            ("config_sentence_transformers.json", prompts),
        ] {
            let path = folder.join(name);
            fs::write(&path, format!("{value:#}\n")).map_err(ModelError::io("write", &path))?;
        }
        Ok(())
    }

    /// Checks that an encoder of these modules can be trained and saved, as one with modules `Dense` cannot.
    ///
    /// # Errors
    /// [`ModelError::Config`].
    pub fn check_trained(&self) -> Result<()> {
        match self.dense.first() {
            None => Ok(()),
            Some(path) => Err(ModelError::Config(format!(
                "the module `{path}` (Dense) cannot be trained, expected Transformer, Pooling and Normalize alone"
            ))),
        }
    }

    /// The prompt of this name; without a name, the default prompt, or nothing if there is none.
    ///
    /// # Errors
    /// [`ModelError::Config`] for an unknown name.
    pub fn prompt(&self, name: Option<&str>) -> Result<&str> {
        let Some(name) = name.or(self.default_prompt.as_deref()) else { return Ok("") };
        self.prompts.get(name).map(String::as_str).ok_or_else(|| {
            let names = || self.prompts.keys().map(String::as_str);
            let known = match self.prompts.is_empty() {
                true => "none: the folder has no prompts".into(),
                false => listed(names()),
            };
            let meant = nearest(name, names()).map(|near| format!("; did you mean \"{near}\"?"));
            let (name, meant) = (name.escape_debug(), meant.unwrap_or_default());
            ModelError::Config(format!("prompt \"{name}\" is unknown, expected {known}{meant}"))
        })
    }

    /// The name of a pooling among the [modes](Self::pooling_modes).
    pub fn mode(pooling: Pooling) -> &'static str {
        MODES.iter().find(|(.., known)| *known == pooling).map_or("mean", |(name, ..)| name)
    }

    /// The folder's pooling; mean if it names none, as in sentence-transformers.
    ///
    /// # Errors
    /// [`ModelError::Config`] for an unknown mode.
    pub fn pooling(&self) -> Result<SentencePooling> {
        let known = |mode: &String| {
            MODES.iter().find_map(|(name, _, pooling)| (name == mode).then_some(*pooling)).ok_or_else(|| {
                let names = MODES.map(|(name, ..)| name);
                ModelError::Config(format!(
                    "pooling `{}` is not supported, expected one of {}",
                    mode.escape_debug(),
                    names.join(", ")
                ))
            })
        };
        match &*self.pooling_modes {
            [] => Ok(Pooling::Mean.into()),
            modes => SentencePooling::concatenated(modes.iter().map(known).collect::<Result<_>>()?),
        }
    }
}

/// The modules, in the order in which they stand.
const ORDER: [&str; 4] = ["Transformer", "Pooling", "Dense", "Normalize"];

/// The modes by their names in newer files and their keys in older ones, in the order in which sentence-transformers
/// concatenates those of older files.
const MODES: [(&str, &str, Pooling); 6] = [
    ("cls", "pooling_mode_cls_token", Pooling::Cls),
    ("max", "pooling_mode_max_tokens", Pooling::Max),
    ("mean", "pooling_mode_mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("weightedmean", "pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("lasttoken", "pooling_mode_lasttoken", Pooling::LastToken),
];

/// Newer files have `pooling_mode: "mean"` or a list of modes, older ones `pooling_mode_mean_tokens: true`.
fn pooling_modes(config: &BTreeMap<String, Value>) -> Vec<String> {
    match config.get("pooling_mode") {
        Some(Value::Array(modes)) => return modes.iter().map(mode).collect(),
        Some(one) if !one.is_null() => return vec![mode(one)],
        _ => {}
    }
    let is_on = |key: &str| config.get(key) == Some(&Value::Bool(true));
    let known = MODES.iter().filter(|(_, key, _)| is_on(key)).map(|(name, ..)| (*name).to_owned());
    // An unknown mode is an error later, unless it is off.
    let others = config.keys().filter(|key| key.starts_with("pooling_mode_") && is_on(key));
    let others = others.filter(|key| MODES.iter().all(|(_, known, _)| known != key));
    known.chain(others.cloned()).collect()
}

/// A mode as the file states it.
fn mode(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads a JSON file that should be `what`; errors name both.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T> {
    let text = fs::read_to_string(path).map_err(ModelError::io("read", path))?;
    serde_json::from_str(&text).map_err(|source| ModelError::Json { path: path.into(), what, source })
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
        assert_eq!(found.pooling().unwrap(), Pooling::Mean.into());
        assert_eq!((found.max_len, found.normalize, found.lowercase), (Some(256), false, false));

        let new = r#"{"embedding_dimension": 384, "pooling_mode": "cls"}"#;
        let with_norm = MODULES.replace("}]", r#"}, {"path": "2", "type": "x.Normalize"}]"#);
        let dir = folder(&with_norm, new, r#"{"do_lower_case": true}"#);
        let found = SentenceConfig::load(dir.path()).unwrap().unwrap();
        assert_eq!(found.pooling().unwrap(), Pooling::Cls.into());
        assert_eq!((found.max_len, found.normalize, found.lowercase), (None, true, true));

        let none = tempfile::tempdir().unwrap();
        assert_eq!(SentenceConfig::load(none.path()).unwrap(), None);
    }

    #[test]
    fn what_is_saved_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let config = SentenceConfig {
            pooling_modes: vec!["mean".into(), "cls".into()],
            dense: Vec::new(),
            normalize: true,
            max_len: Some(64),
            lowercase: true,
            prompts: [("query".to_owned(), "Q: ".to_owned())].into(),
            default_prompt: Some("query".into()),
            excludes_prompt: false,
            similarity: Some("cosine".into()),
        };
        config.save(folder.path(), 8).unwrap();
        assert_eq!(SentenceConfig::load(folder.path()).unwrap(), Some(config));
        SentenceConfig::default().save(folder.path(), 8).unwrap();
        let found = SentenceConfig::load(folder.path()).unwrap().unwrap();
        assert_eq!((found.pooling_modes, found.normalize), (vec!["mean".to_owned()], false));
    }

    #[test]
    fn prompts_are_found_by_name() {
        let dir = folder(MODULES, r#"{"pooling_mode": "mean", "include_prompt": false}"#, "{}");
        let found = || SentenceConfig::load(dir.path()).unwrap().unwrap();
        assert!(found().excludes_prompt);
        assert_eq!(found().prompt(None).unwrap(), "");
        let message = found().prompt(Some("query")).unwrap_err().to_string();
        assert!(message.ends_with("prompt \"query\" is unknown, expected none: the folder has no prompts"));
        let with = |json: &str| {
            fs::write(dir.path().join("config_sentence_transformers.json"), json).unwrap();
            found()
        };
        let prompts = r#""prompts": {"query": "Q: ", "document": "D: "}"#;
        let config = with(&format!(r#"{{{prompts}, "default_prompt_name": null, "__version__": {{}}}}"#));
        assert_eq!((config.prompt(Some("document")).unwrap(), config.prompt(None).unwrap()), ("D: ", ""));
        let message = config.prompt(Some("querry")).unwrap_err().to_string();
        let expected = "expected \"document\" or \"query\"; did you mean \"query\"?";
        assert!(message.ends_with(expected), "{message}");
        let config = with(&format!(r#"{{{prompts}, "default_prompt_name": "query"}}"#));
        assert_eq!(config.prompt(None).unwrap(), "Q: ");
        assert!(with(r#"{"default_prompt_name": "query"}"#).prompt(None).is_err());
    }

    #[test]
    fn several_stand_side_by_side() {
        let pooling = |pooling: &str| {
            SentenceConfig::load(folder(MODULES, pooling, "{}").path()).unwrap().unwrap().pooling().unwrap()
        };
        let of = |poolings: &[Pooling]| SentencePooling::concatenated(poolings.to_vec()).unwrap();
        // Old files have their own order; newer ones state it, and take precedence.
        let old = r#"{"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true,
            "pooling_mode_max_tokens": true, "pooling_mode_weightedmean_tokens": false}"#;
        assert_eq!(pooling(old), of(&[Pooling::Max, Pooling::Mean, Pooling::LastToken]));
        let new =
            r#"{"pooling_mode": ["weightedmean", "mean_sqrt_len_tokens"], "pooling_mode_cls_token": true}"#;
        assert_eq!(pooling(new), of(&[Pooling::WeightedMean, Pooling::MeanSqrtLen]));
        assert_eq!(pooling(r#"{"pooling_mode_mean_tokens": false}"#), Pooling::Mean.into());
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let error = |pooling: &str| {
            let dir = folder(MODULES, pooling, "{}");
            SentenceConfig::load(dir.path()).unwrap().unwrap().pooling().unwrap_err().to_string()
        };
        let expected = "expected one of cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken";
        for (config, mode) in [
            (r#"{"pooling_mode_mean_tokens": true, "pooling_mode_none": true}"#, "pooling_mode_none"),
            (r#"{"pooling_mode": ["cls", "attention"]}"#, "attention"),
            (r#"{"pooling_mode": 7}"#, "7"),
        ] {
            let message = format!("model configuration: pooling `{mode}` is not supported, {expected}");
            assert_eq!(error(config), message);
        }
        let modules = |kinds: &[&str]| {
            let one =
                |kind: &&str| json!({ "path": kind, "type": format!("sentence_transformers.models.{kind}") });
            folder(&Value::from_iter(kinds.iter().map(one)).to_string(), "{}", "{}")
        };
        for (kinds, expected) in [
            (
                &["Transformer", "CNN"][..],
                "models.CNN` is not supported, expected one of Transformer, Pooling, Dense",
            ),
            (
                &["Transformer", "Normalize", "Dense"],
                "models.Dense` comes after `Normalize`, expected the order",
            ),
        ] {
            let message = SentenceConfig::load(modules(kinds).path()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let found =
            SentenceConfig::load(modules(&["Transformer", "Dense", "Dense"]).path()).unwrap().unwrap();
        assert_eq!(found.dense, ["Dense"; 2]);
        let message = found.save(tempfile::tempdir().unwrap().path(), 8).unwrap_err().to_string();
        assert!(message.contains("the module `Dense` (Dense) cannot be trained"), "{message}");
        let dir = folder(MODULES, "[", "{}");
        assert!(SentenceConfig::load(dir.path()).unwrap_err().to_string().contains("1_Pooling"));
    }
}
