//! What captioners write about images whose captions are known, and how good it is.

use super::attention::Looks;
use super::config::CaptionEval;
use super::data::CaptionData;
use super::vocabulary::CaptionVocabulary;
use super::written::{WrittenCaption, in_words, write};
use crate::Result;
use crate::engine::Advance;
use crate::images::pixels;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::images::scenes::{Scene, facts};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{CaptionExample, CaptionPredictions, CaptionVerdict, Predictions};
use cloze_model::captions::{CaptionDecoder, Captioner, Taught};
use cloze_model::generate::{BeamSearch, DecodeConfig, Search};
use cloze_model::ops::{CrossEntropy, on_awake_cores};
use cloze_model::vision::ImageEncoder;
use std::time::Instant;

/// The metrics of a captioner besides those of its captions.
pub mod figure {
    /// The mean cross-entropy of a piece of the captions, in nats, without label smoothing.
    pub const LOSS: &str = "loss";
    /// Of scenes, the attention inside the box of the thing that a word names, as a multiple of the box's share of the image.
    pub const BOX_RATIO: &str = "attention_in_box";
    /// The mean total variation between the attention of neighbouring words, from 0 to 1.
    pub const MOVEMENT: &str = "attention_moves";
}

/// How captioners are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measures<'a> {
    pub vocabulary: &'a CaptionVocabulary,
    pub eval: &'a CaptionEval,
    /// The most tokens of a caption, with those that begin and end it.
    pub max_len: usize,
    /// Draws the captions of other images that the baseline has.
    pub seed: u64,
}

/// What was measured.
pub(super) struct CaptionsMeasured {
    pub predictions: CaptionPredictions,
    pub figures: Figures,
    /// What writing the captions took.
    pub seconds: f64,
}

/// What a model wrote.
#[derive(Default)]
struct Written {
    captions: Vec<WrittenCaption>,
    looks: Looks,
    /// The mean loss of the data's own captions.
    loss: f64,
    seconds: f64,
}

impl Measures<'_> {
    /// A model's captions for images, and their metrics.
    ///
    /// # Errors
    /// Those of decoding images; a metric that there is not.
    pub fn of<E: ImageEncoder, D: CaptionDecoder>(
        &self,
        model: &Captioner<E, D>,
        data: &CaptionData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<CaptionsMeasured> {
        let Written { captions, looks, loss, seconds } = self.written(model, data, device, advanced)?;
        let examples = captions.into_iter().enumerate().map(|(image, caption)| CaptionExample {
            id: data.images.examples()[image].image.to_string(),
            references: data.texts[image].clone(),
            verdict: data.scene(image).map(|scene| verdict(scene, &caption.text)),
            caption: caption.text,
        });
        let predictions = CaptionPredictions::new(examples.collect(), self.seed)?;
        let own = predictions.figures();
        let of_looks = [(figure::BOX_RATIO, looks.box_ratio()), (figure::MOVEMENT, looks.movement())];
        let of_looks = of_looks.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let all: Vec<(String, f64)> = own
            .iter()
            .chain([(figure::LOSS, loss)])
            .chain(of_looks)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let main = self.eval.metric.clone().unwrap_or_else(|| own.main().0.to_owned());
        let figures = Figures::new(own.examples(), all).with_main(&main)?;
        Ok(CaptionsMeasured { predictions, figures, seconds })
    }

    fn written<E: ImageEncoder, D: CaptionDecoder>(
        &self,
        model: &Captioner<E, D>,
        data: &CaptionData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Written> {
        let config = decode_config(self.vocabulary, self.eval.beams);
        let start = self.vocabulary.tokens.decoder_start as i32;
        let n = data.images.examples().len();
        let (mut all, mut sum, mut pieces) = (Written::default(), 0.0, 0);
        for first in (0..n).step_by(self.eval.batch_size) {
            let end = n.min(first + self.eval.batch_size);
            let batch = data.images.in_order(first..end)?;
            let pixels = pixels(&batch, device);
            let given = data.all(&batch);
            let losses = on_awake_cores(device, || {
                let taught = model.teach(pixels.clone(), &given.captions, &given.of, None);
                losses(&taught, &given.next, &CrossEntropy::default()).into_data()
            });
            sum += losses.iter::<f64>().sum::<f64>();
            pieces += given.next.len();
            let begun = Instant::now();
            // Of the pieces around a caption, the start is not written, and the end is.
            let written = write(model, pixels, start, &config, self.max_len - 1, device)?;
            all.seconds += begun.elapsed().as_secs_f64();
            for (image, found) in (first..).zip(&written.captions) {
                let caption = in_words(self.vocabulary, &found[0])?;
                all.looks.add(&caption, data.scene(image), written.grid);
                all.captions.push(caption);
            }
            advanced(Advance { done: end, share: end as f64 / n as f64 });
        }
        all.loss = sum / pieces.max(1) as f64;
        Ok(all)
    }
}

/// How captions are written in evaluations.
pub(super) fn decode_config(vocabulary: &CaptionVocabulary, beams: usize) -> DecodeConfig {
    let tokens = &vocabulary.tokens;
    let mut config = DecodeConfig::new(vec![tokens.eos as i32]);
    config.forbidden_ids = [Some(tokens.pad), tokens.bos, Some(tokens.decoder_start)]
        .into_iter()
        .flatten()
        .map(|id| id as i32)
        .filter(|id| *id != tokens.eos as i32)
        .collect();
    config.alignment = true;
    match beams {
        1 => config,
        beams => config.with_search(Search::Beam(BeamSearch::new(beams))),
    }
}

/// What is wrong with a caption of a scene, of which everything is known.
fn verdict(scene: &Scene, caption: &str) -> CaptionVerdict {
    let facts = match facts(caption) {
        Ok(facts) => facts,
        Err(error) => return CaptionVerdict { right: false, problems: vec![error.to_string()] },
    };
    let mut problems: Vec<String> =
        facts.iter().filter(|fact| !scene.is_true(fact)).map(|fact| format!("false: {fact}")).collect();
    problems.dedup();
    let named = scene.judge(&facts).n_named;
    if named < scene.things().len() {
        problems.push(format!("{named} of {} things are named", scene.things().len()));
    }
    CaptionVerdict { right: problems.is_empty(), problems }
}

/// The cross-entropy of each piece.
pub(super) fn losses(taught: &Taught, next: &[i32], loss: &CrossEntropy) -> Tensor<1> {
    let device = taught.logits.device();
    let next = Tensor::<1, Int>::from_data(TensorData::new(next.to_vec(), [next.len()]), &device);
    loss.forward(taught.logits.clone(), next)
}
