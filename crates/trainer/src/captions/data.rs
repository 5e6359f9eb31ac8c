//! Images with captions, as training and evaluation take them.

use super::config::{CaptionDataSection, CaptionSource};
use super::vocabulary::CaptionVocabulary;
use crate::images::EvaluationSplit;
use crate::images::data::{bad_setting, held_out, missing, note};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError};
use cloze_data::images::scenes::{DATA_SEED, SIDE, Scene, SceneSplit, scenes};
use cloze_data::images::{
    AugmentConfig, CaptionedImage, DecodeLimits, ImageBatch, ImageData, ImageExample, ImageSource,
    Preprocessing, captioned_images, without_bad_images,
};
use cloze_data::labelled::{LabelledSource, Loaded, Places, Target};
use cloze_data::{Random, SkipReport, derive_seed};
use cloze_model::Sequences;
use cloze_model::captions::Draws;
use std::path::Path;
use std::sync::Arc;

/// Separates the random stream of training images from all others of a seed.
const TRAINING_STREAM: u64 = 0x1A80;
/// The same for the numbers by which places are drawn.
const PLACES_STREAM: u64 = 0x1A81;

/// The images of each split with the texts of their captions.
#[derive(Debug)]
pub struct CaptionTexts {
    train: Vec<CaptionedImage>,
    dev: Option<Vec<CaptionedImage>>,
    test: Option<Vec<CaptionedImage>>,
}

impl CaptionTexts {
    /// Finds the images of all splits, each of which is decoded once.
    ///
    /// # Errors
    /// Those of the data; a split without an image.
    pub(super) fn find(
        section: &CaptionDataSection,
        seed: u64,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        match &section.source {
            CaptionSource::Scenes { train, .. } => {
                let [dev, test] =
                    [EvaluationSplit::Dev, EvaluationSplit::Test].map(|split| held_scenes(section, split));
                Ok(Self { train: drawn_scenes(SceneSplit::Train, *train), dev, test })
            }
            CaptionSource::Tables { train, dev_fraction, .. } => {
                let mut all =
                    read(train, section, &mut |skipped, used| note("train", skipped, used, progress))?;
                let mut dev = None;
                if let Some(share) = *dev_fraction {
                    let (held, kept) = held_out(all, share, seed);
                    (all, dev) = (kept, Some(held));
                }
                if all.is_empty() {
                    return Err(TrainerError::NoExamples { split: "training" });
                }
                let mut files = |split: EvaluationSplit| {
                    named(section, split, &mut |skipped, used| note(split.name(), skipped, used, progress))
                };
                let (of_files, test) = (files(EvaluationSplit::Dev)?, files(EvaluationSplit::Test)?);
                Ok(Self { train: all, dev: dev.or(of_files), test })
            }
        }
    }

    /// The images of a split for evaluation, if the section names one, found as training finds them.
    ///
    /// # Errors
    /// Those of the data.
    pub(super) fn evaluation(
        section: &CaptionDataSection,
        split: EvaluationSplit,
        seed: u64,
        skipped: &mut dyn FnMut(&SkipReport, usize),
    ) -> Result<Option<Vec<CaptionedImage>>> {
        match &section.source {
            CaptionSource::Scenes { .. } => Ok(held_scenes(section, split)),
            CaptionSource::Tables { train, dev_fraction: Some(share), .. }
                if split == EvaluationSplit::Dev =>
            {
                let all = read(train, section, skipped)?;
                Ok(Some(held_out(all, *share, seed).0))
            }
            CaptionSource::Tables { .. } => named(section, split, skipped),
        }
    }

    /// The training captions, in order.
    pub(super) fn training(&self) -> impl Iterator<Item = &str> {
        self.train.iter().flat_map(|example| &example.captions).map(String::as_str)
    }

