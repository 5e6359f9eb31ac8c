//! The configuration of a run that trains an XLNet, read as strictly as a [pretraining run's](super::RunConfig).

use super::language_model::eval;
use super::layered::ConfigFile;
use super::objective::Trained;
use super::validate::{self, Check, Complaint, at_least, below_one, ensure, positive, within};
use super::{
    LanguageModelEval, NEW, ObjectiveSection, PRETRAINED, Run, TokenizerSection, TrainSection,
    complete_model, layered, mark_model, strict,
};
use crate::error::Result;
use cloze_data::{CorpusConfig, OrderConfig};
use cloze_model::ModelError;
use cloze_model::blocks::Activation;
use cloze_model::huggingface::check_published;
use cloze_model::xlnet::XlnetConfig;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Configures a run that trains an XLNet on running text (Yang et al. 2019):
/// `objective.kind = "permutation"`.
///
/// [`PermutationConfig::load`] resolves one from a file whose `objective.kind` is `"permutation"`.
pub type PermutationConfig = Run<PermutationRun>;

/// The sections of a [`PermutationConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PermutationRun {
    /// `[objective]`: what is predicted; `kind` is `"permutation"`.
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text. As for language models, `language`, `languages` and `sampling_alpha` are
    /// rejected.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary. A trained one has the special pieces of pretraining. Default the
    /// checkpoint's, with `model.path`.
    pub tokenizer: TokenizerSection,
    /// `[segments]`: how running text is cut, and how much of it is predicted.
    pub segments: SegmentSection,
    /// `[model]`: the model, new or a checkpoint's.
    pub model: XlnetSection,
    /// `[train]`: steps and batches. `recompute` is rejected.
    pub train: TrainSection,
    /// `[eval]`: evaluation on held-out text.
    #[serde(default)]
    pub eval: LanguageModelEval,
}

/// `[segments]`: how running text is cut, and how much of it is predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SegmentSection {
    /// Tokens per segment.
    pub seq_len: usize,
    /// Number of tokens before each segment whose hidden states it sees. They are recomputed in each step.
    /// Default 0.
    #[serde(default)]
    pub memory_len: usize,
    /// One in this many tokens is predicted. Default 6.
    #[serde(default = "one_in")]
    pub one_in: usize,
    /// Maximum words predicted together; n words have probability proportional to `1 / n`. Default 5.
    #[serde(default = "max_span")]
    pub max_span: usize,
    /// The piece that ends each document. Default `[SEP]` or `</s>`, else `<|endoftext|>`, else none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

fn one_in() -> usize {
    6
}

fn max_span() -> usize {
    5
}

impl SegmentSection {
    /// The data's settings.
    pub fn order(&self) -> OrderConfig {
        let mut order = OrderConfig::new(self.seq_len);
        order.memory_len = self.memory_len;
        order.one_in = self.one_in;
        order.max_span = self.max_span;
        order
    }
}

/// `[model]`: the model to train. With `path`, only `dropout` may be set besides.
///
/// `kind` is optional: `"pretrained"` with a `path`, else `"new"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum XlnetSection {
    /// A model with random weights.
    New(NewXlnet),
    /// A checkpoint's weights to continue from.
    Pretrained(PretrainedXlnet),
}

impl XlnetSection {
    /// The checkpoint's folder, if there is one.
    pub fn checkpoint(&self) -> Option<&Path> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(&model.path),
        }
    }
}

/// A new XLNet. The vocabulary size is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewXlnet {
    /// Layers.
    pub n_layers: usize,
    /// Width of the hidden states; even.
    pub d_model: usize,
    /// Attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the feed-forward. Default `4 · d_model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
    /// The feed-forward's activation. Default `"gelu"`.
    #[serde(default)]
    pub activation: Activation,
    /// Maximum distance between tokens; greater ones are clamped to it. Default no clamping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp_len: Option<usize>,
    /// Dropout of embeddings, positions, attention probabilities and each sublayer's output. Default 0.1.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// Added to the variance in layer norms. Default 1e-12.
    #[serde(default = "norm_eps")]
    pub norm_eps: f64,
    /// Standard deviation of the truncated normal distribution of initial weights. With about `1 / √d_model`,
    /// narrow models learn to attend sooner. Default 0.02.
    #[serde(default = "init_std")]
    pub init_std: f64,
}

fn dropout() -> f64 {
    0.1
}

fn norm_eps() -> f64 {
    1e-12
}

fn init_std() -> f64 {
    0.02
}

impl NewXlnet {
    /// The model with this vocabulary size.
    pub fn xlnet(&self, vocab_size: usize) -> XlnetConfig {
        let mut config = XlnetConfig::new(vocab_size, self.n_layers, self.d_model);
        config.n_heads = self.n_heads;
        config.d_ff = self.d_ff.unwrap_or(config.d_ff);
        config.activation = self.activation;
        config.clamp_len = self.clamp_len;
        config.dropout = self.dropout;
        config.norm_eps = self.norm_eps;
        config.init_std = self.init_std;
        config
    }
}

