//! Batches of images as a model takes them, made on worker threads.

use super::{
    AugmentConfig, DecodeLimits, DrawKey, Image, ImageError, ImageExample, ImageSource, MixConfig,
    PixelValues, Preprocessing,
};
use crate::labelled::Target;
use crate::{Assemble, DataError, Permutation, Placed, Result, derive_seed};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Separates the random stream of the order from all others of a seed.
const ORDER: u64 = 0x1A6E_0010;
/// The same for the examples' own random numbers.
const DRAW: u64 = 0x1A6E_0011;

/// Images as a model's input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageBatch {
    /// Rows of an image.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// `[images, 3, height, width]`. Several views of an example follow one another.
    pub pixels: Vec<f32>,
    /// `[examples]`: their numbers in the data.
    pub examples: Vec<u64>,
    /// `[examples]`: a random number of each, for what else is drawn for it in this epoch.
    pub draws: Vec<u64>,
    /// `[examples]`: their classes; empty if there are none.
    pub classes: Vec<i32>,
    /// `[examples]`: the class of the image that each is mixed with, and the weight of its own class, 1 if it is not mixed;
    /// empty if images are not mixed.
    pub mixed: Vec<(i32, f32)>,
}

impl ImageBatch {
    /// The number of images, with each view of an example.
    pub fn n_images(&self) -> usize {
        self.pixels.len() / (3 * self.height * self.width).max(1)
    }

    /// Adds an image to the pixels, which are all of the same size.
    pub fn push(&mut self, values: PixelValues) {
        (self.height, self.width) = (values.height, values.width);
        self.pixels.extend(values.values);
    }
}

/// Images with their preprocessing, and their random changes in training: what a [`Loader`](crate::Loader) makes batches
/// of. A batch is a function of the seed, the epoch and the place.
///
/// # Examples
/// ```
/// use cloze_data::images::{ImageData, ImageExample, ImageSource, Preprocessing};
/// use cloze_data::labelled::Target;
/// use cloze_data::{Cursor, Loader};
/// use std::sync::Arc;
///
/// let example = |class: u8| ImageExample {
///     image: ImageSource::Grey { width: 4, values: Arc::from([60 * class; 16]) },
///     target: Target::Class(class.into()),
/// };
/// let preprocessing = Preprocessing::from_json(r#"{"size": 8, "do_normalize": false}"#)?;
/// let data = ImageData::new((0..4).map(example).collect(), preprocessing, 42)?;
/// let batch = Loader::new(Arc::new(data), 3).batches(Cursor::default()).next().unwrap()?;
/// assert_eq!((batch.n_images(), batch.height, batch.width, batch.classes.len()), (3, 8, 8, 3));
/// # Ok::<_, cloze_data::DataError>(())
/// ```
#[derive(Debug)]
pub struct ImageData {
    examples: Vec<ImageExample>,
    preprocessing: Preprocessing,
    augment: AugmentConfig,
    mix: MixConfig,
    views: u64,
    limits: DecodeLimits,
    seed: u64,
    /// Decoded images, as far as there is room.
    kept: Vec<OnceLock<Arc<Image>>>,
    /// Bytes that are left for them.
    room: AtomicUsize,
}

/// The most bytes of decoded images that are kept.
const ROOM: usize = 1 << 30;