    /// The images as a model takes them, and the captions' ids.
    ///
    /// # Errors
    /// A caption that is longer than `max_len`; inputs of different sizes.
    pub(super) fn prepare(
        self,
        vocabulary: &CaptionVocabulary,
        preprocessing: &Preprocessing,
        augment: &AugmentConfig,
        max_len: usize,
        seed: u64,
    ) -> Result<CaptionSplits> {
        let seed = derive_seed(seed, &[TRAINING_STREAM]);
        let of = |examples: Vec<CaptionedImage>, training| {
            CaptionData::new(examples, vocabulary, preprocessing, max_len, training)
        };
        let Self { train, dev, test } = self;
        Ok(CaptionSplits {
            train: of(train, Some((seed, augment)))?,
            dev: dev.map(|dev| of(dev, None)).transpose()?,
            test: test.map(|test| of(test, None)).transpose()?,
        })
    }
}

/// The first scenes of a split.
fn drawn_scenes(split: SceneSplit, n: usize) -> Vec<CaptionedImage> {
    scenes(split, DATA_SEED).take(n).map(of_scene).collect()
}

/// The scenes for an evaluation; none if the source is tables, or has none for it.
fn held_scenes(section: &CaptionDataSection, split: EvaluationSplit) -> Option<Vec<CaptionedImage>> {
    let CaptionSource::Scenes { dev, test, .. } = &section.source else { return None };
    let (of, n) = match split {
        EvaluationSplit::Dev => (SceneSplit::Dev, *dev),
        EvaluationSplit::Test => (SceneSplit::Test, *test),
    };
    (n > 0).then(|| drawn_scenes(of, n))
}

/// The images of the tables that are named for an evaluation.
fn named(
    section: &CaptionDataSection,
    split: EvaluationSplit,
    skipped: &mut dyn FnMut(&SkipReport, usize),
) -> Result<Option<Vec<CaptionedImage>>> {
    let CaptionSource::Tables { train, dev, test, .. } = &section.source else { return Ok(None) };
    let files = match split {
        EvaluationSplit::Dev => dev,
        EvaluationSplit::Test => test,
    };
    if files.is_empty() {
        return Ok(None);
    }
    let key = format!("source.{}", split.name());
    let source = train.with_files(files.clone());
    read(&source, section, skipped).map(Some).map_err(|error| missing(&key, error))
}

/// The images of tables whose image decodes, in order.
fn read(
    source: &LabelledSource,
    section: &CaptionDataSection,
    skipped: &mut dyn FnMut(&SkipReport, usize),
) -> Result<Vec<CaptionedImage>> {
    let found = captioned_images(source, Path::new(""))?;
    let images = found
        .examples
        .iter()
        .enumerate()
        .map(|(place, example)| ImageExample { image: example.image.clone(), target: Target::Class(place) });
    let loaded = Loaded { examples: images.collect(), places: Places::default(), skipped: found.skipped };
    let loaded = without_bad_images(loaded, &DecodeLimits::default(), section.on_bad_image)?;
    skipped(&loaded.skipped, loaded.examples.len());
    let mut examples: Vec<_> = found.examples.into_iter().map(Some).collect();
    let kept = loaded.examples.iter().filter_map(|example| match example.target {
        Target::Class(place) => examples[place].take(),
        _ => None,
    });
    Ok(kept.collect())
}

fn of_scene(scene: Scene) -> CaptionedImage {
    let captions = scene.captions().iter().map(|caption| caption.text.clone()).collect();
    CaptionedImage { image: ImageSource::Scene { scene: Arc::new(scene), side: SIDE }, captions }
}

/// Images with captions for training and evaluation.
#[derive(Debug)]
pub struct CaptionSplits {
    /// For training.
    pub train: CaptionData,
    /// For evaluation during training.
    pub dev: Option<CaptionData>,
    /// For evaluation of the result.
    pub test: Option<CaptionData>,
}

/// Images with captions.
#[derive(Debug)]
pub struct CaptionData {
    /// The images.
    pub images: Arc<ImageData>,
    /// The captions of each image.
    pub texts: Vec<Vec<String>>,
    /// Their ids, without the pieces around them.
    ids: Vec<Vec<Vec<i32>>>,
    tokens: cloze_model::seq2seq::SpecialTokens,
}

