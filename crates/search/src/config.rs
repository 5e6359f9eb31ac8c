//! Settings of an index and of searches.

use crate::{Condition, Result, SearchError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The similarity of two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// The cosine of the angle between them: vectors are scaled to length 1.
    #[default]
    Cosine,
    /// Their dot product.
    Dot,
    /// Their distance; smaller is nearer.
    Euclidean,
}

/// The numbers by which rows are compared. Codes are stored with the 32-bit vectors, used to rescore the best
/// rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// bfloat16; nothing else is stored.
    Bf16,
    /// 8-bit numbers, rescored by the vectors.
    #[default]
    Int8,
    /// A sign bit per feature, rescored by the vectors.
    Binary,
}

/// Settings of the graph (hierarchical navigable small worlds, Malkov and Yashunin 2018).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphConfig {
    /// The neighbours of a row in the upper layers, the paper's `M`; twice as many in the lowest one.
    pub neighbours: usize,
    /// Number of candidates kept for a new row's neighbours, the paper's `efConstruction`.
    pub breadth: usize,
    /// Minimum number of rows for a graph.
    pub from_rows: usize,
    /// The seed for assigning rows to layers.
    pub seed: u64,
}

impl Default for GraphConfig {
    fn default() -> Self {
        Self { neighbours: 16, breadth: 100, from_rows: 10_000, seed: 0 }
    }
}

/// The model that made the vectors, so that another model's vectors are not compared with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelIdentity {
    /// The model's name; not compared.
    pub name: String,
    /// A hash of the model's files, [`ModelIdentity::hash_of`].
    pub hash: String,
    /// How a text's states are pooled into one vector.
    pub pooling: String,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
}

/// A model's configuration, and sentence-transformers' own files.
const SETTINGS: [&str; 4] =
    ["config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"];
/// A tokenizer with its settings; a folder without it has some of the others.
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_SETTINGS: &str = "tokenizer_config.json";
const OTHER_TOKENIZERS: [&str; 12] = [
    "added_tokens.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "source.spm",
    "special_tokens_map.json",
    "spiece.model",
    "spm.model",
    "target.spm",
    "target_vocab.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
];
/// Weights, of which the first found are read, and the suffix of a shard index.
const WEIGHTS: [&str; 5] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.gguf",
];
const INDEX: &str = ".index.json";

impl ModelIdentity {
    /// A hash of a model folder's relevant files and their names: weights, configuration and tokenizer, and
    /// for sentence-transformers also its `Dense` modules. Other files have no effect.
    ///
    /// # Errors
    /// [`SearchError::Io`].
    pub fn hash_of(folder: &Path) -> Result<String> {
        let is_there = |name: &String| folder.join(name).is_file();
        let given = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).filter(is_there).collect();
        let mut names: Vec<String> = given(&SETTINGS);
        names.extend(given(&[TOKENIZER_SETTINGS]));
        let tokenizer: Vec<String> = given(&[TOKENIZER]);
        names.extend(if tokenizer.is_empty() { given(&OTHER_TOKENIZERS) } else { tokenizer });
        if let Some(weights) = given(&WEIGHTS).into_iter().next() {
            if weights.ends_with(INDEX) {
                names.extend(shards(&folder.join(&weights))?.into_iter().filter(is_there));
            }
            names.push(weights);
        }
        for module in dense_modules(folder)? {
            let in_module = |name: &str| format!("{module}/{name}");
            names.extend(Some(in_module("config.json")).filter(is_there));
            names
                .extend(["model.safetensors", "pytorch_model.bin"].map(in_module).into_iter().find(is_there));
        }
        hash_files(folder, names)
    }

    /// The hash computed by earlier versions: of all top-level files whose names end like a model's.
    ///
    /// # Errors
    /// [`SearchError::Io`].
    pub fn earlier_hash_of(folder: &Path) -> Result<String> {
        let decides = |name: &str| {
            let endings = [".safetensors", ".bin", ".model", ".txt", ".json"];
            endings.iter().any(|ending| name.ends_with(ending))
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(SearchError::io("read", folder))? {
            let entry = entry.map_err(SearchError::io("read", folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if decides(&name) && entry.path().is_file() {
                names.push(name);
            }
        }
        let maps = dense_modules(folder)?.into_iter().flat_map(|module| {
            ["model.safetensors", "pytorch_model.bin", "config.json"].map(|file| format!("{module}/{file}"))
        });
        names.extend(maps.filter(|name| folder.join(name).is_file()));
        hash_files(folder, names)
    }
}

/// A hash of files and their names, in name order.
fn hash_files(folder: &Path, mut names: Vec<String>) -> Result<String> {
    names.sort();
    let mut all = blake3::Hasher::new();
    for name in names {
        let path = folder.join(&name);
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap_rayon(&path).map_err(SearchError::io("read", &path))?;
        // The name with its length, so that it does not run into the hash.
        all.update(&(name.len() as u64).to_le_bytes())
            .update(name.as_bytes())
            .update(hasher.finalize().as_bytes());
    }
    Ok(all.finalize().to_hex().to_string())
}

/// The files named by a shard index; empty if malformed, which is reported when the model is read.
fn shards(path: &Path) -> Result<BTreeSet<String>> {
    #[derive(Default, Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = fs::read(path).map_err(SearchError::io("read", path))?;
    let index: Index = serde_json::from_slice(&text).unwrap_or_default();
    Ok(index.weight_map.into_values().collect())
}

/// The folders of the dense modules in a sentence-transformers folder; empty if `modules.json` is missing or
/// malformed, which is reported when the model is read.
fn dense_modules(folder: &Path) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(default)]
        path: String,
        #[serde(rename = "type")]
        kind: String,
    }
    let path = folder.join("modules.json");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let text = fs::read(&path).map_err(SearchError::io("read", &path))?;
    let modules: Vec<Module> = serde_json::from_slice(&text).unwrap_or_default();
    Ok(modules
        .into_iter()
        .filter(|module| module.kind.ends_with("Dense"))
        .map(|module| module.path)
        .collect())
}

