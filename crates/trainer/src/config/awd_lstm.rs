//! The configuration of a run that trains an AWD-LSTM, read as strictly as a [pretraining
//! run's](super::RunConfig).

use super::layered::ConfigFile;
use super::objective::Trained;
use super::validate::{self, Check, at_least, ensure, not_negative};
use super::{
    LanguageModelEval, ObjectiveSection, OutputSection, Run, TokenizerSection, TrainSection, language_model,
    layered,
};
use crate::error::Result;
use cloze_data::{CorpusConfig, StreamConfig};
use cloze_model::ModelError;
use cloze_model::awd_lstm::{AwdLstmConfig, AwdLstmDropout};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configures a run that trains an AWD-LSTM, a left-to-right model, on streams of text (Merity et al. 2018):
/// `objective.kind = "left-to-right"` with `[streams]`.
///
/// [`AwdLstmRunConfig::load`] resolves one from a file; its `[streams]` section distinguishes it from other
/// language models'.
pub type AwdLstmRunConfig = Run<AwdLstmRun>;

/// The sections of an [`AwdLstmRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AwdLstmRun {
    /// `[objective]`: what is predicted; `kind` is `"left-to-right"`.
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text. As for language models, `language`, `languages` and `sampling_alpha` are
    /// rejected.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary. A trained one ends texts with `<|endoftext|>`.
    pub tokenizer: TokenizerSection,
    /// `[streams]`: how running text is cut.
    pub streams: StreamConfig,
    /// `[model]`: the model, new or a checkpoint's.
    #[serde(default)]
    pub model: AwdLstmSection,
    /// `[regularisation]`: terms added to the loss. Default none.
    #[serde(default)]
    pub regularisation: RegularisationSection,
    /// `[train]`: steps and batches. There are `batch_size · accumulate` streams. `recompute` is rejected.
    pub train: TrainSection,
    /// `[eval]`: evaluation on held-out text, in `batch_size` streams.
    #[serde(default)]
    pub eval: LanguageModelEval,
}

/// `[model]`: an AWD-LSTM, new or a checkpoint's (`path`), which has its own sizes. The vocabulary size is
/// the tokenizer's. The result is a folder in this project's own format: transformers has no such model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AwdLstmSection {
    /// A checkpoint to continue training from: the folder of an AWD-LSTM, relative to the current directory;
    /// `cloze` also takes a name on the hub. Use `tokenizer = { kind = "checkpoint" }` with it. Default none:
    /// the model is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Width of an embedding and of the last layer's states. Default 400, or the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_embedding: Option<usize>,
    /// Width of the other layers' states. Default 1,150, or the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_hidden: Option<usize>,
    /// LSTM layers. Default 3, or the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_layers: Option<usize>,
    /// The dropouts. With `path`, this table replaces the checkpoint's as a whole; keys that it lacks are the
    /// paper's. Default the paper's, or the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<AwdLstmDropout>,
    /// How the next piece is predicted. Default by a softmax over the whole vocabulary, or as the checkpoint does.
    #[serde(default, skip_serializing_if = "OutputSection::is_whole")]
    pub output: OutputSection,
    /// Each layer's learning rate is this times that of the layer above it (Howard & Ruder 2018, §3.2: 1 /
    /// 2.6); requires `path`. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
}

impl AwdLstmSection {
    /// A new model with this vocabulary size.
    pub fn shape(&self, vocab_size: usize) -> AwdLstmConfig {
        let mut config = AwdLstmConfig::new(vocab_size);
        config.d_embedding = self.d_embedding.unwrap_or(config.d_embedding);
        config.d_hidden = self.d_hidden.unwrap_or(config.d_hidden);
        config.n_layers = self.n_layers.unwrap_or(config.n_layers);
        config.dropout = self.dropout.unwrap_or(config.dropout);
        config.output = self.output.adaptive();
        config
    }
}

/// `[regularisation]`: terms added to the loss (Merity et al. 2018, §3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RegularisationSection {
    /// The weight `α` of the mean square of the last layer's states after dropout. Default 0; in the paper 2.
    pub activation: f64,
    /// The weight `β` of the mean squared difference between consecutive states. Default 0; in the paper 1.
    pub temporal: f64,
}

impl RegularisationSection {
    /// Whether any term is added.
    pub fn is_on(&self) -> bool {
        self.activation > 0.0 || self.temporal > 0.0
    }
}

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<AwdLstmRunConfig> {
    layered::read(file, sets, |config| validate(config))
}

impl AwdLstmRunConfig {
    /// The number of parallel streams in a step.
    pub fn n_streams(&self) -> usize {
        self.train.batch_size * self.train.accumulate
    }
}

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

