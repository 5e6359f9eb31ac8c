use super::config::{ImageDataSection, ImageTaskSection, ImageTrain};
use crate::engine::{Position, StepBatches};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::images::{
    AugmentConfig, DecodeLimits, ImageBatch, ImageData, ImageExample, MixConfig, Preprocessing,
    labelled_images, without_bad_images,
};
use cloze_data::labelled::{LabelSet, LabelledSource, Labels, Target};
use cloze_data::{DataError, Loader, SkipReport, derive_seed};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Separates the random stream of training images from all others of a seed.
const TRAINING_STREAM: u64 = 0x1A6E;
/// The same for the choice of held-out images.
const HELD_OUT_STREAM: u64 = 0x1A6F;
/// The same for the choice of a part of the training images.
const PART_STREAM: u64 = 0x1A70;

/// Images for training and evaluation, and their classes.
#[derive(Debug)]
pub struct ImageSplits {
    /// The names of the classes; empty if they are not read.
    pub labels: Vec<String>,
    /// The training images.
    pub train: Arc<ImageData>,
    /// Images for evaluation during training.
    pub dev: Option<ImageData>,
    /// Images for evaluation of the result.
    pub test: Option<ImageData>,
}

impl ImageSplits {
    /// With so many views of each training image.
    pub(super) fn with_views(mut self, views: u64) -> Self {
        self.train =
            Arc::try_unwrap(self.train).map_or_else(|shared| shared, |data| Arc::new(data.with_views(views)));
        self
    }
}

impl ImageTrain {
    /// The batches of each step on these images, made on worker threads.
    pub(crate) fn steps(
        &self,
        images: &Arc<ImageData>,
        from: Position,
    ) -> Box<dyn Iterator<Item = Result<StepBatches<ImageBatch>>>> {
        let loader =
            Loader::new(images.clone(), self.batch_size).with_workers(self.workers).with_ahead(self.prefetch);
        StepBatches::from_loader(&loader, from, self.accumulate, |batch: &ImageBatch| batch.n_images() as u64)
    }
}

/// How the training images are read and changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'a> {
    /// What is predicted; without it, classes are not read.
    pub task: Option<&'a ImageTaskSection>,
    pub data: &'a ImageDataSection,
    pub augment: &'a AugmentConfig,
    pub mix: &'a MixConfig,
    pub seed: u64,
}

/// The images of each split, and the classes of all.
pub(super) struct FoundImages {
    /// The names of the classes; empty if they are not read.
    pub labels: Vec<String>,
    train: Vec<ImageExample>,
    dev: Option<Vec<ImageExample>>,
    test: Option<Vec<ImageExample>>,
}

impl Reading<'_> {
    /// Finds the images of all splits, each of which is decoded once.
    ///
    /// # Errors
    /// Those of the data; a split without an image; fewer images of a class than are asked for.
    pub fn find(&self, progress: &mut dyn RunProgress) -> Result<FoundImages> {
        let given = self.task.and_then(ImageTaskSection::labels);
        let given = given.map(|names| LabelSet::given(names.to_vec())).transpose()?;
        let labels = match (&given, self.task) {
            (Some(set), _) => Labels::Of(set),
            (None, Some(_)) => Labels::Found,
            (None, None) => Labels::Unread,
        };
        let (examples, skipped, labels) = self.read(&self.data.train, labels)?;
        note("train", &skipped, examples.len(), progress);
        let (mut train, mut dev) = (examples, None);
        if let Some(share) = self.data.dev_fraction {
            let (held, kept) = held_out(train, share, self.seed);
            (train, dev) = (kept, Some(held));
        }
        if let Some(share) = self.data.fraction.filter(|share| *share < 1.0) {
            (train, _) = drawn(train, share, self.seed, PART_STREAM);
        }
        if let (Some(shots), Some(labels)) = (self.data.shots, &labels) {
            train = of_each_class(train, labels, shots, self.seed)?;
        }
        if train.is_empty() {
            return Err(TrainerError::NoExamples { split: "training" });
        }
        let mut split = |name: &str, files: &[String]| -> Result<Option<Vec<ImageExample>>> {
            if files.is_empty() {
                return Ok(None);
            }
            let labels = labels.as_ref().map_or(Labels::Unread, Labels::Of);
            let read = self.read(&self.data.train.with_files(files.to_vec()), labels);
            let (examples, skipped, _) = read.map_err(|error| missing(name, error))?;
            note(name, &skipped, examples.len(), progress);
            Ok(Some(examples))
        };
        let (files, test) = (split("dev", &self.data.dev)?, split("test", &self.data.test)?);
        let labels = labels.map_or_else(Vec::new, |labels| labels.names().to_vec());
        Ok(FoundImages { train, dev: dev.or(files), test, labels })
    }

    fn read(
        &self,
        source: &LabelledSource,
        labels: Labels,
    ) -> Result<(Vec<ImageExample>, SkipReport, Option<LabelSet>)> {
        let (loaded, set) = labelled_images(source, Path::new(""), labels)?;
        let loaded = without_bad_images(loaded, &DecodeLimits::default(), self.data.on_bad_image)?;
        Ok((loaded.examples, loaded.skipped, set))
    }

    /// The images as a model takes them.
    ///
    /// # Errors
    /// Inputs of different sizes.
    pub fn prepare(&self, found: FoundImages, preprocessing: &Preprocessing) -> Result<ImageSplits> {
        let FoundImages { labels, train, dev, test } = found;
        let seed = derive_seed(self.seed, &[TRAINING_STREAM]);
        let of = |examples| ImageData::new(examples, preprocessing.clone(), seed);
        let train = of(train)?.with_augment(self.augment.clone())?.with_mix(*self.mix)?;
        Ok(ImageSplits {
            labels,
            train: Arc::new(train),
            dev: dev.map(of).transpose()?,
            test: test.map(of).transpose()?,
        })
    }
}

