//! Encoders described by their dissimilarities of the same sentences.

use super::run::{SentenceVector, TransferOptions};
use crate::periodic_notes::PeriodicNotes;
use crate::probing::{LayerEncoder, Reading};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_evaluation::EvaluationError;
use cloze_evaluation::similarity::dissimilarities;
use cloze_tokenizer::{OffsetUnit, Sequence, Tokenizer, Truncation};
use std::path::Path;

/// An encoder's dissimilarities of the sentences in each layer.
pub(super) struct Described {
    /// The layers' numbers, 0 for the embeddings.
    pub layers: Vec<usize>,
    /// `[layers]` of `[pairs]`.
    pub dissimilarities: Vec<Vec<f64>>,
    /// The sentences of which it reads only the beginning.
    pub cut: usize,
    /// The tokens of that beginning.
    pub max_len: usize,
}

/// Describes the encoder in a folder.
///
/// # Errors
/// A missing or damaged file in the folder; a missing layer; a sentence whose vector has no correlation.
pub(super) fn describe(
    name: &str,
    folder: &Path,
    options: &TransferOptions,
    device: &Device,
    notes: &PeriodicNotes,
) -> Result<Described> {
    let mut encoder = LayerEncoder::load(folder, None, (options.max_len, options.batch_tokens), device)?;
    let last = encoder.layers.len() - 1;
    if !options.layers.is_empty() {
        encoder.layers = chosen(&options.layers, last, name)?;
    }
    let texts: Vec<&str> = options.sentences.iter().map(String::as_str).collect();
    let cut = n_cut(folder, &texts, encoder.max_len)?;
    let readings = encoder.texts(&texts)?;
    let readings = match options.vector {
        SentenceVector::Mean => readings,
        SentenceVector::First => readings.into_iter().map(Reading::of_first).collect(),
    };
    let vectors = encoder.means(&readings, &format!("reading with {name}"), notes)?;
    let of_layer = |(layer, vectors): (&usize, &Vec<f32>)| {
        dissimilarities(vectors, encoder.width).map_err(|error| match error {
            EvaluationError::ConstantVector { vector } => {
                let text: String = options.sentences[vector].chars().take(40).collect();
                let problem = format!(
                    "sentence {} ({text:?}): all numbers of its vector in layer {layer} of {name} are equal, so it has no \
                     correlation; leave it out, or choose other layers",
                    vector + 1
                );
                TrainerError::BadInput { problem }
            }
            error => error.into(),
        })
    };
    let dissimilarities = encoder.layers.iter().zip(&vectors.of_layers).map(of_layer);
    Ok(Described {
        dissimilarities: dissimilarities.collect::<Result<_>>()?,
        layers: encoder.layers.clone(),
        cut,
        max_len: encoder.max_len,
    })
}

/// How many texts have more than `max_len` tokens of the tokenizer in a folder.
fn n_cut(folder: &Path, texts: &[&str], max_len: usize) -> Result<usize> {
    let mut tokenizer = Tokenizer::load(folder)?;
    tokenizer.set_truncation(Some(Truncation::to(max_len)))?;
    tokenizer.set_padding(None)?;
    tokenizer.set_keep_overflow(false);
    let texts: Vec<Sequence> = texts.iter().map(|text| Sequence::Text(text)).collect();
    let encodings = tokenizer.encode_inputs(&texts, true, OffsetUnit::Bytes)?;
    Ok(encodings.iter().filter(|encoding| encoding.truncated).count())
}

/// The numbers of layers, of which negative ones count from the last, −1.
fn chosen(layers: &[i32], last: usize, name: &str) -> Result<Vec<usize>> {
    let number = |layer: &i32| {
        let layer = i64::from(*layer);
        let from_start = if layer < 0 { layer + last as i64 + 1 } else { layer };
        usize::try_from(from_start).ok().filter(|number| *number <= last).ok_or_else(|| {
            TrainerError::Setting {
                key: "layers".into(),
                found: layer.to_string(),
                expected: format!(
                    "a number from 0, the embeddings, to {last}, the last layer of {name}, which is -1 too"
                ),
            }
        })
    };
    layers.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_layers_count_from_the_last() {
        assert_eq!(chosen(&[0, -1, 2], 4, "a").unwrap(), [0, 4, 2]);
        let error = chosen(&[5], 4, "a").unwrap_err().to_string();
        assert!(error.contains("`layers` is 5; expected a number from 0, the embeddings, to 4"), "{error}");
        assert!(chosen(&[-6], 4, "a").is_err());
    }
}