fn validate(config: &AwdLstmRunConfig) -> Check {
    config.objective.check(Trained::Decoder)?;
    validate::running_text(&config.corpus)?;
    match &config.tokenizer {
        // The end piece and all bytes, and a pair that is joined.
        TokenizerSection::TrainByteBpe { vocab_size, .. } => {
            at_least(258, "tokenizer.vocab_size", *vocab_size)?;
        }
        other => validate::tokenizer(other)?,
    }
    validate::goes_with_the_model(&config.tokenizer, config.model.path.is_none())?;
    at_least(1, "streams.seq_len", config.streams.seq_len)?;
    model(&config.model)?;
    not_negative("regularisation.activation", config.regularisation.activation)?;
    not_negative("regularisation.temporal", config.regularisation.temporal)?;
    let train = &config.train;
    validate::train(train, config.streams.seq_len)?;
    ensure(!train.recompute, "train.recompute", true, "false: recurrent layers are not recomputed")?;
    let most = i32::MAX as usize;
    let fits = train.batch_size.checked_mul(train.accumulate).is_some_and(|streams| streams <= most);
    ensure(fits, "train.accumulate", train.accumulate, format!("at most {most} streams in all"))?;
    config.common.check(train.steps)?;
    language_model::eval(&config.eval)
}

fn model(model: &AwdLstmSection) -> Check {
    let own = "it to be absent: `model.path` brings its own";
    let sizes = [
        ("model.d_embedding", model.d_embedding),
        ("model.d_hidden", model.d_hidden),
        ("model.n_layers", model.n_layers),
    ];
    for (key, size) in sizes {
        ensure(model.path.is_none() || size.is_none(), key, size.unwrap_or(0), own)?;
    }
    let output = &model.output;
    ensure(model.path.is_none() || output.is_whole(), "model.output.kind", output.kind(), own)?;
    output.check()?;
    if let Some(decay) = model.layer_decay {
        let key = "model.layer_decay";
        ensure(decay > 0.0 && decay <= 1.0, key, decay, "a number above 0, at most 1")?;
        ensure(model.path.is_some(), key, decay, "it to be absent: it requires `model.path`")?;
    }
    // It is so with any vocabulary.
    model.shape(output.smallest_vocabulary()).validate().map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            validate::Complaint { key: format!("model.{key}"), found, expected }
        }
        other => {
            validate::Complaint { key: "model".into(), found: "as it is".into(), expected: other.to_string() }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::engine::FolderConfig;
    use std::path::Path;

    const FILE: &str = r#"[objective]
kind = "left-to-right"

[corpus]
files = ["a.txt"]

[tokenizer]
kind = "train-byte-bpe"
vocab_size = 512

[streams]
seq_len = 70

[model]
d_embedding = 16
dropout = { weight = 0.2 }

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "slanted-triangular"
warmup_steps = 10
"#;

    fn resolve(sets: &[&str]) -> Result<AwdLstmRunConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        AwdLstmRunConfig::parse(FILE, "run", &Place::file(Path::new("run.toml")), &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back_the_same() {
        for sets in [
            vec![],
            vec!["regularisation.activation=2.0", "regularisation.temporal=1.0", "train.accumulate=2"],
            vec!["model={ path = \"some/model\", layer_decay = 0.4 }", "tokenizer={ kind = \"checkpoint\" }"],
        ] {
            let config = resolve(&sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"));
            let place = Place::file(Path::new("run.toml"));
            assert_eq!(AwdLstmRunConfig::parse(&config.to_toml(), "x", &place, &[]).unwrap(), config);
        }
        let config = resolve(&[]).unwrap();
        let shape = config.model.shape(512);
        assert_eq!((shape.d_embedding, shape.d_hidden, shape.n_layers), (16, 1150, 3));
        assert_eq!((shape.dropout.weight, shape.dropout.input), (0.2, 0.4));
        assert_eq!((config.n_streams(), config.regularisation.is_on()), (8, false));
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (sets, expected) in [
            (&["model.n_layers=0"][..], "`model.n_layers` is 0; expected at least 1"),
            (
                &["model.dropout={ hidden = 1.0 }"],
                "`model.dropout.hidden` is 1; expected 0 or more and below 1",
            ),
            (
                &["model.layer_decay=0.5"],
                "`model.layer_decay` is 0.5; expected it to be absent: it requires `model.path`",
            ),
            (
                &["model.path=a", "tokenizer={ kind = \"checkpoint\" }"],
                "`model.d_embedding` is 16; expected it to be absent: `model.path` brings its own",
            ),
            (&["regularisation.temporal=-1"], "`regularisation.temporal` is -1"),
            (&["train.recompute=true"], "`train.recompute` is true; expected false"),
            (&["objective.kind=masked"], "`objective.kind` is \"masked\"; expected \"left-to-right\""),
            (&["streams.order=1"], "unknown key `streams.order`"),
            (&["corpus.language=de"], "`corpus.language` is de; expected no such key"),
        ] {
            let message = resolve(sets).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
