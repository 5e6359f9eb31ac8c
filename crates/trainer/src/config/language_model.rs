//! A language-model run's configuration, read as strictly as a [pretraining run's](super::RunConfig).

use super::layered::ConfigFile;
use super::layers::Node;
use super::objective::Trained;
use super::validate::{self, Check, Complaint, at_least, below_one, ensure, positive, share};
use super::{
    NEW, ObjectiveSection, OutputSection, PRETRAINED, Run, TokenizerSection, TrainSection, complete_model,
    layered, mark_model, strict,
};
use crate::error::Result;
use cloze_data::{BlockConfig, CorpusConfig};
use cloze_model::ModelError;
use cloze_model::blocks::{Activation, RotaryConfig};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::check_published;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Configures a run that trains a left-to-right language model: `objective.kind = "left-to-right"`.
///
/// [`LanguageModelConfig::load`] resolves one from a file; its `[objective]` distinguishes it from a
/// pretraining run's.
pub type LanguageModelConfig = Run<LanguageModelRun>;

/// The sections of a [`LanguageModelConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LanguageModelRun {
    /// `[objective]`: what is predicted; `kind` is `"left-to-right"`.
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text. A document longer than `max_document_bytes` is tokenised in parts, and stays one
    /// document. `language`, `languages` and `sampling_alpha` are rejected: running text is not split into
    /// sentences.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary. A trained one ends texts with `<|endoftext|>`. Default the
    /// checkpoint's, with `model.path`.
    pub tokenizer: TokenizerSection,
    /// `[blocks]`: how running text is cut.
    pub blocks: BlockConfig,
    /// `[model]`: the model, new or a checkpoint's.
    pub model: LanguageModelSection,
    /// `[train]`: steps and batches.
    pub train: TrainSection,
    /// `[eval]`: evaluation on held-out text.
    #[serde(default)]
    pub eval: LanguageModelEval,
}

/// `[model]`: the model to train. With `path`, only `hidden_dropout` and `attention_dropout` may be set
/// besides.
///
/// `kind` is optional: `"pretrained"` with a `path`, else `"new"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "a run has one section")]
pub enum LanguageModelSection {
    /// A model with random weights.
    New(NewLanguageModel),
    /// A checkpoint's weights to continue from.
    Pretrained(PretrainedLanguageModel),
}

impl LanguageModelSection {
    /// The checkpoint's folder, if there is one.
    pub fn checkpoint(&self) -> Option<&Path> {
        match self {
            Self::New(_) => None,
            Self::Pretrained(model) => Some(&model.path),
        }
    }
}

/// The published architectures for new models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LanguageModelShape {
    /// GPT-2: learned positions, layer normalisation, biases.
    #[default]
    Gpt2,
    /// Llama: rotary positions, RMS normalisation, gated feed-forward.
    Llama,
}

/// A new left-to-right model. The vocabulary size is the tokenizer's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewLanguageModel {
    /// The architecture. Default `"gpt2"`.
    #[serde(default)]
    pub shape: LanguageModelShape,
    /// Layers.
    pub n_layers: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads, shared by the query heads; divides `n_heads`. Only Llama's architecture allows
    /// fewer than `n_heads`. Default `n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_kv_heads: Option<usize>,
    /// Width of a head; only Llama's architecture allows another than the default. Default
    /// `d_model / n_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_head: Option<usize>,
    /// Inner width of the feed-forward. Default `4 · d_model`, or two thirds of that with gates, rounded up to
    /// a multiple of 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
    /// Maximum sequence length in tokens. Default 1,024.
    #[serde(default = "max_positions")]
    pub max_positions: usize,
    /// Rotary positions, for Llama's architecture. `n_features` and `interleaved` must be the defaults: no
    /// Hugging Face folder can hold another model. Default its keys' defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<RotaryConfig>,
    /// Sliding window: a token attends to at most this many previous tokens (Mistral's window less 1), for
    /// Llama's architecture. Default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// The feed-forward's activation. Default the architecture's: `"gelu-tanh"` or `"silu"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<Activation>,
    /// Added to the variance or the mean square in normalisations. Default the architecture's: 1e-5 or 1e-6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_eps: Option<f64>,
    /// Whether the output projection shares the embedding table; an adaptive `output` has weights of its own. Default true.
    #[serde(default = "yes")]
    pub tied: bool,
    /// How the next piece is predicted. Default by a softmax over the whole vocabulary.
    #[serde(default, skip_serializing_if = "OutputSection::is_whole")]
    pub output: OutputSection,
    /// Dropout of embeddings and of each sublayer's output, for GPT-2's architecture. Default 0.
    #[serde(default)]
    pub hidden_dropout: f64,
    /// Dropout of the attention probabilities. Default 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// Standard deviation of the truncated normal distribution of initial weights; maps onto the residual
    /// stream start with `1 / √(2 · n_layers)` of it. With about `1 / √d_model`, narrow models learn to
    /// attend sooner. Default 0.02.
    #[serde(default = "init_std")]
    pub init_std: f64,
}

