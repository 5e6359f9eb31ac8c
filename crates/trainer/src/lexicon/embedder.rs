//! An encoder that computes a vector for a word.

use crate::Result;
use crate::senses::with_spaces;
use crate::token_vectors::{Layers, TokenEmbedConfig, TokenEmbedder, TokenPlaces, TokenVectors, mean_of};
use burn::tensor::Device;
use cloze_tokenizer::{Encoding, Sequence};
use std::ops::Range;
use std::path::Path;

/// Settings of a [`WordTypeEmbedder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordTypeConfig {
    /// The layers whose states are averaged or concatenated; default: the mean of the embeddings and all layers.
    pub layers: Layers,
    /// Whether the special tokens around the text belong to the mean, too: "all" in the paper, which finds them
    /// harmful, else "nospec".
    pub special: bool,
    /// See [`EmbedConfig`](crate::embed::EmbedConfig::language).
    pub language: Option<String>,
    /// Maximum tokens per batch.
    pub batch_tokens: usize,
    /// Whether the layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
}

impl Default for WordTypeConfig {
    fn default() -> Self {
        let TokenEmbedConfig { language, batch_tokens, int8, .. } = TokenEmbedConfig::default();
        Self { layers: Layers::Mean(Vec::new()), special: false, language, batch_tokens, int8 }
    }
}

/// A text and words in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordContext {
    /// The text.
    pub text: String,
    /// The number of each word in the list, and its place in the text, in characters.
    pub words: Vec<(usize, Range<usize>)>,
}

/// An encoder that computes a vector for each occurrence of a word: the mean over the word's pieces of the states of
/// [some layers](Layers).
#[derive(Debug)]
pub struct WordTypeEmbedder {
    embedder: TokenEmbedder,
    special: bool,
    unknown_id: Option<u32>,
}

impl WordTypeEmbedder {
    /// Loads a Hugging Face folder. `device` must be one without autodiff.
    ///
    /// # Errors
    /// Those of [`TokenEmbedder::load`].
    pub fn load(folder: &Path, config: WordTypeConfig, device: &Device) -> Result<Self> {
        let WordTypeConfig { layers, special, language, batch_tokens, int8 } = config;
        let config =
            TokenEmbedConfig { layers, special, language, batch_tokens, int8, ..TokenEmbedConfig::default() };
        let embedder = TokenEmbedder::load(folder, config, device)?;
        let tokenizer = embedder.tokenizer();
        let unknown_id = tokenizer.model().unk_token().and_then(|token| tokenizer.token_to_id(token));
        Ok(Self { embedder, special, unknown_id })
    }

    /// Width of a vector.
    pub fn width(&self) -> usize {
        self.embedder.width()
    }

    /// The numbers of the layers, in the order in which they are concatenated if they are.
    pub fn layers(&self) -> &[usize] {
        self.embedder.layers()
    }

    /// The vectors of words that are read alone. Underscores between the parts of a word are read as spaces. None for a
    /// word without a piece, or of unknown pieces alone.
    ///
    /// # Errors
    /// Those of [`TokenEmbedder::embed_sequences`].
    pub fn alone<T: AsRef<str>>(&self, words: &[T]) -> Result<Vec<Option<Vec<f32>>>> {
        let context = |word: &T| {
            let text = with_spaces(word.as_ref());
            WordContext { words: vec![(0, 0..text.chars().count())], text }
        };
        let contexts: Vec<WordContext> = words.iter().map(context).collect();
        Ok(self.in_contexts(&contexts)?.into_iter().map(|mut vectors| vectors.pop().flatten()).collect())
    }

    /// For each text, the vectors of its words; none for a word without a piece, or of unknown pieces alone.
    ///
    /// # Errors
    /// Those of [`TokenEmbedder::embed_sequences`].
    pub fn in_contexts(&self, contexts: &[WordContext]) -> Result<Vec<Vec<Option<Vec<f32>>>>> {
        let texts: Vec<Sequence> = contexts.iter().map(|context| Sequence::Text(&context.text)).collect();
        let encodings = self.embedder.encode(&texts)?;
        let vectors = self.embedder.embed_encoded(&texts, &encodings)?;
        let of_text = |((context, encoding), vectors): ((&WordContext, &Encoding), &TokenVectors)| {
            let places = TokenPlaces::of(vectors, false);
            let of_word = |(_, place): &(usize, Range<usize>)| self.word(encoding, vectors, &places, place);
            context.words.iter().map(of_word).collect()
        };
        Ok(contexts.iter().zip(&encodings).zip(&vectors).map(of_text).collect())
    }

    fn word(
        &self,
        encoding: &Encoding,
        vectors: &TokenVectors,
        places: &TokenPlaces,
        place: &Range<usize>,
    ) -> Option<Vec<f32>> {
        let inner = encoding.sequence_range(0)?;
        // Where the units begin in the encoding.
        let first = if self.special { 0 } else { inner.start };
        let is_known = |unit: usize| Some(encoding.ids[first + unit]) != self.unknown_id;
        if !places.at(place).any(is_known) {
            return None;
        }
        let around = (0..inner.start).chain(inner.end..encoding.len()).filter(|_| self.special);
        mean_of(vectors, self.width(), places.at(place).chain(around))
    }
}