impl ImageData {
    /// Images in a random order, unchanged but for the preprocessing.
    ///
    /// # Errors
    /// [`DataError::ImageSizes`] if the preprocessing does not give all images the same size.
    pub fn new(examples: Vec<ImageExample>, preprocessing: Preprocessing, seed: u64) -> Result<Self> {
        if preprocessing.input_size().is_none() {
            return Err(DataError::ImageSizes);
        }
        let kept = examples.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            examples,
            preprocessing,
            augment: AugmentConfig::default(),
            mix: MixConfig::default(),
            views: 1,
            limits: DecodeLimits::default(),
            seed,
            kept,
            room: AtomicUsize::new(ROOM),
        })
    }

    /// With random changes, each of which has an image's view of its own.
    ///
    /// # Errors
    /// [`DataError::AugmentSetting`] for a value out of range.
    pub fn with_augment(mut self, augment: AugmentConfig) -> Result<Self> {
        augment.check()?;
        self.augment = augment;
        Ok(self)
    }

    /// With images mixed with others, of several classes.
    ///
    /// # Errors
    /// [`DataError::AugmentSetting`] for a value out of range.
    pub fn with_mix(mut self, mix: MixConfig) -> Result<Self> {
        mix.check()?;
        self.mix = mix;
        Ok(self)
    }

    /// With so many views of each example, at least 1.
    pub fn with_views(mut self, views: u64) -> Self {
        self.views = views.max(1);
        self
    }

    /// With other limits of what is decoded.
    pub fn with_limits(mut self, limits: DecodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// With so many bytes of decoded images kept in memory. The batches do not depend on it.
    pub fn with_room(self, bytes: usize) -> Self {
        Self { room: AtomicUsize::new(bytes), ..self }
    }

    /// The examples.
    pub fn examples(&self) -> &[ImageExample] {
        &self.examples
    }

    /// How images become inputs.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// An example's decoded image.
    ///
    /// # Errors
    /// Those of decoding.
    ///
    /// # Panics
    /// If the example is out of range.
    pub fn decoded(&self, example: usize) -> Result<Arc<Image>> {
        self.image(example)
    }

    /// These examples, in order and without random changes. They are decoded on all cores.
    ///
    /// # Errors
    /// Those of decoding.
    ///
    /// # Panics
    /// If an example is out of range.
    pub fn in_order(&self, examples: Range<usize>) -> Result<ImageBatch> {
        let values: Vec<PixelValues> = examples
            .clone()
            .into_par_iter()
            .map(|example| {
                let image = self.image(example)?;
                self.preprocessing.apply(&image).map_err(|problem| self.problem(example, problem))
            })
            .collect::<Result<_>>()?;
        let mut batch = ImageBatch::default();
        for (example, values) in examples.zip(values) {
            batch.push(values);
            batch.examples.push(example as u64);
            batch.draws.push(derive_seed(self.seed, &[DRAW, example as u64]));
            batch.classes.extend(self.class(example));
        }
        Ok(batch)
    }

    /// The first example whose image cannot be used, and why. All are decoded, on all cores.
    pub fn first_bad(&self) -> Option<(usize, DataError)> {
        let problem = |example: usize| {
            let fits = |image: Arc<Image>| {
                self.preprocessing.check(&image).map_err(|problem| self.problem(example, problem))
            };
            self.image(example).and_then(fits).err().map(|error| (example, error))
        };
        let problems: Vec<_> = (0..self.examples.len()).into_par_iter().map(problem).collect();
        problems.into_iter().flatten().next()
    }

    /// A string that identifies the images and their classes: a hash of the files' bytes, or of a scene's pixels.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn checksum(&self) -> Result<String> {
        let one = |example: &ImageExample| {
            let mut hasher = blake3::Hasher::new();
            match &example.image {
                ImageSource::File(path) => _ = hasher.update(crate::file_checksum(path)?.as_bytes()),
                ImageSource::Bytes { bytes, .. } => _ = hasher.update(bytes),
                ImageSource::Grey { width, values } => {
                    hasher.update(&width.to_le_bytes()).update(values);
                }
                ImageSource::Scene { scene, side } => _ = hasher.update(scene.draw(*side).pixels()),
            }
            hasher.update(format!("{:?}", example.target).as_bytes());
            Ok(hasher.finalize())
        };
        let hashes: Vec<blake3::Hash> = self.examples.par_iter().map(one).collect::<Result<_>>()?;
        let mut all = blake3::Hasher::new();
        hashes.iter().for_each(|hash| _ = all.update(hash.as_bytes()));
        Ok(all.finalize().to_hex().to_string())
    }

    fn class(&self, example: usize) -> Option<i32> {
        match self.examples[example].target {
            Target::Class(class) => Some(class as i32),
            _ => None,
        }
    }

    /// An example's decoded image.
    fn image(&self, example: usize) -> Result<Arc<Image>> {
        if let Some(image) = self.kept[example].get() {
            return Ok(image.clone());
        }
        let image = Arc::new(self.examples[example].image.decode(&self.limits)?);
        let bytes = image.pixels().len();
        let take = |room: usize| room.checked_sub(bytes);
        if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            // Another thread may have kept it meanwhile, which costs a little room.
            let _ = self.kept[example].set(image.clone());
        }
        Ok(image)
    }

    /// A view of an example as training sees it.
    fn values(&self, key: DrawKey) -> Result<PixelValues> {
        let example = key.example as usize;
        let image = self.image(example)?;
        let changed = self.augment.apply(&image, &self.preprocessing, key);
        let changed = changed.map_err(|problem| self.problem(example, problem))?;
        Ok(self.preprocessing.values(&changed))
    }

    fn problem(&self, example: usize, problem: ImageError) -> DataError {
        DataError::Image { image: self.examples[example].image.to_string(), problem }
    }
}

