//! Which of a model's files are needed.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

use crate::name::is_plain_path;

/// The configuration, which is required.
pub(crate) const CONFIG: &str = "config.json";

/// The list of sentence-transformers modules, which have their own folders.
pub(crate) const MODULES: &str = "modules.json";

/// Optional files, mainly the tokenizer's.
pub(crate) const OPTIONAL: &[&str] = &[
    MODULES,
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "generation_config.json",
];

/// Weights or shard indices; the first that exists is used.
pub(crate) const WEIGHTS: &[&str] = &[
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(default, rename = "type")]
    kind: String,
}

/// The listed configurations of the sentence-transformers modules in `modules.json`, and the weights of
/// `Dense` modules.
pub(crate) fn module_files(modules: &[u8], listed: &[String]) -> serde_json::Result<Vec<String>> {
    let modules: Vec<Module> = serde_json::from_slice(modules)?;
    let folders: Vec<String> = modules
        .iter()
        .filter(|module| !module.path.is_empty())
        .map(|module| format!("{}/", module.path))
        .collect();
    let belongs = |file: &&String| {
        file.ends_with(".json")
            && folders.iter().any(|folder| file.starts_with(folder))
            && is_plain_path(file)
    };
    let maps = modules.iter().filter(|module| !module.path.is_empty() && module.kind.ends_with("Dense"));
    let weights = maps.filter_map(|module| {
        let path = |name: &str| format!("{}/{name}", module.path);
        ["model.safetensors", "pytorch_model.bin"]
            .map(path)
            .into_iter()
            .find(|path| listed.contains(path) && is_plain_path(path))
    });
    Ok(listed.iter().filter(belongs).cloned().chain(weights).collect())
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The shards named by an index, or as an error the name of one outside the folder.
pub(crate) fn shards(index: &[u8]) -> Result<BTreeSet<String>, String> {
    let index: Index = serde_json::from_slice(index).map_err(|error| error.to_string())?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    match shards.iter().find(|shard| shard.contains('/') || !is_plain_path(shard)) {
        Some(shard) => Err(format!("shard {shard:?} is not a file of the model's folder")),
        None => Ok(shards),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_their_folders_configurations() {
        let modules = br#"[{"path": "", "type": "T"}, {"path": "1_Pooling", "type": "P"}, {"type": "N"}]"#;
        let listed =
            ["config.json", "1_Pooling/config.json", "1_Pooling/x.bin", "1_PoolingX/a.json", "onnx/a.json"];
        let found = module_files(modules, &listed.map(String::from)).unwrap();
        assert_eq!(found, ["1_Pooling/config.json"]);
        let modules = br#"[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#;
        let listed = ["2_Dense/config.json", "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors"]
            .map(String::from);
        let found = |listed: &[String]| module_files(modules, listed).unwrap();
        assert_eq!(found(&listed), ["2_Dense/config.json", "2_Dense/model.safetensors"]);
        assert_eq!(found(&listed[..2]), ["2_Dense/config.json", "2_Dense/pytorch_model.bin"]);
        let evil = module_files(br#"[{"path": ".."}]"#, &["../config.json".into()]).unwrap();
        assert!(evil.is_empty());
        assert!(module_files(b"{}", &[]).is_err());
    }

    #[test]
    fn shards_are_plain_files() {
        let found = shards(br#"{"weight_map": {"a": "1.bin", "b": "2.bin", "c": "1.bin"}}"#).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["1.bin", "2.bin"]);
        for evil in ["../1.bin", "/1.bin", "x/1.bin", "..", "", "a\\\\b"] {
            assert!(shards(format!(r#"{{"weight_map": {{"a": "{evil}"}}}}"#).as_bytes()).is_err(), "{evil}");
        }
    }
}
