//! Vectors of target words in their sentences.

use super::sentences::{SenseSentence, SenseText};
use crate::Result;
use crate::token_vectors::{Layers, TokenEmbedConfig, TokenEmbedder, TokenVectors, Unit};
use burn::tensor::Device;
use cloze_tokenizer::Sequence;
use std::ops::Range;
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
            let tokens = Tokens::of(&vectors, is_words);
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
fn with_spaces(word: &str) -> String {
    let inner = word.trim_matches('_');
    let start = word.len() - word.trim_start_matches('_').len();
    match word.get(start + inner.len()..) {
        Some(end) if !inner.is_empty() => format!("{}{}{end}", &word[..start], inner.replace('_', " ")),
        _ => word.to_owned(),
    }
}

/// A sentence's tokens sorted by position, so that those of a target are found without scanning all.
struct Tokens {
    /// The word or character range of each token, and the token's index, sorted by start.
    places: Vec<(Range<usize>, usize)>,
    /// The running maximum of the ends, which is ascending even if the ends are not.
    reach: Vec<usize>,
}

impl Tokens {
    fn of(vectors: &TokenVectors, is_words: bool) -> Self {
        let place = |(number, unit): (usize, &Unit)| {
            let place = match is_words {
                true => unit.word.map(|word| word as usize..word as usize + 1)?,
                false => unit.chars.clone(),
            };
            Some((place, number))
        };
        let mut places: Vec<_> = vectors.units.iter().enumerate().filter_map(place).collect();
        places.sort_by_key(|(place, _)| place.start);
        let furthest = places.iter().scan(0, |furthest, (place, _)| {
            *furthest = place.end.max(*furthest);
            Some(*furthest)
        });
        Self { reach: furthest.collect(), places }
    }

    /// The mean of the vectors of a word's tokens, or of the tokens that overlap its characters in a text.
    fn mean(&self, vectors: &TokenVectors, width: usize, place: &Range<usize>) -> Option<Vec<f32>> {
        let mut sum = vec![0.0; width];
        let mut n = 0.0;
        let first = self.reach.partition_point(|reach| *reach <= place.start);
        let until = self.places[first..].iter().take_while(|(token, _)| token.start < place.end);
        for (_, number) in until.filter(|(token, _)| place.start < token.end) {
            let values = &vectors.values[number * width..][..width];
            n += 1.0;
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        (n > 0.0).then(|| {
            sum.iter_mut().for_each(|sum| *sum /= n);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(vectors: &TokenVectors, width: usize, place: &Range<usize>, is_words: bool) -> Option<Vec<f32>> {
        Tokens::of(vectors, is_words).mean(vectors, width, place)
    }

    #[test]
    fn a_long_line_takes_no_look_at_all_tokens_for_each_word() {
        let n = 300_000;
        let unit = |word: usize| Unit { text: String::new(), chars: 0..1, word: Some(word as u32) };
        let values = (0..n).map(|word| word as f32).collect();
        let vectors = TokenVectors { units: (0..n).map(unit).collect(), values };
        let tokens = Tokens::of(&vectors, true);
        // By a look at each token for each word, many minutes.
        for word in 0..n {
            assert_eq!(tokens.mean(&vectors, 1, &(word..word + 1)), Some(vec![word as f32]));
        }
    }

    #[test]
    fn tokens_that_overlap_or_stand_in_another_order_are_all_found() {
        let unit = |chars| Unit { text: String::new(), chars, word: None };
        let vectors = TokenVectors {
            units: vec![unit(0..9), unit(4..4), unit(1..2), unit(1..2), unit(6..8), unit(3..5)],
            values: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
        };
        assert_eq!(mean(&vectors, 1, &(3..7), false), Some(vec![(1.0 + 2.0 + 16.0 + 32.0) / 4.0]));
        assert_eq!(mean(&vectors, 1, &(1..2), false), Some(vec![(1.0 + 4.0 + 8.0) / 3.0]));
        assert_eq!(mean(&vectors, 1, &(8..9), false), Some(vec![1.0]));
        assert_eq!(mean(&vectors, 1, &(9..10), false), None);
    }

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

    #[test]
    fn a_word_has_the_mean_of_its_tokens() {
        let unit = |chars, word| Unit { text: String::new(), chars, word };
        let vectors = TokenVectors {
            units: vec![unit(0..3, Some(0)), unit(0..2, Some(1)), unit(2..5, Some(1)), unit(0..1, None)],
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 9.0],
        };
        assert_eq!(mean(&vectors, 2, &(1..2), true), Some(vec![4.0, 6.0]));
        assert_eq!(mean(&vectors, 2, &(0..1), true), Some(vec![1.0, 2.0]));
        assert_eq!(mean(&vectors, 2, &(2..3), true), None);
        // By characters.
        let text = TokenVectors {
            units: vec![unit(0..3, Some(0)), unit(4..6, Some(1)), unit(6..8, Some(1))],
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 8.0],
        };
        assert_eq!(mean(&text, 2, &(4..8), false), Some(vec![4.0, 6.0]));
        assert_eq!(mean(&text, 2, &(2..5), false), Some(vec![2.0, 3.0]));
        assert_eq!(mean(&text, 2, &(3..4), false), None);
    }
}
