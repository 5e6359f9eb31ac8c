use super::fields::{Fields, is_present};
use super::json_file::read_json;
use super::keys::SENTENCE_KEYS;
use super::names::listed;
use crate::bert::{Pooling, SentencePooling};
use crate::nearest;
use crate::{ModelError, Result};
use serde::Deserialize;
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

/// What `modules.json` should be.
const MODULES: &str = "a list of modules, each with a `type`";

#[derive(Deserialize)]
struct ModuleEntry {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

impl SentenceConfig {
    /// Reads a folder's `modules.json`, `sentence_bert_config.json`, pooling configuration and prompts; none for a folder
    /// without `modules.json`.
    ///
    /// # Errors
    /// A malformed file; a module other than the encoder, pooling, `Dense` and normalisation, or modules in another order.
    pub fn load(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("modules.json");
        if !is_present(&path) {
            return Ok(None);
        }
        let mut config = Self::default();
        let mut order = 0;
        for module in read_json::<Vec<ModuleEntry>>(&path, MODULES)? {
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
                    if let Some(fields) = encoder_file(&folder.join(&module.path))? {
                        (config.max_len, config.lowercase) = read_encoder(&fields)?;
                        SENTENCE_KEYS.check_left_over(&fields)?;
                    }
                }
                "Pooling" => {
                    let fields = Fields::read(&folder.join(&module.path).join("config.json"))?;
                    (config.pooling_modes, config.excludes_prompt) = read_pooling(&fields)?;
                    SENTENCE_KEYS.check_left_over(&fields)?;
                }
                "Dense" => config.dense.push(module.path),
                "Normalize" => {
                    check_normalize(&folder.join(&module.path))?;
                    config.normalize = true;
                }
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
        if let Some(fields) = Fields::read_if_present(&folder.join(WHOLE))? {
            read_whole(&fields, &mut config)?;
            SENTENCE_KEYS.check_left_over(&fields)?;
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

/// The file of a whole model: prompts, and how vectors are compared.
const WHOLE: &str = "config_sentence_transformers.json";

/// The files of an encoder, of which a folder has one: that of today, and those of the library's first years.
const ENCODER_FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

fn encoder_file(folder: &Path) -> Result<Option<Fields>> {
    match ENCODER_FILES.iter().map(|name| folder.join(name)).find(|path| is_present(path)) {
        Some(path) => Fields::read(&path).map(Some),
        None => Ok(None),
    }
}

/// The longest sentence, and whether it is lower-cased.
fn read_encoder(fields: &Fields) -> Result<(Option<usize>, bool)> {
    // Newer files say what the encoder is run for: states, or a cross-encoder's numbers.
    let known = |task: &str| ["feature-extraction", "sequence-classification"].contains(&task);
    if let Some(task) = fields.text("transformer_task")?.filter(|task| !known(task)) {
        let expected = "\"feature-extraction\" or \"sequence-classification\"";
        return Err(fields.refuse("transformer_task", &task.into(), expected));
    }
    fields.typed(
        "modality_config",
        "texts that go `forward` to `last_hidden_state` or `logits`",
        |value| {
            let text = value.get("text")?;
            let output = text.get("method_output_name")?.as_str()?;
            let known = text.get("method")? == "forward" && ["last_hidden_state", "logits"].contains(&output);
            known.then_some(())
        },
    )?;
    Ok((fields.size("max_seq_length")?, fields.flag("do_lower_case")?.unwrap_or(false)))
}

/// The modes, and whether prompts are left out.
fn read_pooling(fields: &Fields) -> Result<(Vec<String>, bool)> {
    Ok((pooling_modes(fields)?, !fields.flag("include_prompt")?.unwrap_or(true)))
}

fn read_whole(fields: &Fields, config: &mut SentenceConfig) -> Result<()> {
    let prompts = fields.typed("prompts", "an object of texts", |value| {
        let text = |(name, text): (&String, &Value)| Some((name.clone(), text.as_str()?.to_owned()));
        value.as_object()?.iter().map(text).collect::<Option<BTreeMap<_, _>>>()
    })?;
    config.prompts = prompts.unwrap_or_default();
    config.default_prompt = fields.text("default_prompt_name")?.map(str::to_owned);
    config.similarity = fields.text("similarity_fn_name")?.map(str::to_owned);
    Ok(())
}

/// Checks that a folder of the module `Normalize` scales sentences' vectors; older ones have no file.
fn check_normalize(folder: &Path) -> Result<()> {
    let Some(fields) = Fields::read_if_present(&folder.join("config.json"))? else { return Ok(()) };
    if fields.has("model_type") {
        // Without a path of its own the module is in the encoder's folder.
        return Ok(());
    }
    for key in ["module_input_name", "module_output_name"] {
        if let Some(name) = fields.text(key)?.filter(|name| *name != "sentence_embedding") {
            return Err(fields.refuse(key, &name.into(), "\"sentence_embedding\""));
        }
    }
    Ok(())
}

/// What is known of no key, by files. See [`unknown_settings`](super::unknown_settings).
pub(super) fn unknown(folder: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let mut unknown = Vec::new();
    let mut add = |name: String, fields: &Fields| unknown.push((name, SENTENCE_KEYS.unknown(fields)));
    let modules = folder.join("modules.json");
    if is_present(&modules) {
        for module in read_json::<Vec<ModuleEntry>>(&modules, MODULES)? {
            let inside = folder.join(&module.path);
            if module.kind.ends_with("Transformer")
                && let Some(fields) = encoder_file(&inside)?
            {
                read_encoder(&fields)?;
                add(
                    fields.path().strip_prefix(folder).unwrap_or(fields.path()).display().to_string(),
                    &fields,
                );
            }
            if module.kind.ends_with("Pooling") {
                let fields = Fields::read(&inside.join("config.json"))?;
                read_pooling(&fields)?;
                add(format!("{}/config.json", module.path), &fields);
            }
        }
    }
    if let Some(fields) = Fields::read_if_present(&folder.join(WHOLE))? {
        read_whole(&fields, &mut SentenceConfig::default())?;
        add(WHOLE.to_owned(), &fields);
    }
    Ok(unknown)
}

/// Newer files have `pooling_mode: "mean"` or a list of modes, older ones `pooling_mode_mean_tokens: true`.
fn pooling_modes(fields: &Fields) -> Result<Vec<String>> {
    let older: Vec<(&str, bool)> = MODES
        .iter()
        .map(|(name, key, _)| Ok((*name, fields.flag(key)?.unwrap_or(false))))
        .collect::<Result<_>>()?;
    match fields.value("pooling_mode") {
        Some(Value::Array(modes)) => return Ok(modes.iter().map(mode).collect()),
        Some(one) => return Ok(vec![mode(one)]),
        None => {}
    }
    let known = older.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.to_owned());
    // An unknown mode is an error later, unless it is off.
    let others = fields
        .left_over()
        .filter(|(key, value)| key.starts_with("pooling_mode_") && **value == Value::Bool(true));
    Ok(known.chain(others.map(|(key, _)| key.to_owned())).collect())
}

/// A mode as the file states it.
fn mode(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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

    const OF_BOTH: &str = r#"[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

    #[test]
    fn the_modules_decide() {
        let old = r#"{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#;
        let dir = folder(OF_BOTH, old, r#"{"max_seq_length": 256, "do_lower_case": false}"#);
        let found = SentenceConfig::load(dir.path()).unwrap().unwrap();
        assert_eq!(found.pooling().unwrap(), Pooling::Mean.into());
        assert_eq!((found.max_len, found.normalize, found.lowercase), (Some(256), false, false));

        let new = r#"{"embedding_dimension": 384, "pooling_mode": "cls"}"#;
        let with_norm = OF_BOTH.replace("}]", r#"}, {"path": "2", "type": "x.Normalize"}]"#);
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
        let dir = folder(OF_BOTH, r#"{"pooling_mode": "mean", "include_prompt": false}"#, "{}");
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
            SentenceConfig::load(folder(OF_BOTH, pooling, "{}").path()).unwrap().unwrap().pooling().unwrap()
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
            let dir = folder(OF_BOTH, pooling, "{}");
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
        let dir = folder(OF_BOTH, "[", "{}");
        assert!(SentenceConfig::load(dir.path()).unwrap_err().to_string().contains("1_Pooling"));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_absent() {
        for name in ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"] {
            let dir = folder(OF_BOTH, "{}", "{}");
            let path = dir.path().join(name);
            _ = fs::remove_file(&path);
            #[cfg(unix)]
            std::os::unix::fs::symlink("gone", &path).unwrap();
            #[cfg(not(unix))]
            fs::create_dir(&path).unwrap();
            let message = SentenceConfig::load(dir.path()).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn newer_and_older_files_of_an_encoder_are_read() {
        let dir = folder(OF_BOTH, "{}", "{}");
        let load = || SentenceConfig::load(dir.path());
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        // sentence-transformers 6.2.
        let newer = r#"{"transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}}"#;
        write(ENCODER_FILES[0], newer);
        assert_eq!(load().unwrap().unwrap().max_len, None);
        for (changed, key) in [
            (newer.replace("feature-extraction", "fill-mask"), "`transformer_task` is \"fill-mask\""),
            (newer.replace("last_hidden_state", "pooler_output"), "`modality_config` is "),
            (newer.replace('{', r#"{"query_length": 32, "#), "`query_length` is 32"),
        ] {
            write(ENCODER_FILES[0], &changed.replacen("{\"query_length\": 32, \"text\"", "{\"text\"", 1));
            let message = load().unwrap_err().to_string();
            assert!(message.contains(key) && message.contains(ENCODER_FILES[0]), "{message}");
        }
        fs::remove_file(dir.path().join(ENCODER_FILES[0])).unwrap();
        write("sentence_roberta_config.json", r#"{"max_seq_length": 75}"#);
        assert_eq!(load().unwrap().unwrap().max_len, Some(75));
    }
}