/// Captions of a batch, as a decoder takes them.
#[derive(Debug, Default)]
pub(super) struct BatchCaptions {
    /// The start piece, and the caption.
    pub captions: Sequences,
    /// `[n_tokens]`: the piece that follows each.
    pub next: Vec<i32>,
    /// `[captions]`: the number of each caption's image in the batch.
    pub of: Vec<usize>,
}

impl CaptionData {
    /// Images as a model takes them, and their captions' ids. For training there are a seed and random changes of the images.
    ///
    /// # Errors
    /// A caption that is longer than `max_len`; inputs of different sizes.
    pub(super) fn new(
        examples: Vec<CaptionedImage>,
        vocabulary: &CaptionVocabulary,
        preprocessing: &Preprocessing,
        max_len: usize,
        training: Option<(u64, &AugmentConfig)>,
    ) -> Result<Self> {
        let encode = |example: &CaptionedImage, caption: &str| {
            let ids = vocabulary.encode(caption)?;
            if ids.len() + 2 > max_len {
                let expected =
                    format!("at least {}: {} has the caption {caption:?}", ids.len() + 2, example.image);
                return Err(bad_setting("data.max_len", max_len, expected));
            }
            Ok(ids)
        };
        let ids = examples
            .iter()
            .map(|example| example.captions.iter().map(|caption| encode(example, caption)).collect());
        let ids = ids.collect::<Result<_>>()?;
        let (images, texts): (Vec<_>, Vec<_>) =
            examples.into_iter().map(|example| (example.image, example.captions)).unzip();
        let images = images.into_iter().map(|image| ImageExample { image, target: Target::None });
        let seed = training.map_or(0, |(seed, _)| seed);
        let mut images = ImageData::new(images.collect(), preprocessing.clone(), seed)?;
        if let Some((_, augment)) = training {
            images = images.with_augment(augment.clone())?;
        }
        Ok(Self { images: Arc::new(images), texts, ids, tokens: vocabulary.tokens.clone() })
    }

    /// The scene of an image, if it is one.
    pub fn scene(&self, image: usize) -> Option<&Scene> {
        match &self.images.examples()[image].image {
            ImageSource::Scene { scene, .. } => Some(scene),
            _ => None,
        }
    }

    /// A string that identifies the images and their captions.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn checksum(&self) -> Result<String> {
        let texts: String = self.texts.iter().map(|texts| texts.join("\n") + "\n\n").collect();
        let texts = derive_seed(0, &texts.bytes().map(u64::from).collect::<Vec<_>>());
        Ok(format!("{}-{texts:016x}", self.images.checksum()?))
    }

    /// All captions of a batch.
    pub(super) fn all(&self, batch: &ImageBatch) -> BatchCaptions {
        let mut all = BatchCaptions::default();
        for (image, example) in batch.examples.iter().enumerate() {
            for ids in &self.ids[*example as usize] {
                self.push(&mut all, image, ids);
            }
        }
        all
    }

    /// So many captions of each image of a batch, drawn by the numbers of its examples.
    pub(super) fn drawn(&self, batch: &ImageBatch, per_image: usize) -> BatchCaptions {
        let mut all = BatchCaptions::default();
        for (image, (example, draw)) in batch.examples.iter().zip(&batch.draws).enumerate() {
            let captions = &self.ids[*example as usize];
            // Neighbours, beginning anywhere.
            let first = (draw % captions.len().max(1) as u64) as usize;
            for number in 0..per_image.min(captions.len()) {
                self.push(&mut all, image, &captions[(first + number) % captions.len()]);
            }
        }
        all
    }

    fn push(&self, all: &mut BatchCaptions, image: usize, ids: &[i32]) {
        let caption: Vec<i32> =
            std::iter::once(self.tokens.decoder_start as i32).chain(ids.iter().copied()).collect();
        all.captions.push(&caption);
        all.next.extend(ids);
        all.next.push(self.tokens.eos as i32);
        all.of.push(image);
    }
}

