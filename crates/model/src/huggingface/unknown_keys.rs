use super::any_model::read_as_all;
use super::fields::Fields;
use super::keys::CONFIG_KEYS;
use super::{generation, sentence};
use crate::Result;
use std::path::Path;

/// The keys in a folder's settings files (`config.json`, `generation_config.json`, those of sentence-transformers) that
/// nothing is known of: each file with its keys. They are not followed, and what they would do is not known.
///
/// # Errors
/// Those of the files' readers.
pub fn unknown_settings(folder: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let mut unknown = Vec::new();
    if let Some(fields) = Fields::read_if_present(&folder.join("config.json"))? {
        unknown.push(("config.json".to_owned(), of_config(&fields)?));
    }
    unknown.push((generation::GENERATION.to_owned(), generation::unknown(folder)?));
    unknown.extend(sentence::unknown(folder)?);
    unknown.retain(|(_, keys)| !keys.is_empty());
    Ok(unknown)
}

/// As [`unknown_settings`], of a `config.json`: by all that can be read of it. A T5's is that of an encoder, too.
fn of_config(fields: &Fields) -> Result<Vec<String>> {
    let Some(model_type) = fields.text("model_type")?.map(str::to_owned) else {
        return Ok(CONFIG_KEYS.unknown(fields));
    };
    if model_type.starts_with("cloze-") {
        // Its reader refuses what it does not know.
        return Ok(Vec::new());
    }
    match read_as_all(fields, &model_type).iter().any(Result::is_ok) {
        true => Ok(CONFIG_KEYS.unknown(fields)),
        // Whoever reads it for its use says why it cannot be.
        false => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::PretrainedConfig;
    use super::super::fields::ALIASES;
    use super::super::keys::{FOLLOWED_IN_DECODING, GENERATION_KEYS, NOT_FOLLOWED_IN_DECODING};
    use super::*;
    use serde_json::{Map, Value, json};
    use std::collections::BTreeSet;

    /// `{version: {model_type: {key: default}}}`, see `tests/fixtures/settings/export.py`.
    fn golden() -> Map<String, Value> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/settings/keys.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn every_key_of_transformers_classes_is_known() {
        let golden = golden();
        assert_eq!(golden.keys().collect::<Vec<_>>(), ["4.57.6", "5.24.0"]);
        let mut unknown = BTreeSet::new();
        let mut count = 0;
        for (version, kinds) in &golden {
            let classes = kinds.as_object().unwrap().iter();
            for (kind, keys) in
                classes.filter(|(kind, _)| !["generation", "aliases"].contains(&kind.as_str()))
            {
                let keys = keys.as_object().unwrap().clone();
                let fields = Fields::of("config.json".as_ref(), keys);
                let found = of_config(&fields).unwrap();
                unknown.extend(found.into_iter().map(|key| format!("{version} {kind}: {key}")));
                // The class's own defaults are no reason to refuse a model.
                CONFIG_KEYS
                    .check_left_over(&fields)
                    .unwrap_or_else(|error| panic!("{version} {kind}: {error}"));
                count += 1;
            }
        }
        assert!(count >= 40);
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    #[test]
    fn a_key_has_the_other_names_that_its_class_has_for_it() {
        let golden = golden();
        let mut count = 0;
        for (kind, aliases) in ALIASES {
            for (alias, key) in *aliases {
                let known = |version: &str| golden[version]["aliases"][kind][alias] == *key;
                assert!(known("4.57.6") || known("5.24.0"), "{kind}: {alias}");
                let read = |json: Value| {
                    let fields = Fields::of("config.json".as_ref(), json.as_object().unwrap().clone());
                    fields.size(key).unwrap()
                };
                let mut map = json!({ "model_type": kind });
                map[alias] = 7.into();
                assert_eq!(read(map.clone()), Some(7));
                map[key] = 8.into();
                assert_eq!(read(map), Some(8));
                count += 1;
            }
        }
        assert_eq!(count, ALIASES.iter().map(|(_, aliases)| aliases.len()).sum::<usize>());
    }

    #[test]
    fn every_key_of_decoding_is_known() {
        let followed = generation::followed();
        let expected: BTreeSet<String> = FOLLOWED_IN_DECODING.iter().map(|key| (*key).to_owned()).collect();
        assert_eq!(followed, expected);
        let not_followed: Vec<&str> = GENERATION_KEYS.neutral.iter().map(|(key, _)| *key).collect();
        assert_eq!(not_followed, NOT_FOLLOWED_IN_DECODING);
        for kinds in golden().values() {
            let fields = Fields::of(
                "generation_config.json".as_ref(),
                kinds["generation"].as_object().unwrap().clone(),
            );
            for (key, value) in fields.left_over().filter(|(key, _)| !followed.contains(*key)) {
                assert!(GENERATION_KEYS.has(key), "{key}");
                GENERATION_KEYS.check(&fields, key, value).unwrap();
            }
        }
    }

    #[test]
    fn what_is_not_followed_is_refused_and_what_is_unknown_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let path = folder.path().join("config.json");
        for (key, value) in [("quantization_config", r#"{"bits": 4}"#), ("add_cross_attention", "true")] {
            write("config.json", &format!(r#"{{"model_type": "bert", "{key}": {value}}}"#));
            let error = PretrainedConfig::read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("config.json: `{key}` is ")), "{error}");
        }
        write(
            "config.json",
            r#"{"model_type": "bert", "pruned_heads": {}, "quantization_config": null, "hidden_sise": 8}"#,
        );
        write("generation_config.json", r#"{"num_beams": 2, "nonsense": true, "use_cache": true}"#);
        write("config_sentence_transformers.json", r#"{"prompts": {}, "novelty": 1, "__version__": {}}"#);
        PretrainedConfig::read(&path).unwrap();
        let unknown = unknown_settings(folder.path()).unwrap();
        let expected = [
            ("config.json", "hidden_sise"),
            ("generation_config.json", "nonsense"),
            ("config_sentence_transformers.json", "novelty"),
        ];
        let found: Vec<(&str, &str)> =
            unknown.iter().map(|(file, keys)| (file.as_str(), keys[0].as_str())).collect();
        assert_eq!(found, expected);
    }
}
