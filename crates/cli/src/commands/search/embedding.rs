//! The model of an index.

use std::path::Path;

use anyhow::{Context, Error, Result, anyhow};
use cloze_data::images::ImageSource;
use cloze_search::{Index, ModelIdentity, SearchError};
use cloze_tokenizer::{Error as TokenizerError, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::images::{ImageEmbedConfig, ImageEmbedder, ImageEmbeddings, is_image_model};

use crate::compute::Compute;
use crate::model::{self, OtherModel};
use crate::output::say;

/// A model that computes vectors, and its identity.
pub struct Embedding<'a> {
    embedder: Encoder,
    identity: ModelIdentity,
    compute: &'a Compute,
    /// Texts truncated so far.
    pub truncated: usize,
}

/// A model of texts or of images.
enum Encoder {
    Texts(Box<Embedder>),
    Images(Box<ImageEmbedder>),
}

/// The vectors of some texts or images.
pub struct Embedded {
    /// One after another, of those before the first that cannot be used.
    pub values: Vec<f32>,
    /// What is wrong with the next one, if there is one.
    pub refused: Option<Error>,
}

/// How the identity of a model of images says which state is the vector.
const OF_IMAGES: &str = "image ";

/// Whether an index is one of images.
pub fn is_of_images(index: &Index) -> bool {
    index.config().model.as_ref().is_some_and(|model| model.pooling.starts_with(OF_IMAGES))
}

/// The image of a row or query: a path, a data URI, or a line of JSON with one.
fn image_of(text: &str) -> Result<ImageSource> {
    let text = text.trim();
    match text.starts_with(['{', '"']) {
        true => Ok(ImageEmbedder::source_of_line(text)?),
        false => {
            ImageSource::of_text(text, Path::new(""), "the image").map_err(|problem| anyhow!("{problem}"))
        }
    }
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
        let embedder = match is_image_model(&folder) {
            false => {
                let config = EmbedConfig { int8: compute.int8, ..EmbedConfig::default() };
                Encoder::Texts(Box::new(Embedder::load(&folder, config, &device)?))
            }
            true => {
                let config = ImageEmbedConfig { int8: compute.int8, ..ImageEmbedConfig::default() };
                Encoder::Images(Box::new(ImageEmbedder::open(&folder, config, &device)?))
            }
        };
        let (pooling, normalize) = match &embedder {
            Encoder::Texts(embedder) => (embedder.pooling().to_string(), embedder.normalizes()),
            Encoder::Images(embedder) => {
                (format!("{OF_IMAGES}{}", embedder.pooling().name()), embedder.normalizes())
            }
        };
        let identity =
            ModelIdentity { name: model::lasting_name(name), hash: hash(&folder)?, pooling, normalize };
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
        if let Encoder::Texts(embedder) = &embedding.embedder {
            let pooling = format!("{:?}", embedder.pooling());
            if made_with.is_some_and(|made_with| made_with.pooling == pooling) {
                embedding.identity.pooling = pooling;
            }
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
        match &self.embedder {
            Encoder::Texts(embedder) => embedder.width(),
            Encoder::Images(embedder) => embedder.width(),
        }
    }

    /// The most tokens of a text.
    pub fn max_len(&self) -> usize {
        match &self.embedder {
            Encoder::Texts(embedder) => embedder.max_len(),
            Encoder::Images(_) => usize::MAX,
        }
    }

    /// Whether a text has this many tokens at most and is not truncated. A text that the tokenizer refuses does: its
    /// embedding says what is wrong.
    pub fn fits(&self, text: &str, most: usize) -> bool {
        match &self.embedder {
            Encoder::Texts(embedder) => {
                embedder.measure(text).map_or(true, |read| !read.truncated && read.tokens <= most)
            }
            Encoder::Images(_) => true,
        }
    }

    /// The vectors of texts, or of the images that they name, up to the first that cannot be used.
    pub fn embed(&mut self, texts: &[Sequence<'_>]) -> Result<Embedded> {
        match &self.embedder {
            Encoder::Texts(embedder) => match self.compute.run(|| embedder.embed_sequences(texts)) {
                Ok(embeddings) => {
                    self.truncated += embeddings.truncated();
                    Ok(Embedded { values: embeddings.values, refused: None })
                }
                Err(TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. })) => {
                    let before = self.embed(&texts[..index])?;
                    Ok(Embedded { refused: before.refused.or(Some(Error::new(*source))), ..before })
                }
                Err(error) => Err(error.into()),
            },
            Encoder::Images(embedder) => {
                let (mut sources, mut unread) = (Vec::with_capacity(texts.len()), None);
                for text in texts {
                    match text {
                        Sequence::Text(text) => match image_of(text) {
                            Ok(source) => sources.push(source),
                            Err(error) => unread = Some(error),
                        },
                        _ => unread = Some(anyhow!("the line is too long; raise --max-line-bytes")),
                    }
                    if unread.is_some() {
                        break;
                    }
                }
                let ImageEmbeddings { values, refused } = self.compute.run(|| embedder.embed(sources))?;
                Ok(Embedded { values, refused: refused.map(Error::new).or(unread) })
            }
        }
    }
}
