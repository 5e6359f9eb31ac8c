//! `[model.recurrent]` of a config.

use crate::config::TokenizerSection;
use crate::config::validate::{Check, Complaint, at_least, below_one, ensure};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_evaluation::table;
use cloze_model::recurrent::{Cell, Reading};
use cloze_model::tasks::{
    RecurrentClassifierConfig, RecurrentEncoderConfig, RecurrentPooling, RecurrentTaggerConfig,
};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};
use serde::{Deserialize, Serialize};

/// The supported kinds of tokenizers.
const KINDS: &str = "train-wordpiece, train-byte-bpe or load";

/// `[model.recurrent]`: a recurrent model to train from scratch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RecurrentSection {
    /// The kind of recurrent cell. Default `"lstm"`.
    #[serde(default)]
    pub cell: Cell,
    /// Width of an embedding. Default 128.
    #[serde(default = "d_embedding")]
    pub d_embedding: usize,
    /// Width of a token's state, split evenly if there are two directions. Default 256.
    #[serde(default = "d_model")]
    pub d_model: usize,
    /// Layers. Default 1.
    #[serde(default = "n_layers")]
    pub n_layers: usize,
    /// The reading direction. Default `"both"`.
    #[serde(default = "reading")]
    pub reading: Reading,
    /// Dropout on the embeddings, between layers and before the head. Default 0.5.
    #[serde(default = "dropout")]
    pub dropout: f64,
    /// How states are pooled for classification and regression; not for taggers. Default `"last"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<RecurrentPooling>,
    /// The tokenizer: trained on the training data (`"train-wordpiece"`, `"train-byte-bpe"`), or an existing
    /// one (`"load"`).
    pub tokenizer: TokenizerSection,
}

fn d_embedding() -> usize {
    128
}

fn d_model() -> usize {
    256
}

fn n_layers() -> usize {
    1
}

fn reading() -> Reading {
    Reading::Both
}

fn dropout() -> f64 {
    0.5
}

impl RecurrentSection {
    /// Checks the values for a tagger or a classifier.
    pub(super) fn check(&self, is_tagging: bool) -> Check {
        at_least(1, "model.recurrent.d_embedding", self.d_embedding)?;
        at_least(1, "model.recurrent.d_model", self.d_model)?;
        at_least(1, "model.recurrent.n_layers", self.n_layers)?;
        below_one("model.recurrent.dropout", self.dropout)?;
        let even = self.d_model.is_multiple_of(self.reading.directions());
        let half = "an even number, half of it for each direction";
        ensure(even, "model.recurrent.d_model", self.d_model, half)?;
        if let (true, Some(pooling)) = (is_tagging, self.pooling) {
            let found = format!("{pooling:?}").to_lowercase();
            return ensure(false, "model.recurrent.pooling", found, "none of a tagger");
        }
        match self.tokenizer {
            TokenizerSection::Checkpoint {}
            | TokenizerSection::TrainCharacters {}
            | TokenizerSection::TrainWords { .. } => Err(Complaint {
                key: "model.recurrent.tokenizer.kind".into(),
                found: self.tokenizer.kind().into(),
                expected: KINDS.into(),
            }),
            _ => Ok(()),
        }
    }

    fn encoder(&self, vocab_size: usize) -> RecurrentEncoderConfig {
        let Self { cell, d_embedding, d_model, n_layers, reading, dropout, .. } = *self;
        RecurrentEncoderConfig { vocab_size, cell, d_embedding, d_model, n_layers, reading, dropout }
    }

    /// The classifier with this vocabulary.
    pub(super) fn classifier(&self, vocab_size: usize, n_outputs: usize) -> RecurrentClassifierConfig {
        let pooling = self.pooling.unwrap_or_default();
        RecurrentClassifierConfig { encoder: self.encoder(vocab_size), pooling, n_outputs }
    }

    /// The tagger with this vocabulary.
    pub(super) fn tagger(&self, vocab_size: usize, n_tags: usize, crf: bool) -> RecurrentTaggerConfig {
        RecurrentTaggerConfig { encoder: self.encoder(vocab_size), n_tags, crf }
    }

    /// Loads the tokenizer, or trains it on these texts.
    ///
    /// # Errors
    /// An unreadable tokenizer; texts that give no vocabulary.
    pub(super) fn tokenizer(
        &self,
        texts: impl Iterator<Item = String>,
        progress: &mut dyn RunProgress,
    ) -> Result<Tokenizer> {
        let tokenizer = match self.tokenizer {
            TokenizerSection::TrainWordpiece { vocab_size, lowercase, min_frequency } => {
                WordPieceTrainer { vocab_size, lowercase, min_frequency, ..Default::default() }
                    .train(texts)?
            }
            TokenizerSection::TrainByteBpe { vocab_size, min_frequency } => {
                BpeTrainer { vocab_size, min_frequency, ..Default::default() }.train(texts)?
            }
            TokenizerSection::Load { ref path } => return for_any_length(Tokenizer::load(path)?),
            TokenizerSection::Checkpoint {}
            | TokenizerSection::TrainCharacters {}
            | TokenizerSection::TrainWords { .. } => {
                return Err(TrainerError::Setting {
                    key: "model.recurrent.tokenizer.kind".into(),
                    found: self.tokenizer.kind().into(),
                    expected: KINDS.into(),
                });
            }
        };
        let pieces = table::grouped(tokenizer.vocab_size() as u64);
        progress.note(&format!("tokenizer: {pieces} pieces, trained on the training data"));
        Ok(tokenizer)
    }
}

/// The tokenizer without the truncation and padding of its previous use.
pub(super) fn for_any_length(mut tokenizer: Tokenizer) -> Result<Tokenizer> {
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    Ok(tokenizer)
}
