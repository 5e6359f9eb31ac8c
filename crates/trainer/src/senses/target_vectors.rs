//! Vectors of target words in their sentences.

use super::sentences::{SenseSentence, SenseText};
use crate::Result;
use crate::token_vectors::{Layers, TokenEmbedConfig, TokenEmbedder, TokenPlaces, TokenVectors};
use burn::tensor::Device;
use cloze_tokenizer::Sequence;
use std::path::Path;

/// An encoder that computes a vector for each target word of a sentence: the mean of its tokens' vectors.
///
/// A multi-word expression, such as `primary_election`, is read as its parts separated by spaces.
#[derive(Debug)]
pub struct TargetEmbedder {
    embedder: TokenEmbedder,
    layers: Layers,
}

impl TargetEmbedder {
    /// Loads a Hugging Face folder. Ignores `config.words`. `device` must be one without autodiff.
    ///
    /// # Errors
    /// Those of [`TokenEmbedder::load`].
    pub fn load(folder: &Path, config: TokenEmbedConfig, device: &Device) -> Result<Self> {
        let layers = config.layers.clone();
        let config = TokenEmbedConfig { words: None, ..config };
        Ok(Self { embedder: TokenEmbedder::load(folder, config, device)?, layers })
    }

    /// Width of a vector.
    pub fn width(&self) -> usize {
        self.embedder.width()
    }

    /// The layers that they are made of.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// For each sentence the vectors of its targets; none for a word without a token, e.g. one that consists of
    /// control characters.
    ///
    /// # Errors
    /// Those of [`TokenEmbedder::embed_sequences`].
    pub fn embed(&self, sentences: &[SenseSentence]) -> Result<Vec<Vec<Option<Vec<f32>>>>> {
        let spaced: Vec<Vec<String>> = sentences.iter().map(spaced).collect();
        let words: Vec<Vec<&str>> =
            spaced.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        let sequences: Vec<Sequence> = sentences
            .iter()
            .zip(&words)
            .map(|(sentence, words)| match &sentence.text {
                SenseText::Words(_) => Sequence::Words(words),
                SenseText::Text(text) => Sequence::Text(text),
            })
            .collect();
        let vectors = self.embedder.embed_sequences(&sequences)?;
        let width = self.width();
        let of_sentence = |(sentence, vectors): (&SenseSentence, TokenVectors)| {
            let is_words = matches!(sentence.text, SenseText::Words(_));
            let tokens = TokenPlaces::of(&vectors, is_words);
            sentence.targets.iter().map(|target| tokens.mean(&vectors, width, &target.place)).collect()
        };
        Ok(sentences.iter().zip(vectors).map(of_sentence).collect())
    }
}

/// A sentence's words as the encoder reads them; empty for a text.
fn spaced(sentence: &SenseSentence) -> Vec<String> {
    match &sentence.text {
        SenseText::Words(words) => words.iter().map(|word| with_spaces(word)).collect(),
        SenseText::Text(_) => Vec::new(),
    }
}

/// A word with spaces instead of the underscores between its parts. Underscores at its ends, or that make up
/// the whole word, are kept.
pub(crate) fn with_spaces(word: &str) -> String {
    let inner = word.trim_matches('_');
    let start = word.len() - word.trim_start_matches('_').len();
    match word.get(start + inner.len()..) {
        Some(end) if !inner.is_empty() => format!("{}{}{end}", &word[..start], inner.replace('_', " ")),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_between_parts_are_spaces() {
        for (word, expected) in [
            ("primary_election", "primary election"),
            ("City_of_Atlanta", "City of Atlanta"),
            ("sea", "sea"),
            ("_", "_"),
            ("___", "___"),
            ("_a_b_", "_a b_"),
            ("__été__", "__été__"),
            ("", ""),
        ] {
            assert_eq!(with_spaces(word), expected);
        }
    }
}
