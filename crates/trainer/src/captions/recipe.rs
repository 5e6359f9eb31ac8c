//! Captions as an engine recipe: any image encoder with any decoder.

use super::attention::Looks;
use super::baseline::Baseline;
use super::config::{CaptionRunConfig, CaptionTaskSection};
use super::data::{CaptionData, CaptionSplits, draws};
use super::vocabulary::CaptionVocabulary;
use super::written::{WrittenCaption, in_words, write};
use crate::Result;
use crate::engine::{
    Advance, Exported, Extensions, Objective, Position, Recipe, SplitFigures, StepBatches, Term,
    load_parameters, save_parameters, watched,
};
use crate::finetune::Form;
use crate::images::outputs::picture;
use crate::images::pixels;
use crate::metrics::progress::RunProgress;
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::images::ImageBatch;
use cloze_data::images::scenes::{Scene, facts};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{
    CaptionExample, CaptionPredictions, CaptionVerdict, Predictions, WithPictures,
};
use cloze_model::captions::{
    CaptionDecoder, Captioner, HardAttentionLoss, Taught, doubly_stochastic_penalty, sums,
};
use cloze_model::generate::{BeamSearch, DecodeConfig, Search};
use cloze_model::ops::{CrossEntropy, on_awake_cores};
use cloze_model::vision::ImageEncoder;
use std::path::Path;
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

/// What of the attention is in the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Extra {
    None,
    /// The penalty of soft attention, with its weight.
    Penalty(f64),
    /// The terms of hard attention, and the share of captions that see the expectation.
    Drawn {
        reward: f64,
        entropy: f64,
        expected: f64,
    },
}

/// The training of a [`Captioner`]: the mean cross-entropy of each piece of the captions, in nats, with the terms of its
/// attention, which are divided by the pieces too.
pub struct CaptionRecipe<'a, E: ImageEncoder, D: CaptionDecoder> {
    run: &'a CaptionRunConfig,
    splits: CaptionSplits,
    vocabulary: CaptionVocabulary,
    /// Identifies the training images and captions.
    key: String,
    extra: Extra,
    baseline: Baseline,
    /// None: parameters by their paths alone.
    form: Option<Box<dyn Form<Captioner<E, D>> + Send + Sync + 'a>>,
}

impl<'a, E: ImageEncoder, D: CaptionDecoder> CaptionRecipe<'a, E, D> {
    /// A recipe on these images for a decoder like this one. Models are saved as their parameters, with [`save_parameters`],
    /// unless there is a [form](Self::with_form).
    ///
    /// # Errors
    /// A file of the training images that cannot be read.
    pub fn new(
        run: &'a CaptionRunConfig,
        splits: CaptionSplits,
        vocabulary: CaptionVocabulary,
        decoder: &D,
        is_soft: bool,
    ) -> Result<Self> {
        let key = splits.train.checksum()?;
        let task: &CaptionTaskSection = &run.task;
        let extra = match (decoder.draws(), is_soft) {
            (true, _) => {
                Extra::Drawn { reward: task.reward(), entropy: task.entropy(), expected: task.expected() }
            }
            (false, true) if task.penalty() > 0.0 => Extra::Penalty(task.penalty()),
            _ => Extra::None,
        };
        Ok(Self { run, splits, vocabulary, key, extra, baseline: Baseline::default(), form: None })
    }

    /// With what saves and loads its models.
    pub fn with_form(mut self, form: Box<dyn Form<Captioner<E, D>> + Send + Sync + 'a>) -> Self {
        self.form = Some(form);
        self
    }

