//! Text embeddings.

use std::ops::Index;
use std::path::Path;

use burn::tensor::Device;
use cloze_tokenizer::Error as TokenizerError;
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{self, TextRead};
use cloze_trainer::token_vectors::{self, TokenEmbedConfig, TokenVectors};

use crate::{Error, Result, names};

/// A tokenizer and an encoder that embeds texts: similar meanings give similar vectors. Can be shared between
/// threads.
///
/// Pooling and maximum text length are read from the sentence-transformers modules in the model folder; without
/// them, pooling is the mean of the states.
///
/// ```no_run
/// let device = cloze::device::open(None)?;
/// let embedder = cloze::Embedder::load("sentence-transformers/all-MiniLM-L6-v2", &device)?;
/// let embeddings = embedder.embed(&["The old man sat by the sea."])?;
/// assert_eq!(embeddings[0].len(), embedder.width());
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct Embedder(embed::Embedder);

impl Embedder {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]). For another pooling or 8-bit
    /// weights, construct one `from` a [`trainer::embed::Embedder`](embed::Embedder).
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder.
    pub fn load(model: impl AsRef<Path>, device: &Device) -> Result<Self> {
        let folder = names::find(model)?;
        Ok(embed::Embedder::load(&folder, embed::EmbedConfig::default(), device)?.into())
    }

    /// The vectors of texts, in order. Texts longer than [`max_len`](Self::max_len) are truncated.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on; non-finite model outputs.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Embeddings> {
        let embed::Embeddings { values, texts } = self.0.embed(texts).map_err(of_input)?;
        Ok(Embeddings { values, width: self.width(), texts })
    }

    /// Elements per vector.
    pub fn width(&self) -> usize {
        self.0.width()
    }

    /// The maximum tokens of a text, special tokens included.
    pub fn max_len(&self) -> usize {
        self.0.max_len()
    }
}

impl From<embed::Embedder> for Embedder {
    fn from(embedder: embed::Embedder) -> Self {
        Self(embedder)
    }
}

/// An error with the index of the text that caused it.
fn of_input(error: TrainerError) -> Error {
    match error {
        TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. }) => {
            Error::Input { place: index, source: TrainerError::Tokenizer(*source) }
        }
        error => error.into(),
    }
}

/// A tokenizer and an encoder that embeds each token or word of a text. Can be shared between threads.
///
/// ```no_run
/// use cloze::trainer::token_vectors::{Layers, TokenEmbedConfig, WordPooling};
///
/// let config = TokenEmbedConfig {
///     layers: Layers::LastFourMean,
///     words: Some(WordPooling::Mean),
///     ..TokenEmbedConfig::default()
/// };
/// let device = cloze::device::open(None)?;
/// let embedder = cloze::TokenEmbedder::load("bert-base-uncased", config, &device)?;
/// let texts = embedder.embed(&["The old man sat by the sea."])?;
/// assert_eq!(texts[0].units[1].text, "old");
/// assert_eq!(texts[0].values.len(), texts[0].units.len() * embedder.width());
/// # Ok::<(), cloze::Error>(())
/// ```
#[derive(Debug)]
pub struct TokenEmbedder(token_vectors::TokenEmbedder);

impl TokenEmbedder {
    /// Loads a model folder, or a model by its hub name (see [`names::find`]).
    ///
    /// # Errors
    /// Those of [`names::find`]; a missing or damaged file in the folder; layers that the model does not have.
    pub fn load(model: impl AsRef<Path>, config: TokenEmbedConfig, device: &Device) -> Result<Self> {
        let folder = names::find(model)?;
        Ok(Self(token_vectors::TokenEmbedder::load(&folder, config, device)?))
    }

    /// The tokens or words of texts with their vectors, in the order of the texts. Long texts are read in
    /// windows.
    ///
    /// # Errors
    /// [`Error::Input`] with the first text that the tokenizer fails on; non-finite model outputs.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<TokenVectors>> {
        self.0.embed(texts).map_err(of_input)
    }

    /// Elements per vector.
    pub fn width(&self) -> usize {
        self.0.width()
    }
}

/// Vectors of a batch of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    values: Vec<f32>,
    width: usize,
    texts: Vec<TextRead>,
}

impl Embeddings {
    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The vectors in the order of the texts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// All elements, `[texts · width]`, row by row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The number of texts that were truncated to the model's maximum length.
    pub fn truncated(&self) -> usize {
        self.texts.iter().filter(|text| text.truncated).count()
    }

    /// For each text, how many tokens were read and whether it was truncated.
    pub fn texts(&self) -> &[TextRead] {
        &self.texts
    }

    /// The cosine similarity of two vectors by index: 1 if they point the same way, 0 if one of them is zero.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn cosine(&self, a: usize, b: usize) -> f32 {
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let (a, b) = (&self[a], &self[b]);
        let norms = (dot(a, a) * dot(b, b)).sqrt();
        if norms > 0.0 { (dot(a, b) / norms) as f32 } else { 0.0 }
    }
}

/// The vector of a text by index.
///
/// # Panics
/// If the index is out of range.
impl Index<usize> for Embeddings {
    type Output = [f32];

    fn index(&self, place: usize) -> &[f32] {
        &self.values[place * self.width..][..self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_found_by_their_places() {
        let values = vec![1.0, 0.0, 0.0, 2.0, -3.0, 0.0, 0.0, 0.0];
        let embeddings = Embeddings { values, width: 2, texts: Vec::new() };
        assert_eq!((embeddings.len(), embeddings.is_empty()), (4, false));
        assert_eq!(&embeddings[1], [0.0, 2.0]);
        assert!(embeddings.iter().eq((0..4).map(|place| &embeddings[place])));
        let cosines = [(0, 0), (0, 1), (0, 2), (0, 3)].map(|(a, b)| embeddings.cosine(a, b));
        assert_eq!(cosines, [1.0, 0.0, -1.0, 0.0]);
    }
}
