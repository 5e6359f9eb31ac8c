//! What an index is made of, and what it is asked.

use crate::{Condition, Result, SearchError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// How near two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// The cosine of the angle between them: vectors are scaled to length 1.
    #[default]
    Cosine,
    /// Their product.
    Dot,
    /// Their distance; the smaller, the nearer.
    Euclidean,
}

/// What rows are compared by. Codes come with the vectors in 32 bits, by which the best ones are compared again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats.
    F32,
    /// bfloat16; nothing else is stored.
    Bf16,
    /// 8-bit numbers, then the vectors.
    #[default]
    Int8,
    /// A bit for each feature, its sign, then the vectors.
    Binary,
}

/// Of the graph (hierarchical navigable small worlds, Malkov and Yashunin 2018).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphConfig {
    /// The neighbours of a row in the upper layers, the paper's `M`; in the lowest one twice as many.
    pub neighbours: usize,
    /// How many rows are looked at for a new row's neighbours, the paper's `efConstruction`.
    pub breadth: usize,
    /// Fewer rows than this have no graph.
    pub from_rows: usize,
    /// Decides in which layers a row is.
    pub seed: u64,
}

impl Default for GraphConfig {
    fn default() -> Self {
        Self { neighbours: 16, breadth: 100, from_rows: 10_000, seed: 0 }
    }
}

/// Which model made the vectors, so that no other one's are compared with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelIdentity {
    /// What the model was called; not compared.
    pub name: String,
    /// A hash of the files that it is read from, [`ModelIdentity::hash_of`].
    pub hash: String,
    /// How a text's states become one vector.
    pub pooling: String,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
}

/// A model's configuration, and what sentence-transformers keeps beside it.
const SETTINGS: [&str; 4] =
    ["config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"];
/// A tokenizer, and its settings; a folder without it has some of the others.
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
/// Weights, of which the first are read, and the end of an index of shards.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];
const INDEX: &str = ".index.json";

impl ModelIdentity {
    /// A hash of what a model's folder is read from, with the files' names: its weights, its configuration and its tokenizer; in
    /// a folder of sentence-transformers, of its modules `Dense` too. Other files in the folder change nothing.
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

    /// The hash that earlier versions made of a folder: of all files at its top whose names end as those of a model do.
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

/// A hash of files and their names, in the order of these.
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

/// The files that an index of shards names; none for one that is malformed, which whoever reads the model says.
fn shards(path: &Path) -> Result<BTreeSet<String>> {
    #[derive(Default, Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = fs::read(path).map_err(SearchError::io("read", path))?;
    let index: Index = serde_json::from_slice(&text).unwrap_or_default();
    Ok(index.weight_map.into_values().collect())
}

/// The folders of the maps of embeddings in a folder of sentence-transformers; none for a `modules.json` that is missing or
/// malformed, which whoever reads the model says.
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

/// What an index is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexConfig {
    /// The features of a vector.
    pub width: usize,
    /// How near two vectors are.
    pub metric: Metric,
    /// What rows are compared by.
    pub precision: Precision,
    /// The graph; none if all rows are compared with each query.
    pub graph: Option<GraphConfig>,
    /// Which model made the vectors, if that is known.
    pub model: Option<ModelIdentity>,
}

impl IndexConfig {
    /// Cosines by 8-bit numbers, with a graph, of vectors of any model.
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

/// The most features of a vector: so many products of 8-bit numbers can be added in 32 bits.
pub(crate) const MOST_FEATURES: usize = 1 << 16;

/// How rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// By the graph where a part of the index has one, else by codes, else all vectors.
    #[default]
    Auto,
    /// Each vector is compared with the query: the true neighbours.
    Exact,
    /// Each code is compared with the query, and the best ones' vectors after that.
    Codes,
}

/// What an index is asked.
#[derive(Debug, Clone)]
pub struct SearchConfig {
    /// How many rows are wanted.
    pub k: usize,
    /// How rows are found.
    pub method: Method,
    /// How many rows the graph's search keeps, the paper's `ef`: more of them find more of the true neighbours, and
    /// take longer. At least `k` are kept.
    pub breadth: usize,
    /// Of codes, how many times `k` rows have their vectors compared.
    pub rescored: usize,
    /// What all rows must have.
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

/// The most rows that can be asked for.
const MOST: usize = 1_000_000;

fn range(setting: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let expected = format!("a number from {least} to {most}");
    Err(SearchError::Setting { setting, found: value.to_string(), expected })
}