/// Settings of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexConfig {
    /// Number of features per vector.
    pub width: usize,
    /// The similarity of two vectors.
    pub metric: Metric,
    /// What rows are compared by.
    pub precision: Precision,
    /// The graph; `None` to compare each query with all rows.
    pub graph: Option<GraphConfig>,
    /// The model that made the vectors, if known.
    pub model: Option<ModelIdentity>,
}

impl IndexConfig {
    /// Cosines by 8-bit numbers, with a graph, for vectors of any model.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            metric: Metric::default(),
            precision: Precision::default(),
            graph: Some(GraphConfig::default()),
            model: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        range("width", self.width, 1, MOST_FEATURES)?;
        if let Some(graph) = &self.graph {
            range("graph.neighbours", graph.neighbours, 2, 256)?;
            range("graph.breadth", graph.breadth, graph.neighbours, 100_000)?;
        }
        Ok(())
    }
}

/// Maximum features per vector: this many products of 8-bit numbers can be summed in 32 bits.
pub(crate) const MOST_FEATURES: usize = 1 << 16;

/// How rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// The graph if a part of the index has one, else codes, else all vectors.
    #[default]
    Auto,
    /// Each vector is compared with the query: the true neighbours.
    Exact,
    /// Each code is compared with the query, then the best ones' vectors.
    Codes,
}

/// Settings of a search.
#[derive(Debug, Clone)]
pub struct SearchConfig {
    /// Number of rows to return.
    pub k: usize,
    /// How rows are found.
    pub method: Method,
    /// Number of rows kept during graph search, the paper's `ef`: more find more of the true neighbours, but
    /// take longer. At least `k` are kept.
    pub breadth: usize,
    /// With codes, how many times `k` rows are rescored by their vectors.
    pub rescored: usize,
    /// Conditions that all rows must meet.
    pub conditions: Vec<Condition>,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { k: 10, method: Method::Auto, breadth: 64, rescored: 4, conditions: Vec::new() }
    }
}

impl SearchConfig {
    pub(crate) fn check(&self) -> Result<()> {
        range("k", self.k, 1, MOST)?;
        range("breadth", self.breadth, 1, MOST)?;
        range("rescored", self.rescored, 1, MOST)
    }
}

/// Maximum number of rows to return.
const MOST: usize = 1_000_000;

fn range(setting: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let expected = format!("a number from {least} to {most}");
    Err(SearchError::Setting { setting, found: value.to_string(), expected })
}