impl Assemble for ImageData {
    /// The examples' order.
    type Plan = Permutation;
    type Batch = ImageBatch;

    fn plan(&self, epoch: u64, _stop: &AtomicBool) -> Result<Permutation> {
        Ok(Permutation::new(self.examples.len() as u64, derive_seed(self.seed, &[ORDER, epoch])))
    }

    fn n_examples(&self, _: &Permutation) -> u64 {
        self.examples.len() as u64
    }

    fn assemble(&self, examples: &[Placed<'_, Permutation>]) -> Result<ImageBatch> {
        let mut batch = ImageBatch::default();
        let mixes = self.mix.mixup_alpha > 0.0 || self.mix.cutmix_alpha > 0.0;
        for Placed { plan, epoch, place } in examples {
            let example = plan.get(*place);
            let own = self.class(example as usize);
            let mut mixed = own.map(|own| (own, 1.0));
            for view in 0..self.views {
                let key = DrawKey { seed: self.seed, epoch: *epoch, example, view };
                let mut values = self.values(key)?;
                if let Some(mixing) = self.mix.draw(key, self.examples.len() as u64) {
                    let partner = self.values(DrawKey { example: mixing.partner, ..key })?;
                    let weight = mixing.apply(&mut values, &partner);
                    mixed = self.class(mixing.partner as usize).map(|class| (class, weight));
                }
                batch.push(values);
            }
            batch.examples.push(example);
            batch.draws.push(derive_seed(self.seed, &[DRAW, *epoch, example]));
            batch.classes.extend(own);
            batch.mixed.extend(mixed.filter(|_| mixes));
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cursor, Loader};

    fn data(n: u8) -> ImageData {
        let example = |class: u8| ImageExample {
            image: ImageSource::Grey { width: 6, values: (0..36).map(|i| class * 30 + i).collect() },
            target: Target::Class(usize::from(class % 3)),
        };
        let preprocessing = Preprocessing::from_json(r#"{"size": 6}"#).unwrap();
        ImageData::new((0..n).map(example).collect(), preprocessing, 7).unwrap()
    }

    fn batches(data: ImageData, workers: usize, from: Cursor, n: usize) -> Vec<ImageBatch> {
        let loader = Loader::new(Arc::new(data), 3).with_workers(workers).with_ahead(2);
        loader.batches(from).take(n).collect::<Result<_>>().unwrap()
    }

    fn changed(n: u8) -> ImageData {
        let augment = AugmentConfig { flip: 0.5, ..AugmentConfig::default() };
        let mix = MixConfig { mixup_alpha: 1.0, cutmix_alpha: 1.0, ..MixConfig::default() };
        data(n).with_augment(augment).unwrap().with_mix(mix).unwrap()
    }

    #[test]
    fn batches_do_not_depend_on_workers_room_or_interruptions() {
        let all = batches(changed(5), 1, Cursor::default(), 6);
        assert_eq!(batches(changed(5).with_room(0), 3, Cursor::default(), 6), all);
        let loader = Loader::new(Arc::new(changed(5)), 3);
        let mut first = loader.batches(Cursor::default());
        first.by_ref().take(2).for_each(|batch| assert!(batch.is_ok()));
        assert_eq!(batches(changed(5), 2, first.cursor(), 4), all[2..]);
        // Each example once in an epoch.
        let mut seen: Vec<u64> = all.iter().flat_map(|batch| batch.examples.clone()).take(5).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
        assert!(all.iter().flat_map(|batch| &batch.mixed).any(|(_, weight)| *weight < 0.9));
        assert_eq!(data(5).checksum().unwrap(), changed(5).checksum().unwrap());
        assert_ne!(data(5).checksum().unwrap(), data(4).checksum().unwrap());
    }

    #[test]
    fn views_follow_one_another() {
        let augment = AugmentConfig { flip: 0.5, ..AugmentConfig::default() };
        let data = data(4).with_augment(augment).unwrap().with_views(2);
        let plain = data.in_order(0..4).unwrap();
        assert!(plain.mixed.is_empty());
        let size = 3 * 36;
        let image =
            |batch: &ImageBatch, place: usize| batch.pixels[place * size..(place + 1) * size].to_vec();
        let mut differ = 0;
        for batch in batches(data, 1, Cursor::default(), 20) {
            assert_eq!((batch.n_images(), batch.examples.len()), (6, 3));
            for (place, example) in batch.examples.iter().enumerate() {
                let [a, b] = [0, 1].map(|view| image(&batch, 2 * place + view));
                let original = image(&plain, *example as usize);
                let mirrored: Vec<f32> =
                    original.chunks_exact(6).flat_map(|row| row.iter().rev().copied()).collect();
                assert!([&a, &b].into_iter().all(|view| *view == original || *view == mirrored));
                differ += usize::from(a != b);
            }
        }
        // Half of 60, within six deviations.
        assert!((7..=53).contains(&differ), "{differ}");
    }

    #[test]
    fn scenes_are_drawn_when_they_are_read() {
        use crate::images::scenes::{DATA_SEED, SceneSplit, scenes};
        let data = |side| {
            let example = |scene| ImageExample {
                image: ImageSource::Scene { scene: Arc::new(scene), side },
                target: Target::None,
            };
            let examples = scenes(SceneSplit::Dev, DATA_SEED).take(3).map(example).collect();
            let preprocessing = r#"{"size": 32, "do_normalize": false}"#;
            ImageData::new(examples, Preprocessing::from_json(preprocessing).unwrap(), 7).unwrap()
        };
        let batch = data(32).in_order(0..3).unwrap();
        assert_eq!((batch.n_images(), batch.height, batch.width), (3, 32, 32));
        let scene = scenes(SceneSplit::Dev, DATA_SEED).nth(2).unwrap();
        let red = f32::from(scene.background()[0]) / 255.0;
        // The corner of the last image.
        assert!((batch.pixels[2 * 3 * 32 * 32] - red).abs() < 1e-6);
        assert_ne!(data(32).checksum().unwrap(), data(64).checksum().unwrap());
        let name = data(32).examples()[2].image.to_string();
        assert!(name.contains(&format!("a {}", scene.things()[1].description)), "{name}");
    }

    #[test]
    fn images_of_different_sizes_are_refused() {
        let preprocessing = Preprocessing::from_json(r#"{"size": {"shortest_edge": 6}}"#).unwrap();
        let message = ImageData::new(Vec::new(), preprocessing, 7).unwrap_err().to_string();
        assert!(message.contains("centre crop"), "{message}");
    }
}
