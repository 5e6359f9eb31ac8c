//! The probing config, read as strictly as a [run's configuration](crate::config).

use crate::config::validate::{Check, at_least, ensure, positive, within};
use crate::config::{ConfigFile, FolderConfig, RunSection, layered};
use crate::error::Result;
use cloze_data::labelled::LabelledSource;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Configures what `cloze probe` examines in an encoder's layers: any file with `[probe]`. It trains no
/// model.
///
/// [`ProbeConfig::load`] resolves one from a file; its `[probe]` section distinguishes it from runs'.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProbeConfig {
    /// `[run]`: name and seed.
    pub run: RunSection,
    /// `[model]`: the encoder.
    pub model: ProbeModel,
    /// `[data]`: sentences with trees.
    pub data: ProbeData,
    /// `[probe]`: which probes, and how they are trained.
    pub probe: ProbeSection,
    /// `[structure]`: structural probes, for trees. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<StructureSection>,
    /// `[geometry]`: cosines of vectors and their corrections. Default none: cosines are not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometry: Option<GeometrySection>,
}

/// `[model]`: the encoder whose layers are probed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProbeModel {
    /// A Hugging Face folder of an encoder, relative to the current directory; `cloze` also takes a name on
    /// the hub.
    pub path: PathBuf,
    /// The layers to probe, ascending; 0 is the embeddings. Default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Vec<usize>>,
}

/// `[data]`: sentences in CoNLL-U's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProbeData {
    /// CoNLL-U files to train probes on.
    pub train: Vec<String>,
    /// CoNLL-U files to evaluate probes on.
    pub dev: Vec<String>,
    /// Maximum tokens of a sentence; longer ones are skipped. Default 128.
    #[serde(default = "defaults::max_len")]
    pub max_len: usize,
    /// Maximum sentences of the training data, the first ones. Default 2,000.
    #[serde(default = "defaults::max_train")]
    pub max_train: usize,
    /// Maximum sentences of the development data, the first ones. Default 1,000.
    #[serde(default = "defaults::max_dev")]
    pub max_dev: usize,
    /// Tokens per batch of the encoder. Default 2,048.
    #[serde(default = "defaults::batch_tokens")]
    pub batch_tokens: usize,
    /// Maximum memory for the states of all layers, in GiB; exceeding it is an error before any computation.
    /// Default 4.
    #[serde(default = "defaults::max_gib")]
    pub max_gib: f64,
}

/// What a probe predicts from a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProbeTask {
    /// A word's part of speech, column `upos`.
    PartOfSpeech,
    /// A word's relation to its head, column `deprel`.
    Relation,
    /// The length of a sentence, in six classes of about equal size, from the mean of its words' states (Adi et
    /// al. 2017; Conneau et al. 2018, "SentLen").
    Length,
    /// Whether two neighbouring words were swapped, from the mean of the words' states (Conneau et al. 2018, "BShift").
    WordOrder,
}

impl ProbeTask {
    /// All tasks.
    pub const ALL: [Self; 4] = [Self::PartOfSpeech, Self::Relation, Self::Length, Self::WordOrder];

    /// Whether an example is a word, not a sentence.
    pub fn is_of_words(self) -> bool {
        matches!(self, Self::PartOfSpeech | Self::Relation)
    }

    /// Its display name.
    pub fn title(self) -> &'static str {
        match self {
            Self::PartOfSpeech => "part of speech",
            Self::Relation => "dependency relation",
            Self::Length => "sentence length",
            Self::WordOrder => "word order",
        }
    }
}

/// `[probe]`: classification probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ProbeSection {
    /// What probes predict. Default all.
    pub tasks: Vec<ProbeTask>,
    /// Width of the MLP's hidden layer; 0 for linear probes only. Default 64.
    pub hidden: usize,
    /// Passes over the training data, but at least 100 steps. Default 5.
    pub epochs: usize,
    /// Examples per step. Default 256.
    pub batch_size: usize,
    /// The learning rate of Adam. Default 1e-3.
    pub lr: f64,
    /// Whether to train control tasks, for selectivity. Default true.
    pub control: bool,
    /// Whether to compute online codes of the labels, for their description length. Default true.
    pub description_length: bool,
    /// Whether to train a linear probe on a learned mix of layers. Default true.
    pub mix: bool,
}

impl Default for ProbeSection {
    fn default() -> Self {
        Self {
            tasks: ProbeTask::ALL.to_vec(),
            hidden: 64,
            epochs: 5,
            batch_size: 256,
            lr: 1e-3,
            control: true,
            description_length: true,
            mix: true,
        }
    }
}

/// `[structure]`: structural probes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct StructureSection {
    /// Rank of the projection: rows of its matrix `B`. Default 64.
    pub rank: usize,
    /// Passes over the training data. Default 10.
    pub epochs: usize,
    /// Sentences per step. Default 20.
    pub batch_size: usize,
    /// The learning rate of Adam. Default 1e-3.
    pub lr: f64,
}

impl Default for StructureSection {
    fn default() -> Self {
        Self { rank: 64, epochs: 10, batch_size: 20, lr: 1e-3 }
    }
}

/// `[geometry]`: cosines of vectors and their corrections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GeometrySection {
    /// Number of random pairs to average cosines over. Default 5,000.
    pub pairs: usize,
    /// Number of principal components that all-but-the-top removes. Default a hundredth of the width, at least
    /// 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<usize>,
    /// Sentence pairs with human similarity scores: the columns `text`, `pair` and `label`. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub similarity: Option<LabelledSource>,
}

