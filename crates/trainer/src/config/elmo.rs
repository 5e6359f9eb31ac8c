//! The configuration of a run that trains an ELMo, read as strictly as a [pretraining run's](super::RunConfig).

use super::language_model::eval;
use super::layered::ConfigFile;
use super::objective::Trained;
use super::validate::{self, Check, at_least, ensure};
use super::{LanguageModelEval, ObjectiveSection, Run, TokenizerSection, TrainSection, layered};
use crate::error::Result;
use cloze_data::{BlockConfig, CorpusConfig};
use cloze_model::ModelError;
use cloze_model::elmo::{ElmoConfig, Filters, PieceBytes};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configures a run that trains an ELMo, a bidirectional language model, on running text (Peters et al.
/// 2018): `objective.kind = "bidirectional-language-model"`.
///
/// [`ElmoRunConfig::load`] resolves one from a file whose `objective.kind` is
/// `"bidirectional-language-model"`.
pub type ElmoRunConfig = Run<ElmoRun>;

/// The sections of an [`ElmoRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ElmoRun {
    /// `[objective]`: what is predicted; `kind` is `"bidirectional-language-model"`.
    pub objective: ObjectiveSection,
    /// `[corpus]`: the text. As for language models, `language`, `languages` and `sampling_alpha` are
    /// rejected.
    pub corpus: CorpusConfig,
    /// `[tokenizer]`: the vocabulary, which must be byte-level, such as `"train-byte-bpe"`.
    pub tokenizer: TokenizerSection,
    /// `[blocks]`: how running text is cut. With `documents = "apart"`, a text begins and ends with the piece
    /// that ends documents, and no text sees another. `prefix_share` is rejected.
    pub blocks: BlockConfig,
    /// `[model]`: the model, new or a checkpoint's.
    #[serde(default)]
    pub model: ElmoSection,
    /// `[train]`: steps and batches. `recompute` is rejected.
    pub train: TrainSection,
    /// `[eval]`: evaluation on held-out text.
    #[serde(default)]
    pub eval: LanguageModelEval,
}

/// `[model]`: an ELMo, new or a checkpoint's (`path`), which has its own sizes. The vocabulary is the
/// tokenizer's. The result is a folder in this project's own format: transformers has no such model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ElmoSection {
    /// A checkpoint to continue training from: the folder of an ELMo, relative to the current directory;
    /// `cloze` also takes a name on the hub. Use `tokenizer = { kind = "checkpoint" }` with it. Default none:
    /// the model is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Maximum characters read per token, start and end markers included. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_characters: Option<usize>,
    /// Width of a character embedding. Default 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_character: Option<usize>,
    /// The filters over characters, one `[width, number]` per width. Default the paper's 2,048 filters of
    /// widths 1 to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<Vec<Filters>>,
    /// Highway layers. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_highway: Option<usize>,
    /// Width of an LSTM cell. Default 4,096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_hidden: Option<usize>,
    /// Width of a token, and of an LSTM's projected state. Default 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_projection: Option<usize>,
    /// LSTM layers, each in both directions. Default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_layers: Option<usize>,
    /// Dropout of each layer's input and of the last states. Default 0.1, or the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropout: Option<f64>,
}

impl ElmoSection {
    /// A new model for a vocabulary of these pieces.
    pub fn shape(&self, pieces: PieceBytes) -> ElmoConfig {
        let mut config = ElmoConfig::new(pieces);
        let characters = &mut config.characters;
        characters.max_characters = self.max_characters.unwrap_or(characters.max_characters);
        characters.d_character = self.d_character.unwrap_or(characters.d_character);
        characters.filters = self.filters.clone().unwrap_or_else(|| characters.filters.clone());
        characters.n_highway = self.n_highway.unwrap_or(characters.n_highway);
        characters.d_out = self.d_projection.unwrap_or(characters.d_out);
        config.d_hidden = self.d_hidden.unwrap_or(config.d_hidden);
        config.n_layers = self.n_layers.unwrap_or(config.n_layers);
        config.dropout = self.dropout.unwrap_or(config.dropout);
        config
    }
}