/// A checkpoint to continue training from. Its sizes and its tokenizer are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedXlnet {
    /// The checkpoint: a Hugging Face folder of an XLNet, relative to the current directory; `cloze` also
    /// takes a name on the hub.
    pub path: PathBuf,
    /// Dropout of embeddings, positions, attention probabilities and each sublayer's output. Default the
    /// checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<f64>,
}

/// The keys of a [`NewXlnet`] that a checkpoint determines.
const NEW_KEYS: [&str; 8] =
    ["n_layers", "d_model", "n_heads", "d_ff", "activation", "clamp_len", "norm_eps", "init_std"];

/// Keys or key prefixes that do not affect the weights.
pub(crate) const FREE_KEYS: [&str; 8] = [
    "run.name",
    "train.workers",
    "train.prefetch",
    "eval.every",
    "eval.batch_size",
    "eval.max_blocks",
    "checkpoint.",
    "log.",
];

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<PermutationConfig> {
    let mut merged = layered::merge(file, sets, |layer| {
        mark_model(layer, &[("path", PRETRAINED)]);
        // A whole config has an objective; what is laid over one may have one key of a model of either kind.
        if layer.get("objective").is_some() {
            mark_model(layer, &NEW_KEYS.map(|key| (key, NEW)));
        }
    })?;
    complete_model(&mut merged, &NEW_KEYS)?;
    strict::read(&merged, &[], |config| validate(config))
}

fn validate(config: &PermutationConfig) -> Check {
    config.objective.check(Trained::Xlnet)?;
    validate::running_text(&config.corpus)?;
    validate::tokenizer(&config.tokenizer)?;
    let is_new = matches!(config.model, XlnetSection::New(_));
    validate::goes_with_the_model(&config.tokenizer, is_new)?;
    segments(&config.segments)?;
    model(config)?;
    let whole = config.segments.seq_len.saturating_add(config.segments.memory_len);
    validate::train(&config.train, whole)?;
    let expected = "false: layers of XLNet are not recomputed";
    ensure(!config.train.recompute, "train.recompute", true, expected)?;
    config.common.check(config.train.steps)?;
    eval(&config.eval)
}

fn segments(segments: &SegmentSection) -> Check {
    at_least(2, "segments.seq_len", segments.seq_len)?;
    within(0..=1 << 20, "segments.memory_len", segments.memory_len)?;
    within(1..=segments.seq_len, "segments.one_in", segments.one_in)?;
    within(1..=1_000, "segments.max_span", segments.max_span)
}

fn model(config: &PermutationConfig) -> Check {
    let model = match &config.model {
        XlnetSection::New(model) => model,
        XlnetSection::Pretrained(model) => return below_one("model.dropout", model.dropout.unwrap_or(0.0)),
    };
    positive("model.init_std", model.init_std)?;
    // What could not be saved is not trained. It is so with any vocabulary.
    check_published(&model.xlnet(1)).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            Complaint { key: format!("model.{key}"), found, expected }
        }
        other => {
            Complaint { key: "model".into(), found: "impossible to save".into(), expected: other.to_string() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    const FILE: &str = r#"
[objective]
kind = "permutation"

[corpus]
files = ["data/*.txt"]

[tokenizer]
kind = "train-wordpiece"
vocab_size = 4096

[segments]
seq_len = 64

[model]
n_layers = 2
d_model = 64
n_heads = 2

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "linear"
"#;

    fn resolve(sets: &[&str]) -> Result<PermutationConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        PermutationConfig::parse(FILE, "run", &Place::file(Path::new("run.toml")), &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back_the_same() {
        for sets in [
            &[][..],
            &["segments.memory_len=32", "segments.one_in=4", "segments.end=\"[SEP]\"", "model.clamp_len=9"],
            &["model.path=some/model", "tokenizer.kind=checkpoint", "model.dropout=0.2"],
        ] {
            let config = resolve(sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"));
            let text = toml::to_string(&config).unwrap();
            let again =
                PermutationConfig::parse(&text, "other", &Place::file(Path::new("a.toml")), &[]).unwrap();
            assert_eq!(again, config);
        }
        assert_eq!(resolve(&[]).unwrap().segments.order(), OrderConfig::new(64));
    }

    #[test]
    fn what_does_not_go_is_named() {
        for (set, expected) in [
            (
                "objective.kind=masked",
                "`objective.kind` is \"masked\"; expected \"permutation\", the only objective",
            ),
            ("segments.one_in=65", "`segments.one_in` is 65; expected a whole number from 1 to 64"),
            ("segments.seq_len=1", "`segments.seq_len` is 1; expected a whole number of 2 or more"),
            ("model.n_heads=3", "`model.n_heads` is 3; expected a divisor of `d_model`, which is 64"),
            ("model.clamp_len=0", "`model.clamp_len` is 0; expected at least 1, or none"),
            ("train.recompute=true", "`train.recompute` is true; expected false: layers of XLNet"),
            ("examples.seq_len=9", "examples"),
            (
                "model.path=some/model",
                "expected no `[tokenizer]`, which cannot be combined with `model.path`",
            ),
        ] {
            let error = resolve(&[set]).unwrap_err().to_string();
            assert!(error.contains(expected), "{set}: {error}");
        }
    }
}
