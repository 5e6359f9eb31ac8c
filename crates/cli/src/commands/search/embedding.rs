//! The model of an index.

use anyhow::{Context, Result};
use cloze_search::{Index, ModelIdentity};
use cloze_tokenizer::{Error as TokenizerError, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{EmbedConfig, Embedder};

use crate::compute::Compute;
use crate::model;

/// A model that makes vectors, and what it is told by.
pub struct Embedding<'a> {
    embedder: Embedder,
    identity: ModelIdentity,
    compute: &'a Compute,
    /// Texts that were cut so far.
    pub truncated: usize,
}

impl<'a> Embedding<'a> {
    /// Loads a model by its folder or name.
    pub fn load(name: &str, compute: &'a Compute) -> Result<Self> {
        let folder = model::folder(name)?;
        let device = compute.open()?;
        let config = EmbedConfig { int8: compute.int8, ..EmbedConfig::default() };
        let embedder = Embedder::load(&folder, config, &device)?;
        let identity = ModelIdentity {
            name: name.to_owned(),
            hash: ModelIdentity::hash_of(&folder)?,
            pooling: format!("{:?}", embedder.pooling()),
            normalize: embedder.normalizes(),
        };
        Ok(Self { embedder, identity, compute, truncated: 0 })
    }

    /// Loads the model that an index was made with, or the one given instead, which must be the same.
    pub fn of_index(index: &Index, name: Option<&str>, compute: &'a Compute) -> Result<Self> {
        let made_with = index.config().model.as_ref().map(|model| model.name.as_str());
        let name = name.or(made_with).context("the index does not say its model: give --model")?;
        let embedding = Self::load(name, compute)?;
        index.check_model(&embedding.identity, embedding.width())?;
        Ok(embedding)
    }

    /// What the model is told by.
    pub fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    /// Features of a vector.
    pub fn width(&self) -> usize {
        self.embedder.width()
    }

    /// The most tokens of a text.
    pub fn max_len(&self) -> usize {
        self.embedder.max_len()
    }

    /// The vectors of texts, one after the other; where one fails, its place and why.
    pub fn embed(&mut self, texts: &[Sequence<'_>]) -> Result<Vec<f32>, (Option<usize>, anyhow::Error)> {
        match self.compute.run(|| self.embedder.embed_sequences(texts)) {
            Ok(embeddings) => {
                self.truncated += embeddings.truncated;
                Ok(embeddings.values)
            }
            Err(TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. })) => {
                Err((Some(index), anyhow::Error::new(*source)))
            }
            Err(error) => Err((None, error.into())),
        }
    }
}