/// See [`RunKind::read`](crate::runs::RunKind::read).
pub(crate) fn read(file: &ConfigFile, sets: &[String]) -> Result<ElmoRunConfig> {
    layered::read(file, sets, |config| validate(config))
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

/// The required tokenizer, and why.
pub(crate) const OF_BYTES: &str = "a tokenizer of bytes, such as \"train-byte-bpe\": with `objective.kind` = \
                                   \"bidirectional-language-model\" tokens are read by their bytes";

fn validate(config: &ElmoRunConfig) -> Check {
    config.objective.check(Trained::Elmo)?;
    validate::running_text(&config.corpus)?;
    match &config.tokenizer {
        // The end piece and all bytes, and a pair that is joined.
        TokenizerSection::TrainByteBpe { vocab_size, .. } => {
            at_least(258, "tokenizer.vocab_size", *vocab_size)?;
        }
        // What it is is known when it is open.
        TokenizerSection::Load { .. } | TokenizerSection::Checkpoint {} => {}
        other => ensure(false, "tokenizer.kind", format!("\"{}\"", other.kind()), OF_BYTES)?,
    }
    validate::goes_with_the_model(&config.tokenizer, config.model.path.is_none())?;
    at_least(1, "blocks.seq_len", config.blocks.seq_len)?;
    let prefix_share = config.blocks.prefix_share;
    let expected =
        "0: with `objective.kind` = \"bidirectional-language-model\" no token sees what it predicts";
    ensure(prefix_share == 0.0, "blocks.prefix_share", prefix_share, expected)?;
    model(&config.model)?;
    validate::train(&config.train, config.blocks.seq_len)?;
    ensure(!config.train.recompute, "train.recompute", true, "false: recurrent layers are not recomputed")?;
    config.common.check(config.train.steps)?;
    eval(&config.eval)
}

fn model(model: &ElmoSection) -> Check {
    let own = "it to be absent: `model.path` brings its own";
    let sizes = [
        ("model.max_characters", model.max_characters),
        ("model.d_character", model.d_character),
        ("model.filters", model.filters.as_ref().map(Vec::len)),
        ("model.n_highway", model.n_highway),
        ("model.d_hidden", model.d_hidden),
        ("model.d_projection", model.d_projection),
        ("model.n_layers", model.n_layers),
    ];
    for (key, size) in sizes {
        let found = match key {
            "model.filters" => "a list".to_owned(),
            _ => size.unwrap_or(0).to_string(),
        };
        ensure(model.path.is_none() || size.is_none(), key, found, own)?;
    }
    // It is so with any vocabulary.
    let shape = model.shape([&b"a"[..]].into_iter().collect());
    shape.validate().map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            let key = if key == "d_out" { "d_projection" } else { key };
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
kind = "bidirectional-language-model"

[corpus]
files = ["a.txt"]

[tokenizer]
kind = "train-byte-bpe"
vocab_size = 512

[blocks]
seq_len = 32

[model]
d_hidden = 24
filters = [[1, 8], [3, 16]]

[train]
steps = 100
batch_size = 8

[optimizer]
lr = 1e-3

[schedule]
kind = "constant"
"#;

    fn resolve(sets: &[&str]) -> Result<ElmoRunConfig> {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        ElmoRunConfig::parse(FILE, "run", &Place::file(Path::new("run.toml")), &sets)
    }

    #[test]
    fn a_file_is_completed_and_reads_back_the_same() {
        for sets in [
            vec![],
            vec!["model.dropout=0.2", "model.n_layers=3", "blocks.documents=apart"],
            vec!["model={ path = \"some/model\", dropout = 0.0 }", "tokenizer={ kind = \"checkpoint\" }"],
            vec!["tokenizer={ kind = \"load\", path = \"some/tokenizer.json\" }"],
        ] {
            let config = resolve(&sets).unwrap_or_else(|error| panic!("{sets:?}: {error}"));
            let place = Place::file(Path::new("run.toml"));
            assert_eq!(ElmoRunConfig::parse(&config.to_toml(), "x", &place, &[]).unwrap(), config);
        }
        let shape = resolve(&[]).unwrap().model.shape(PieceBytes::default());
        assert_eq!(
            (shape.d_hidden, shape.characters.d_out, shape.n_layers, shape.dropout),
            (24, 512, 2, 0.1)
        );
        assert_eq!(shape.characters.filters, [Filters { width: 1, n: 8 }, Filters { width: 3, n: 16 }]);
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (sets, expected) in [
            (&["model.n_layers=0"][..], "`model.n_layers` is 0; expected at least 1"),
            (&["model.d_projection=0"], "`model.d_projection` is 0; expected at least 1"),
            (&["model.max_characters=2"], "`model.max_characters` is 2; expected 3 or more"),
            (&["model.dropout=1.0"], "`model.dropout` is 1; expected 0 or more and below 1"),
            (
                &["model={ path = \"a\", filters = [[1, 2]] }", "tokenizer={ kind = \"checkpoint\" }"],
                "`model.filters` is a list; expected it to be absent: `model.path` brings its own",
            ),
            (
                &["tokenizer={ kind = \"train-wordpiece\", vocab_size = 300 }"],
                "`tokenizer.kind` is \"train-wordpiece\"; expected a tokenizer of bytes, such as \"train-byte-bpe\": with \
                 `objective.kind` = \"bidirectional-language-model\"",
            ),
            (
                &["blocks.prefix_share=0.5"],
                "`blocks.prefix_share` is 0.5; expected 0: with `objective.kind` = \"bidirectional-language-model\"",
            ),
            (&["train.recompute=true"], "`train.recompute` is true; expected false"),
            (
                &["objective.kind=left-to-right"],
                "`objective.kind` is \"left-to-right\"; expected \"bidirectional-language-model\"",
            ),
            (&["model.d_model=1"], "unknown key `model.d_model`"),
        ] {
            let message = resolve(sets).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