/// Reports what was skipped in a split, of which so many examples were `used`.
pub(crate) fn note(split: &str, skipped: &SkipReport, used: usize, progress: &mut dyn RunProgress) {
    if !skipped.is_empty() {
        progress.note(&format!("{split}: skipped {}", skipped.among(used as u64, "rows")));
    }
}

/// What is held out of the training images, and the others.
pub(crate) fn held_out<T>(examples: Vec<T>, share: f64, seed: u64) -> (Vec<T>, Vec<T>) {
    drawn(examples, share, seed, HELD_OUT_STREAM)
}

/// A share of the examples, at least one, and the others, both in order. Which they are depends on the seed and their
/// places alone.
fn drawn<T>(examples: Vec<T>, share: f64, seed: u64, stream: u64) -> (Vec<T>, Vec<T>) {
    let n = examples.len();
    let count = ((share * n as f64).round() as usize).clamp(1, n.max(1));
    let mut places: Vec<usize> = (0..n).collect();
    places.sort_by_key(|place| (derive_seed(seed, &[stream, *place as u64]), *place));
    let mut is_drawn = vec![false; n];
    places.into_iter().take(count).for_each(|place| is_drawn[place] = true);
    let (drawn, others): (Vec<_>, Vec<_>) = is_drawn.into_iter().zip(examples).partition(|(is, _)| *is);
    let [drawn, others] = [drawn, others].map(|part| part.into_iter().map(|(_, example)| example).collect());
    (drawn, others)
}

/// So many examples of each class, in order.
fn of_each_class(
    examples: Vec<ImageExample>,
    labels: &LabelSet,
    shots: usize,
    seed: u64,
) -> Result<Vec<ImageExample>> {
    let mut by_class: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
    for (place, example) in examples.iter().enumerate() {
        if let Target::Class(class) = example.target {
            by_class.entry(class).or_default().push((derive_seed(seed, &[PART_STREAM, place as u64]), place));
        }
    }
    let mut is_drawn = vec![false; examples.len()];
    for (class, name) in labels.names().iter().enumerate() {
        let mut places = by_class.remove(&class).unwrap_or_default();
        if places.len() < shots {
            let expected = format!("at most {}, the training images of class {name:?}", places.len());
            return Err(bad_setting("data.shots", shots, expected));
        }
        places.sort_unstable();
        places[..shots].iter().for_each(|(_, place)| is_drawn[*place] = true);
    }
    Ok(is_drawn.into_iter().zip(examples).filter(|(is, _)| *is).map(|(_, example)| example).collect())
}

/// The error of a split whose files are missing names its key.
pub(crate) fn missing(split: &str, error: TrainerError) -> TrainerError {
    match error {
        TrainerError::Data(DataError::NoLabelledFiles { pattern, .. }) => {
            let expected = "an existing file or folder, or a pattern that matches files".into();
            bad_setting(&format!("data.{split}"), format!("{pattern:?}"), expected)
        }
        other => other,
    }
}

/// The error of a setting that is only wrong for this data or model.
pub(crate) fn bad_setting(key: &str, found: impl std::fmt::Display, expected: String) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.to_string(), expected }
}

/// The images of a batch on the device, `[images, 3, height, width]`.
pub fn pixels(batch: &ImageBatch, device: &Device) -> Tensor<4> {
    pixels_of(batch, 0..batch.n_images(), device)
}

/// Some of them.
pub fn pixels_of(batch: &ImageBatch, images: Range<usize>, device: &Device) -> Tensor<4> {
    let (shape, image) = ([images.len(), 3, batch.height, batch.width], 3 * batch.height * batch.width);
    let pixels = batch.pixels[images.start * image..images.end * image].to_vec();
    Tensor::from_data(TensorData::new(pixels, shape), device)
}
