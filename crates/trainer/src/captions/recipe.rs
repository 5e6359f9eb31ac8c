//! Captions as an engine recipe: any image encoder with any decoder.

use super::baseline::Baseline;
use super::config::{CaptionRunConfig, CaptionTaskSection};
use super::data::{CaptionSplits, draws};
use super::measures::{CaptionsMeasured, Measures, losses};
use super::vocabulary::CaptionVocabulary;
use crate::Result;
use crate::engine::{
    Advance, Exported, Extensions, Measured, ModelFormat, Objective, OwnParameters, Position, Recipe,
    SplitFigures, StepBatches, Term,
};
use crate::images::outputs::picture;
use crate::images::pixels;
use crate::metrics::progress::RunProgress;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::images::ImageBatch;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::WithPictures;
use cloze_model::captions::{CaptionDecoder, Captioner, HardAttentionLoss, doubly_stochastic_penalty, sums};
use cloze_model::ops::CrossEntropy;
use cloze_model::vision::ImageEncoder;
use std::path::Path;

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
    format: Box<dyn ModelFormat<Captioner<E, D>> + Send + 'a>,
}

impl<'a, E: ImageEncoder, D: CaptionDecoder> CaptionRecipe<'a, E, D>
where
    Captioner<E, D>: Module,
{
    /// A recipe on these images for a decoder like this one. Models are saved as their [`OwnParameters`], unless there is
    /// another [format](Self::with_format).
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
        Ok(Self {
            run,
            splits,
            vocabulary,
            key,
            extra,
            baseline: Baseline::default(),
            format: Box::new(OwnParameters),
        })
    }

    /// With what saves and loads its models.
    pub fn with_format(mut self, format: Box<dyn ModelFormat<Captioner<E, D>> + Send + 'a>) -> Self {
        self.format = format;
        self
    }

    /// How its models are measured.
    fn measures(&self) -> Measures<'_> {
        Measures {
            vocabulary: &self.vocabulary,
            eval: &self.run.eval,
            max_len: self.run.data.max_len,
            seed: self.run.common.run.seed,
        }
    }
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
        Ok(self.measures().of(model, dev, device, advanced)?.figures)
    }

    fn extensions(&self) -> Extensions<Self::Model> {
        match self.extra {
            Extra::Drawn { .. } => vec![Box::new(self.baseline.clone())],
            _ => Vec::new(),
        }
    }

    fn save(&self, model: &Self::Model, folder: &Path) -> Result<()> {
        self.format.save(model, folder)
    }

    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        self.format.load(model, folder)
    }

    /// The result's metrics on each split, with every caption in a report.
    fn report(
        &self,
        exported: &Exported<'_, Self::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let splits = [("dev", &self.splits.dev), ("test", &self.splits.test)];
        exported.report_splits(splits, progress, |_, data, advanced| {
            let CaptionsMeasured { predictions, figures, .. } =
                self.measures().of(exported.model, data, exported.device, advanced)?;
            let pictured = WithPictures::new(predictions, |image| picture(&data.images, image));
            Ok(Measured::new(figures, Box::new(pictured)))
        })
    }
}