    /// The captions that a model writes about a split, and the mean loss of the split's own captions.
    fn written(
        &self,
        model: &Captioner<E, D>,
        data: &CaptionData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<(Vec<WrittenCaption>, Looks, f64)> {
        let eval = &self.run.eval;
        let config = decode_config(&self.vocabulary, eval.beams);
        let start = self.vocabulary.tokens.decoder_start as i32;
        let n = data.images.examples().len();
        let (mut captions, mut looks, mut sum, mut pieces) =
            (Vec::with_capacity(n), Looks::default(), 0.0, 0);
        for first in (0..n).step_by(eval.batch_size) {
            let end = n.min(first + eval.batch_size);
            let batch = data.images.in_order(first..end)?;
            let pixels = pixels(&batch, device);
            let given = data.all(&batch);
            let losses = on_awake_cores(device, || {
                let taught = model.teach(pixels.clone(), &given.captions, &given.of, None);
                losses(&taught, &given.next, &CrossEntropy::default()).into_data()
            });
            sum += losses.iter::<f64>().sum::<f64>();
            pieces += given.next.len();
            // Of the pieces around a caption, the start is not written, and the end is.
            let max_new = self.run.data.max_len - 1;
            let written = write(model, pixels, start, &config, max_new, device)?;
            for (image, found) in (first..).zip(&written.captions) {
                let caption = in_words(&self.vocabulary, &found[0])?;
                looks.add(&caption, data.scene(image), written.grid);
                captions.push(caption);
            }
            advanced(Advance { done: end, share: end as f64 / n as f64 });
        }
        Ok((captions, looks, sum / pieces.max(1) as f64))
    }

    /// A model's captions for a split, and their metrics.
    fn measure(
        &self,
        model: &Captioner<E, D>,
        data: &CaptionData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<(CaptionPredictions, Figures)> {
        let (captions, looks, loss) = self.written(model, data, device, advanced)?;
        let examples = captions.into_iter().enumerate().map(|(image, caption)| CaptionExample {
            id: data.images.examples()[image].image.to_string(),
            references: data.texts[image].clone(),
            verdict: data.scene(image).map(|scene| verdict(scene, &caption.text)),
            caption: caption.text,
        });
        let predictions = CaptionPredictions::new(examples.collect(), self.run.common.run.seed)?;
        let own = predictions.figures();
        let of_looks = [(figure::BOX_RATIO, looks.box_ratio()), (figure::MOVEMENT, looks.movement())];
        let of_looks = of_looks.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let all: Vec<(String, f64)> = own
            .iter()
            .chain([(figure::LOSS, loss)])
            .chain(of_looks)
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let main = self.run.eval.metric.clone().unwrap_or_else(|| own.main().0.to_owned());
        Ok((predictions, Figures::new(own.examples(), all).with_main(&main)?))
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
fn losses(taught: &Taught, next: &[i32], loss: &CrossEntropy) -> Tensor<1> {
    let device = taught.logits.device();
    let next = Tensor::<1, Int>::from_data(TensorData::new(next.to_vec(), [next.len()]), &device);
    loss.forward(taught.logits.clone(), next)
}

impl<E: ImageEncoder, D: CaptionDecoder> Objective for CaptionRecipe<'_, E, D> {
    type Model = Captioner<E, D>;
    type Batch = ImageBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        let words = Term::new("words");
        match self.extra {
            Extra::None => vec![words],
            Extra::Penalty(weight) => vec![words, Term::new("penalty").with_weight(weight)],
            Extra::Drawn { .. } => vec![words, Term::new("places")],
        }
    }

    fn counts(&self, batch: &ImageBatch) -> Vec<f64> {
        let pieces = self.splits.train.drawn(batch, self.run.data.captions_per_image).next.len();
        vec![pieces as f64; self.terms(0).len()]
    }

    fn sums(&self, model: &Self::Model, batch: &ImageBatch, device: &Device) -> Vec<Tensor<1>> {
        let captions = self.splits.train.drawn(batch, self.run.data.captions_per_image);
        let lengths = captions.captions.lengths();
        let draws = match self.extra {
            Extra::Drawn { expected, .. } => Some(draws(batch, &captions, expected)),
            _ => None,
        };
        let taught = model.teach(pixels(batch, device), &captions.captions, &captions.of, draws.as_ref());
        let label_smoothing = self.run.task.label_smoothing();
        let training = CrossEntropy { label_smoothing, ..CrossEntropy::default() };
        let words = losses(&taught, &captions.next, &training);
        let extra = match (self.extra, &taught.attention, &taught.drawn) {
            (Extra::Penalty(_), Some(attention), _) => {
                Some(doubly_stochastic_penalty(attention.clone(), lengths).sum())
            }
            (Extra::Drawn { reward, entropy, .. }, _, Some(drawn)) => {
                let plain = match label_smoothing {
                    0.0 => words.clone(),
                    _ => losses(&taught, &captions.next, &CrossEntropy::default()),
                };
                let log_probs = sums(plain.neg().detach(), lengths);
                let found: Vec<f32> = log_probs.clone().into_data().iter::<f32>().collect();
                let terms = HardAttentionLoss { reward, entropy, baseline: self.baseline.compare(&found) };
                Some(terms.forward(drawn, log_probs, lengths).sum())
            }
            (Extra::None, ..) => None,
            _ => Some(words.clone().sum() * 0.0),
        };
        [Some(words.sum()), extra].into_iter().flatten().collect()
    }
}

impl<E: ImageEncoder, D: CaptionDecoder> Recipe for CaptionRecipe<'_, E, D>
where
    Captioner<E, D>: Module,
{
    fn data(&self) -> String {
        self.key.clone()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<ImageBatch>>> + '_> {
        self.run.train.steps(&self.splits.train.images, from)
    }

    fn split(&self) -> Option<&str> {
        self.splits.dev.as_ref().map(|_| "dev")
    }

    fn evaluate(
        &self,
        model: &Self::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let dev = self.splits.dev.as_ref().expect("only what `split` names is measured");
        Ok(self.measure(model, dev, device, advanced)?.1)
    }

    fn extensions(&self) -> Extensions<Self::Model> {
        match self.extra {
            Extra::Drawn { .. } => vec![Box::new(self.baseline.clone())],
            _ => Vec::new(),
        }
    }

    fn save(&self, model: &Self::Model, folder: &Path) -> Result<()> {
        match &self.form {
            Some(form) => form.save(model, folder),
            None => save_parameters(model, folder),
        }
    }

    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        match &self.form {
            Some(form) => form.load(model, folder),
            None => load_parameters(model, folder),
        }
    }

    /// The result's metrics on each split, with every caption in a report.
    fn report(
        &self,
        exported: &Exported<'_, Self::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let mut reported = Vec::new();
        for (split, data) in [("dev", &self.splits.dev), ("test", &self.splits.test)] {
            let Some(data) = data else { continue };
            let start = Instant::now();
            let work = format!("measuring {split}");
            let (predictions, figures) =
                self.measure(exported.model, data, exported.device, &mut watched(&work, progress))?;
            let predictions = WithPictures::new(predictions, |image| picture(&data.images, image));
            let page = exported.page(split, &figures, Some(&predictions))?;
            let step = exported.step;
            progress.note(&format!("{split}, the model after step {step}\n{figures}\n{}", page.display()));
            let seconds = start.elapsed().as_secs_f64();
            reported.push(SplitFigures { split: split.into(), figures, seconds });
        }
        Ok(reported)
    }
}
