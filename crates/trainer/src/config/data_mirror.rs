//! The data sections, until `cloze_data` has them.

use serde::{Deserialize, Serialize};

/// Where the text comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Files, folders and globs.
    pub files: Vec<String>,
    /// The files' format.
    #[serde(default)]
    pub format: Format,
    /// The column or field that holds the text.
    #[serde(default = "text")]
    pub text_column: String,
}

fn text() -> String {
    "text".to_owned()
}

/// A corpus file's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// By the file's name.
    #[default]
    Auto,
    /// Plain text.
    Text,
}

/// How examples are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleConfig {
    /// Tokens in an example.
    pub seq_len: usize,
    /// Sentence pairs.
    pub pairs: PairConfig,
    /// Masking.
    #[serde(default)]
    pub masking: MaskingConfig,
}

/// How sentence pairs are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PairConfig {
    /// BERT's.
    NextSentence {
        /// Share of short targets.
        #[serde(default)]
        short_seq_prob: f64,
        /// Share of random second segments.
        #[serde(default)]
        random_next_prob: f64,
    },
    /// RoBERTa's.
    FullSentences,
}

/// Masking.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskingConfig {
    /// Share of masked tokens.
    #[serde(default)]
    pub probability: f64,
}
