//! The model of an index.

use std::path::Path;

use anyhow::{Context, Error, Result};
use cloze_search::{Index, ModelIdentity, SearchError};
use cloze_tokenizer::{Error as TokenizerError, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{EmbedConfig, Embedder};

use crate::compute::Compute;
use crate::model::{self, OtherModel};
use crate::output::say;

/// A model that computes vectors, and its identity.
pub struct Embedding<'a> {
    embedder: Embedder,
    identity: ModelIdentity,
    compute: &'a Compute,
    /// Texts truncated so far.
    pub truncated: usize,
}

impl<'a> Embedding<'a> {
    /// Loads a model by its folder or name.
    pub fn load(name: &str, compute: &'a Compute) -> Result<Self> {
        Self::load_as(name, compute, ModelIdentity::hash_of)
    }

    fn load_as<E>(
        name: &str,
        compute: &'a Compute,
        hash: impl FnOnce(&Path) -> Result<String, E>,
    ) -> Result<Self>
    where
        Error: From<E>,
    {
        let folder = model::folder(name)?;
        let device = compute.open()?;
        let config = EmbedConfig { int8: compute.int8, ..EmbedConfig::default() };
        let embedder = Embedder::load(&folder, config, &device)?;
        let identity = ModelIdentity {
            name: model::lasting_name(name),
            hash: hash(&folder)?,
            pooling: embedder.pooling().to_string(),
            normalize: embedder.normalizes(),
        };
        Ok(Self { embedder, identity, compute, truncated: 0 })
    }

    /// Loads the model that the index was built with, or the given one, which must be the same.
    pub fn of_index(
        index: &Index,
        name: Option<&str>,
        other: &OtherModel,
        compute: &'a Compute,
    ) -> Result<Self> {
        let info = index.info();
        if info.rows_with_old_graph > 0 {
            say(format_args!(
                "the index has a graph of an earlier version, which misses rows where many texts are equal: `cloze search \
                 compact` rebuilds it"
            ));
        }
        let made_with = index.config().model.as_ref();
        let name = name.or(made_with.map(|model| model.name.as_str()));
        let name = name.context("the index does not name its model: give --model")?;
        let expected = made_with.map(|model| model.hash.as_str());
        let mut embedding = Self::load_as(name, compute, |folder| other.hash(folder, expected))?;
        // Earlier versions wrote the pooling so.
        let pooling = format!("{:?}", embedding.embedder.pooling());
        if made_with.is_some_and(|made_with| made_with.pooling == pooling) {
            embedding.identity.pooling = pooling;
        }
        let checked = index.check_model(&embedding.identity, embedding.width());
        checked.map_err(|error| match error {
            SearchError::OtherModel { part: "hash", .. } => OtherModel::hint(error, &embedding.identity.hash),
            error => error.into(),
        })?;
        Ok(embedding)
    }

    /// The model's identity.
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

    /// The vectors of texts, concatenated; if one fails, its index and the reason.
    pub fn embed(&mut self, texts: &[Sequence<'_>]) -> Result<Vec<f32>, (Option<usize>, Error)> {
        match self.compute.run(|| self.embedder.embed_sequences(texts)) {
            Ok(embeddings) => {
                self.truncated += embeddings.truncated();
                Ok(embeddings.values)
            }
            Err(TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. })) => {
                Err((Some(index), Error::new(*source)))
            }
            Err(error) => Err((None, error.into())),
        }
    }
}