impl Default for GeometrySection {
    fn default() -> Self {
        Self { pairs: 5_000, components: None, similarity: None }
    }
}

impl ProbeConfig {
    /// Resolves the config file at `path`, overridden by the `sets` (`section.key=value`).
    ///
    /// # Errors
    /// Those of [`RunConfig::load`](crate::config::RunConfig::load).
    pub fn load(path: impl AsRef<Path>, sets: &[String]) -> Result<Self> {
        Self::read(&ConfigFile::open(path)?, sets)
    }

    /// Resolves a config file, overridden by the `sets`.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), except for an unreadable file.
    pub fn read(file: &ConfigFile, sets: &[String]) -> Result<Self> {
        layered::read(file, sets, |config: &mut Self| validate(config))
    }
}

impl FolderConfig for ProbeConfig {
    const FREE_KEYS: &[&str] = &["run.name"];

    fn load(path: &Path) -> Result<Self> {
        Self::load(path, &[])
    }
}

/// Checks every value; returns the first complaint.
fn validate(config: &ProbeConfig) -> Check {
    let ProbeConfig { data, probe, .. } = config;
    if let Some(layers) = &config.model.layers {
        let ascends = !layers.is_empty() && layers.windows(2).all(|pair| pair[0] < pair[1]);
        ensure(ascends, "model.layers", format!("{layers:?}"), "the numbers of layers, ascending")?;
    }
    for (key, files) in [("data.train", &data.train), ("data.dev", &data.dev)] {
        ensure(!files.is_empty(), key, "[]", "at least one file, folder or glob")?;
    }
    // A word and the special tokens around it.
    at_least(3, "data.max_len", data.max_len)?;
    at_least(2, "data.max_train", data.max_train)?;
    at_least(2, "data.max_dev", data.max_dev)?;
    at_least(1, "data.batch_tokens", data.batch_tokens)?;
    positive("data.max_gib", data.max_gib)?;
    let different = (1..probe.tasks.len()).all(|at| !probe.tasks[..at].contains(&probe.tasks[at]));
    ensure(different, "probe.tasks", format!("{:?}", probe.tasks), "no duplicate tasks")?;
    within(0..=65_536, "probe.hidden", probe.hidden)?;
    within(1..=100_000, "probe.epochs", probe.epochs)?;
    within(1..=1 << 20, "probe.batch_size", probe.batch_size)?;
    positive("probe.lr", probe.lr)?;
    if let Some(structure) = &config.structure {
        within(1..=65_536, "structure.rank", structure.rank)?;
        within(1..=100_000, "structure.epochs", structure.epochs)?;
        within(1..=65_536, "structure.batch_size", structure.batch_size)?;
        positive("structure.lr", structure.lr)?;
    }
    if let Some(geometry) = &config.geometry {
        within(1..=100_000_000, "geometry.pairs", geometry.pairs)?;
        at_least(1, "geometry.components", geometry.components.unwrap_or(1))?;
        if let Some(similarity) = &geometry.similarity {
            let has_pair = similarity.columns.contains_key("pair");
            ensure(
                has_pair,
                "geometry.similarity.columns",
                "without `pair`",
                "the column of the second sentence",
            )?;
        }
    }
    let some = !probe.tasks.is_empty() || config.structure.is_some() || config.geometry.is_some();
    ensure(some, "probe.tasks", "[]", "a task, a [structure] or a [geometry]")
}

/// The defaults of sections that also have required keys.
mod defaults {
    pub fn max_len() -> usize {
        128
    }

    pub fn max_train() -> usize {
        2_000
    }

    pub fn max_dev() -> usize {
        1_000
    }

    pub fn batch_tokens() -> usize {
        2_048
    }

    pub fn max_gib() -> f64 {
        4.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    const FILE: &str = r#"[model]
path = "m"

[data]
train = ["a.conllu"]
dev = ["b.conllu"]

[probe]
"#;

    fn read(sets: &[&str]) -> Result<ProbeConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        ConfigFile::parse(FILE, "name", &Place::file("p.toml".as_ref()))
            .and_then(|file| ProbeConfig::read(&file, &sets))
    }

    #[test]
    fn a_file_is_completed_and_reads_back() {
        let config = read(&["structure.rank=8", "geometry.pairs=10"]).unwrap();
        assert_eq!((config.run.name.as_str(), config.probe.tasks.len()), ("name", 4));
        assert_eq!(config.structure.as_ref().unwrap().batch_size, 20);
        let again = ConfigFile::parse(&config.to_toml(), "x", &Place::file("q.toml".as_ref()))
            .and_then(|file| ProbeConfig::read(&file, &[]))
            .unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn bad_values_are_named() {
        let cases = [
            ("model.layers=[2, 1]", "`model.layers` is [2, 1]; expected the numbers of layers, ascending"),
            ("probe.tasks=[\"length\", \"length\"]", "expected no duplicate tasks"),
            ("probe.tasks=[]", "expected a task, a [structure] or a [geometry]"),
            ("probe.lr=0", "`probe.lr` is 0; expected a number above 0"),
            ("data.train=[]", "expected at least one file, folder or glob"),
            ("geometry.similarity={files=[\"x.tsv\"]}", "expected the column of the second sentence"),
            ("probe.task=[]", "did you mean `probe.tasks`?"),
        ];
        for (set, expected) in cases {
            let error = read(&[set]).unwrap_err().to_string();
            assert!(error.contains(expected), "{set}: {error}");
        }
    }
}