/// The numbers by which a batch's captions draw places: a function of each example's own number.
pub(super) fn draws(batch: &ImageBatch, captions: &BatchCaptions, expected: f64) -> Draws {
    let mut draws = Draws { places: Vec::new(), expected: Vec::new() };
    let mut number = 0;
    for (caption, (image, len)) in captions.of.iter().zip(captions.captions.lengths()).enumerate() {
        number = if caption > 0 && captions.of[caption - 1] == *image { number + 1 } else { 0 };
        let mut random = Random::derive(batch.draws[*image], &[PLACES_STREAM, number]);
        draws.expected.push(random.chance(expected));
        draws.places.extend((0..*len).map(|_| random.unit_f32()));
    }
    draws
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::VocabularySection;
    use crate::translation::vocabulary::train_on;
    use cloze_data::images::{AugmentConfig, Preprocessing};

    fn splits(n: usize) -> CaptionSplits {
        let of = |split, n| scenes(split, DATA_SEED).take(n).map(of_scene).collect();
        let texts = CaptionTexts { train: of(SceneSplit::Train, n), dev: None, test: None };
        let section =
            VocabularySection::TrainWordpiece { vocab_size: 120, lowercase: true, min_frequency: 1 };
        let tokenizer =
            train_on(&section, texts.training().map(|text| Ok(text.to_owned())), &mut |_| ()).unwrap();
        let vocabulary = CaptionVocabulary::new(tokenizer).unwrap();
        for text in texts.training() {
            assert_eq!(
                vocabulary.decode(&vocabulary.encode(text).unwrap()).unwrap().replace(" ,", ","),
                text.replace(" ,", ",")
            );
        }
        let preprocessing = Preprocessing::to_size(32, 32);
        texts.prepare(&vocabulary, &preprocessing, &AugmentConfig::default(), 40, 7).unwrap()
    }

    #[test]
    fn captions_are_drawn_by_the_examples_numbers() {
        let data = splits(4).train;
        let mut batch = data.images.in_order(0..4).unwrap();
        let all = data.all(&batch);
        assert_eq!((all.captions.len(), all.of[..4].to_vec()), (12, vec![0, 0, 0, 1]));
        assert_eq!(all.next.len(), all.captions.n_tokens());
        // What follows a token is the next one, and the end follows the last.
        let first = all.captions.iter().next().unwrap();
        assert_eq!(first[1..], all.next[..first.len() - 1]);
        assert_eq!(all.next[first.len() - 1], 2);
        batch.draws = vec![0, 1, 2, 3];
        let one = data.drawn(&batch, 1);
        let numbers = [0, 4, 8, 9];
        let expected: Vec<&[i32]> = numbers.iter().map(|n| all.captions.iter().nth(*n).unwrap()).collect();
        assert_eq!(one.captions.iter().collect::<Vec<_>>(), expected);
        assert_eq!(one.of, [0, 1, 2, 3]);
        // An image with fewer captions has all of them, each once.
        let many = data.drawn(&batch, 9);
        assert_eq!(many.captions.len(), 12);
        let mut of_second: Vec<&[i32]> = many.captions.iter().skip(3).take(3).collect();
        let mut expected: Vec<&[i32]> = all.captions.iter().skip(3).take(3).collect();
        of_second.sort();
        expected.sort();
        assert_eq!(of_second, expected);
    }

    #[test]
    fn places_are_drawn_alike_in_any_batch() {
        let data = splits(4).train;
        let whole = data.images.in_order(0..4).unwrap();
        let of_whole = draws(&whole, &data.all(&whole), 0.5);
        let part = data.images.in_order(2..3).unwrap();
        let of_part = draws(&part, &data.all(&part), 0.5);
        let lengths: Vec<usize> = data.all(&whole).captions.lengths().to_vec();
        let start: usize = lengths[..6].iter().sum();
        assert_eq!(of_part.places, of_whole.places[start..start + of_part.places.len()]);
        assert_eq!(of_part.expected, of_whole.expected[6..9]);
        assert!(of_whole.expected.contains(&true) && of_whole.expected.contains(&false));
        assert!(draws(&whole, &data.all(&whole), 0.0).expected.iter().all(|expected| !expected));
    }
}