fn max_positions() -> usize {
    1024
}

fn yes() -> bool {
    true
}

fn init_std() -> f64 {
    0.02
}

impl NewLanguageModel {
    /// The model with this vocabulary size.
    pub fn gpt(&self, vocab_size: usize) -> GptConfig {
        let base = match self.shape {
            LanguageModelShape::Gpt2 => GptConfig::gpt2(vocab_size, self.n_layers, self.d_model),
            LanguageModelShape::Llama => GptConfig::llama(vocab_size, self.n_layers, self.d_model),
        };
        let mut config = base;
        config.n_heads = self.n_heads;
        config.n_kv_heads = self.n_kv_heads.unwrap_or(self.n_heads);
        config.d_head = self.d_head.unwrap_or(self.d_model / self.n_heads.max(1));
        config.d_ff = self.d_ff.unwrap_or(config.d_ff);
        config.max_positions = self.max_positions;
        config.rotary = self.rotary.clone().or(config.rotary);
        config.window = self.window;
        config.activation = self.activation.unwrap_or(config.activation);
        config.norm_eps = self.norm_eps.unwrap_or(config.norm_eps);
        config.output = self.output.adaptive();
        config.tied = self.tied && config.output.is_none();
        config.embedding_dropout = self.hidden_dropout;
        config.hidden_dropout = self.hidden_dropout;
        config.attention_dropout = self.attention_dropout;
        config.init_std = self.init_std;
        config
    }
}

/// A checkpoint to continue training from. Its sizes and its tokenizer are its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedLanguageModel {
    /// The checkpoint: a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2), relative to the current
    /// directory; `cloze` also takes a name on the hub.
    pub path: PathBuf,
    /// Dropout of embeddings and of each sublayer's output. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
    /// Dropout of the attention probabilities. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
}

/// `[eval]`: evaluation on held-out text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LanguageModelEval {
    /// Fraction of the text held out from training, between 0 and 1. Default 0.05.
    pub heldout_fraction: f64,
    /// Which text is held out. Default `"documents"`.
    pub heldout: HeldOut,
    /// Steps between evaluations; the last step is always evaluated. Default 1,000.
    pub every: u64,
    /// Blocks per batch. Default 16.
    pub batch_size: usize,
    /// Maximum number of blocks to evaluate, always the first ones. Default 2,000.
    pub max_blocks: usize,
    /// Number of evaluations in a row without a lower loss after which training stops; the result is then the
    /// best model. Default none: all steps run, and the result is the last model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
}

/// Which text is held out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeldOut {
    /// Documents drawn by the seed.
    #[default]
    Documents,
    /// The end of the text; the fraction counts tokens.
    End,
}

impl Default for LanguageModelEval {
    fn default() -> Self {
        Self {
            heldout_fraction: 0.05,
            heldout: HeldOut::default(),
            every: 1_000,
            batch_size: 16,
            max_blocks: 2_000,
            patience: None,
        }
    }
}

/// The keys of a [`NewLanguageModel`] that a checkpoint determines.
const NEW_KEYS: [&str; 15] = [
    "shape",
    "n_layers",
    "d_model",
    "n_heads",
    "n_kv_heads",
    "d_head",
    "d_ff",
    "max_positions",
    "rotary",
    "window",
    "activation",
    "norm_eps",
    "tied",
    "output",
    "init_std",
];

