//! Captions that a model writes, with the places that it looked at.

use super::vocabulary::CaptionVocabulary;
use crate::Result;
use burn::tensor::{Device, Tensor};
use cloze_model::captions::{CaptionDecoder, Captioner};
use cloze_model::generate::{DecodeConfig, Decoding, Hypothesis, InOrder, Request};
use cloze_model::seq2seq::DecodeOptions;
use cloze_model::vision::ImageEncoder;
use std::ops::Range;

/// A caption of an image.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WrittenCaption {
    /// The caption.
    pub text: String,
    /// The ranking score: of a beam the log-probability divided by the length penalty.
    pub score: f64,
    /// Its log-probability.
    pub log_prob: f64,
    /// Whether it was cut at the maximum length.
    pub cut: bool,
    /// Its words with the places that the model looked at; no places without attention, or if they were not asked for.
    pub words: Vec<WrittenWord>,
}

/// A word of a [`WrittenCaption`].
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenWord {
    /// Its bytes in the text.
    pub range: Range<usize>,
    /// `[rows · columns]`: the share of each place, the mean over the word's pieces; empty without attention.
    pub attention: Vec<f32>,
}

/// What a model writes about images, the best first for each.
pub(super) struct Written {
    /// The captions of each image.
    pub captions: Vec<Vec<Hypothesis>>,
    /// Rows and columns of places.
    pub grid: [usize; 2],
}

/// Writes captions of at most `max_new` tokens.
///
/// # Errors
/// Invalid settings; outputs that are not finite.
pub(super) fn write<E: ImageEncoder, D: CaptionDecoder>(
    model: &Captioner<E, D>,
    pixels: Tensor<4>,
    start_id: i32,
    config: &DecodeConfig,
    max_new: usize,
    device: &Device,
) -> Result<Written> {
    let images = model.encoder.forward(pixels);
    let ([n, ..], grid) = (images.states.dims(), images.grid);
    let mut options = DecodeOptions::default();
    if config.needs_alignment() {
        options = options.with_alignment();
    }
    let decoding = Decoding::describing(&model.decoder, images, start_id, options, device).with_batch(n);
    let requests = (0..n).map(|image| Request::new(vec![image as i32], max_new));
    let captions = InOrder::new(decoding, config, requests)?.collect::<cloze_model::Result<_>>()?;
    Ok(Written { captions, grid })
}

/// A hypothesis in words.
///
/// # Errors
/// A tokenizer that cannot decode.
pub(super) fn in_words(vocabulary: &CaptionVocabulary, found: &Hypothesis) -> Result<WrittenCaption> {
    let text = vocabulary.decode(&found.ids)?;
    let mut words: Vec<WrittenWord> = text
        .split_whitespace()
        .map(|word| {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            WrittenWord { range: start..start + word.len(), attention: Vec::new() }
        })
        .collect();
    let mut counts = vec![0usize; words.len()];
    for (piece, attention) in found.alignment.iter().enumerate().take(found.ids.len()) {
        // The word that the piece ends in; pieces before the first belong to it.
        let n_words = vocabulary.decode(&found.ids[..=piece])?.split_whitespace().count();
        let word = n_words.saturating_sub(1);
        let (Some(WrittenWord { attention: sum, .. }), Some(count)) =
            (words.get_mut(word), counts.get_mut(word))
        else {
            continue;
        };
        sum.resize(attention.len(), 0.0);
        sum.iter_mut().zip(attention.iter()).for_each(|(sum, share)| *sum += share);
        *count += 1;
    }
    for (word, count) in words.iter_mut().zip(counts) {
        word.attention.iter_mut().for_each(|sum| *sum /= count.max(1) as f32);
    }
    Ok(WrittenCaption { text, score: found.score, log_prob: found.log_prob, cut: !found.ended, words })
}
