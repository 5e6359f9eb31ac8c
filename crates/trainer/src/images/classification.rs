//! Classification of images as an engine recipe.

use super::config::{ImageEval, ImageTrain};
use super::data::{ImageSplits, pixels};
use super::outputs::{outputs, picture, predictions};
use super::start::class_counts;
use super::teacher::ImageTeacher;
use crate::Result;
use crate::engine::{
    Advance, Exported, Measured, ModelFormat, Objective, OwnParameters, Position, Recipe, SplitFigures,
    StepBatches, Term,
};
use crate::finetune::figures;
use crate::metrics::progress::RunProgress;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::images::{ImageBatch, ImageData};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{ClassPredictions, Predictions, Targets, WithPictures};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::classification_loss;
use cloze_model::vision::{ImageClassifier, ImageEncoder};
use std::path::Path;

/// The training of a classifier with any [`ImageEncoder`]: the mean cross-entropy of each image's class, in nats. Of a mixed
/// image it is that of both classes, by their weights (Zhang et al. 2018, "mixup").
///
/// With a teacher, the head of the distillation piece learns the class that the teacher gives an image, and the loss is the
/// weighted mean of both heads' (Touvron et al. 2021, eq. 3).
pub struct ImageClassification<'a, E: ImageEncoder> {
    splits: ImageSplits,
    /// Identifies the training images.
    key: String,
    train: &'a ImageTrain,
    eval: &'a ImageEval,
    loss: CrossEntropy,
    teacher: Option<(ImageTeacher, f64)>,
    format: Box<dyn ModelFormat<ImageClassifier<E>> + Send + 'a>,
}

impl<'a, E: ImageEncoder> ImageClassification<'a, E> {
    /// A recipe on these images. Models are saved as their [`OwnParameters`], unless there is another
    /// [format](Self::with_format).
    ///
    /// # Errors
    /// A file of the training images that cannot be read.
    pub fn new(splits: ImageSplits, train: &'a ImageTrain, eval: &'a ImageEval) -> Result<Self> {
        let key = splits.train.checksum()?;
        let (loss, format) = (CrossEntropy::default(), Box::new(OwnParameters));
        Ok(Self { splits, key, train, eval, loss, teacher: None, format })
    }

    /// With what saves and loads its models.
    pub fn with_format(mut self, format: Box<dyn ModelFormat<ImageClassifier<E>> + Send + 'a>) -> Self {
        self.format = format;
        self
    }

    /// Spreads this share of the target over all classes.
    pub fn with_label_smoothing(mut self, share: f64) -> Self {
        self.loss = CrossEntropy { label_smoothing: share, ..self.loss };
        self
    }

    /// With a teacher, whose classes have this weight in the loss.
    pub fn with_teacher(mut self, teacher: ImageTeacher, weight: f64) -> Self {
        self.teacher = Some((teacher, weight));
        self
    }

    /// A model's predictions for a split, and their metrics.
    fn measure(
        &self,
        model: &ImageClassifier<E>,
        data: &ImageData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<(ClassPredictions, Figures)> {
        let logits = |batch: &ImageBatch, device: &Device| model.forward(pixels(batch, device));
        let outputs = outputs(&logits, data, data.examples().len(), self.eval.batch_size, device, advanced)?;
        let predictions = predictions(&self.splits.labels, data, &outputs);
        let figures = figures(&predictions, self.eval.metric.as_deref())?;
        Ok((predictions, figures))
    }

    /// The cross-entropies of the images' classes, summed.
    fn label_loss(&self, logits: Tensor<2>, batch: &ImageBatch) -> Tensor<1> {
        let device = logits.device();
        let of = |classes: Vec<i32>| {
            let labels =
                Tensor::<1, Int>::from_data(TensorData::new(classes, [batch.classes.len()]), &device);
            classification_loss(logits.clone(), labels, &self.loss)
        };
        if batch.mixed.is_empty() {
            return of(batch.classes.clone()).sum();
        }
        let weights: Vec<f32> = batch.mixed.iter().map(|(_, weight)| *weight).collect();
        let weights = Tensor::<1>::from_data(weights.as_slice(), &device);
        let others = of(batch.mixed.iter().map(|(class, _)| *class).collect());
        let own = of(batch.classes.clone());
        (own * weights.clone() + others * (weights.neg() + 1.0)).sum()
    }
}

impl<E: ImageEncoder> Objective for ImageClassification<'_, E> {
    type Model = ImageClassifier<E>;
    type Batch = ImageBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        match &self.teacher {
            None => vec![Term::new("loss")],
            Some((_, weight)) => {
                vec![Term::new("labels").with_weight(1.0 - weight), Term::new("teacher").with_weight(*weight)]
            }
        }
    }

    fn counts(&self, batch: &ImageBatch) -> Vec<f64> {
        vec![batch.n_images() as f64; self.terms(0).len()]
    }

    fn sums(&self, model: &Self::Model, batch: &ImageBatch, device: &Device) -> Vec<Tensor<1>> {
        let (class, distillation) = model.logits(pixels(batch, device));
        let labels = self.label_loss(class, batch);
        let of_teacher = self.teacher.as_ref().zip(distillation).map(|((teacher, _), logits)| {
            classification_loss(logits, teacher.classes(batch, device), &CrossEntropy::default()).sum()
        });
        [Some(labels), of_teacher].into_iter().flatten().collect()
    }
}

impl<E: ImageEncoder> Recipe for ImageClassification<'_, E> {
    fn data(&self) -> String {
        self.key.clone()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<ImageBatch>>> + '_> {
        self.train.steps(&self.splits.train, from)
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

    fn save(&self, model: &Self::Model, folder: &Path) -> Result<()> {
        self.format.save(model, folder)
    }

    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        self.format.load(model, folder)
    }

    /// The result's metrics on each split, with every prediction in a report.
    fn report(
        &self,
        exported: &Exported<'_, Self::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let splits = [("dev", &self.splits.dev), ("test", &self.splits.test)];
        let targets = Targets::Classes(class_counts(&self.splits.train, &self.splits.labels));
        exported.report_splits(splits, progress, |_, data, advanced| {
            let (predictions, figures) = self.measure(exported.model, data, exported.device, advanced)?;
            let pictured = WithPictures::new(predictions, |example| picture(data, example));
            Ok(Measured {
                baseline: pictured.baseline_of(&targets),
                ..Measured::new(figures, Box::new(pictured))
            })
        })
    }
}