/// Keys or key prefixes that do not affect the weights.
pub(crate) const FREE_KEYS: [&str; 9] = [
    "run.name",
    "train.workers",
    "train.prefetch",
    "train.recompute",
    "eval.every",
    "eval.batch_size",
    "eval.max_blocks",
    "checkpoint.",
    "log.",
];

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<LanguageModelConfig> {
    let expand = |layer: &mut Node| {
        // A whole config has an objective; what is laid over one may have one key of a model of either kind.
        let is_whole = layer.get("objective").is_some();
        mark_model(layer, &[("path", PRETRAINED), ("shape", NEW)]);
        if is_whole {
            mark_model(layer, &NEW_KEYS.map(|key| (key, NEW)));
        }
    };
    let mut merged = layered::merge(file, sets, expand)?;
    complete_model(&mut merged, &NEW_KEYS)?;
    strict::read(&merged, &[], |config| validate(config))
}

fn validate(config: &LanguageModelConfig) -> Check {
    config.objective.check(Trained::Decoder)?;
    validate::running_text(&config.corpus)?;
    tokenizer(&config.tokenizer)?;
    let is_new = matches!(config.model, LanguageModelSection::New(_));
    validate::goes_with_the_model(&config.tokenizer, is_new)?;
    at_least(1, "blocks.seq_len", config.blocks.seq_len)?;
    share("blocks.prefix_share", config.blocks.prefix_share)?;
    model(config)?;
    if let LanguageModelSection::New(model) = &config.model {
        let expected = "\"whole\" or \"adaptive\", or a `blocks.prefix_share` of 0";
        let is_sampled = model.output.sampled().is_some() && config.blocks.prefix_share > 0.0;
        ensure(!is_sampled, "model.output.kind", model.output.kind(), expected)?;
    }
    validate::train(&config.train, config.blocks.seq_len)?;
    config.common.check(config.train.steps)?;
    eval(&config.eval)
}

/// `[eval]` of a run on running text.
pub(super) fn eval(eval: &LanguageModelEval) -> Check {
    let heldout = eval.heldout_fraction;
    ensure(heldout > 0.0 && heldout < 1.0, "eval.heldout_fraction", heldout, "a number above 0 and below 1")?;
    at_least(1, "eval.every", eval.every)?;
    at_least(1, "eval.batch_size", eval.batch_size)?;
    at_least(1, "eval.max_blocks", eval.max_blocks)?;
    at_least(1, "eval.patience", eval.patience.unwrap_or(1))
}

fn tokenizer(section: &TokenizerSection) -> Check {
    match section {
        // The end piece and all bytes, and a pair that is joined.
        TokenizerSection::TrainByteBpe { vocab_size, .. } => {
            at_least(258, "tokenizer.vocab_size", *vocab_size)
        }
        other => validate::tokenizer(other),
    }
}

fn model(config: &LanguageModelConfig) -> Check {
    let seq_len = config.blocks.seq_len;
    let model = match &config.model {
        LanguageModelSection::New(model) => model,
        LanguageModelSection::Pretrained(model) => {
            below_one("model.hidden_dropout", model.hidden_dropout.unwrap_or(0.0))?;
            return below_one("model.attention_dropout", model.attention_dropout.unwrap_or(0.0));
        }
    };
    let LanguageModelShape::Gpt2 = model.shape else {
        return of_shape(model, seq_len);
    };
    let expected = "it to be absent: the positions of `model.shape` = \"gpt2\" are learned";
    ensure(model.rotary.is_none(), "model.rotary", "a table", expected)?;
    of_shape(model, seq_len)
}

fn of_shape(model: &NewLanguageModel, seq_len: usize) -> Check {
    at_least(1, "model.n_heads", model.n_heads)?;
    if model.d_head.is_none() {
        let expected = format!("a divisor of `model.d_model`, which is {}", model.d_model);
        ensure(model.d_model.is_multiple_of(model.n_heads), "model.n_heads", model.n_heads, expected)?;
    }
    let longest = model.max_positions;
    let expected = format!("at most {longest}, which is `model.max_positions`");
    ensure(seq_len <= longest, "blocks.seq_len", seq_len, expected)?;
    positive("model.init_std", model.init_std)?;
    model.output.check()?;
    // What could not be saved is not trained. It is so with any vocabulary.
    check_published(&model.gpt(model.output.smallest_vocabulary())).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            let key = if key == "embedding_dropout" { "hidden_dropout" } else { key };
            Complaint { key: format!("model.{key}"), found, expected }
        }
        other => Complaint { key: "model".into(), found: "as it is".into(), expected: other.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::engine::FolderConfig;

    const FILE: &str = r#"[objective]
kind = "left-to-right"

[corpus]
files = ["a.txt"]

[tokenizer]
kind = "train-byte-bpe"
vocab_size = 512

[blocks]
seq_len = 64

[model]
n_layers = 2
d_model = 32
n_heads = 4

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "cosine"
warmup_steps = 10
"#;

    fn resolve(text: &str, sets: &[&str]) -> Result<LanguageModelConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        LanguageModelConfig::parse(text, "run", &Place::file(Path::new("run.toml")), &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back_the_same() {
        for sets in [
            vec![],
            vec![
                "model.shape=llama",
                "model.n_kv_heads=2",
                "model.rotary={ theta = 500.0 }",
                "model.window=8",
            ],
            vec!["model.path=some/model", "tokenizer.kind=checkpoint", "model.hidden_dropout=0.2"],
            vec!["blocks.order=random", "blocks.documents=apart", "eval.heldout=end", "eval.patience=3"],
            vec!["tokenizer={ kind = \"train-characters\" }", "blocks.end=\"|\"", "blocks.prefix_share=0.5"],
        ] {
            let config = resolve(FILE, &sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"));
            assert_eq!(resolve(&config.to_toml(), &[]).unwrap(), config);
        }
        let config = resolve(FILE, &[]).unwrap();
        let LanguageModelSection::New(model) = &config.model else { panic!("{:?}", config.model) };
        let gpt = model.gpt(512);
        assert_eq!((gpt.d_head, gpt.n_kv_heads, gpt.d_ff, gpt.max_positions), (8, 4, 128, 1024));
        assert!(gpt.tied && gpt.rotary.is_none() && gpt.hidden_dropout == 0.0);
    }

    #[test]
    fn what_does_not_go_together_is_named_with_both_keys() {
        for (sets, expected) in [
            (
                &["model.rotary={ theta = 5.0 }"][..],
                "`model.rotary` is a table; expected it to be absent: the positions of `model.shape` = \"gpt2\"",
            ),
            (&["model.window=3"], "`model.window` is 3; expected none: transformers' GPT-2 has no window"),
            (
                &["model.shape=llama", "model.hidden_dropout=0.1"],
                "`model.hidden_dropout` is 0.1; expected 0.0",
            ),
            (
                &["model.n_heads=5"],
                "`model.n_heads` is 5; expected a divisor of `model.d_model`, which is 32",
            ),
            (
                &["model.shape=llama", "model.n_kv_heads=3"],
                "`model.n_kv_heads` is 3; expected a divisor of `n_heads`, which is 4",
            ),
            (
                &["blocks.seq_len=2000"],
                "`blocks.seq_len` is 2000; expected at most 1024, which is `model.max_pos",
            ),
            (
                &["schedule.warmup_steps=101"],
                "`schedule.warmup_steps` is 101; expected at most 100, the steps of the run",
            ),
            (&["corpus.max_skipped=0.5"], "`corpus.max_skipped` is 0.5; expected no such key without"),
            (
                &["corpus.on_error=skip", "corpus.max_skipped=2"],
                "`corpus.max_skipped` is 2; expected a number from 0 to 1",
            ),
            (&["corpus.language=de"], "`corpus.language` is de; expected no such key"),
            (
                &["model.path=x", "model.n_layers=3", "tokenizer.kind=checkpoint"],
                "`model.n_layers` is 3; expected it to be absent: `model.path` brings its own",
            ),
            (
                &["model.path=x", "model.max_positions=9"],
                "expected it to be absent: `model.path` brings its own",
            ),
            (
                &["model.path=x"],
                "`tokenizer.kind` is train-byte-bpe; expected no `[tokenizer]`, which cannot be combined with `model.path`",
            ),
            (&["objective.kind=masked"], "`objective.kind` is \"masked\"; expected"),
            (&["model.layers=3"], "unknown key `model.layers`; did you mean `model.n_layers`?"),
            (&["blocks.order=\"sorted\""], "`blocks.order` is \"sorted\"; expected"),
            (&["blocks.prefix_share=1.5"], "`blocks.prefix_share` is 1.5; expected"),
            (&["eval.heldout_fraction=0"], "expected a number above 0 and below 1"),
            (&["train.steps=-1"], "`train.steps` is -1; expected a whole number of 1 or more"),
        ] {
            let message = resolve(FILE, sets).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
