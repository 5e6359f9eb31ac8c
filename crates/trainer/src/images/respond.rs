//! Images of requests: decoded where they are asked for, answered in batches.

use super::data::pixels;
use super::embedder::ImageEmbedder;
use super::outputs::ImageOutput;
use super::predictor::ImagePredictor;
use crate::embed::normalize;
use crate::requests::Respond;
use crate::{Result, TrainerError};
use cloze_data::images::{DecodeLimits, Image, ImageBatch, Preprocessing, decode_image};
use cloze_ops::on_awake_cores;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};

/// An image that is asked about.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImageRequest {
    /// The bytes of a PNG, JPEG, GIF, WebP or BMP file.
    pub bytes: Arc<[u8]>,
    /// The largest image that is decoded. Default: a third of the usual pixels, because strangers may ask.
    pub limits: DecodeLimits,
    /// Whether its vector is scaled to length 1. Default: as the embedder is set.
    pub normalize: Option<bool>,
}

impl ImageRequest {
    /// The most pixels of an image by default.
    pub const MAX_PIXELS: u64 = 24_000_000;

    /// A request of a file's bytes.
    pub fn of(bytes: impl Into<Arc<[u8]>>) -> Self {
        let limits = DecodeLimits { max_pixels: Self::MAX_PIXELS, ..DecodeLimits::default() };
        Self { bytes: bytes.into(), limits, normalize: None }
    }
}

/// An image as large as the model's input.
#[derive(Debug)]
pub struct ImageUnit {
    image: Image,
    normalize: Option<bool>,
}

/// Images that are decoded at a time: a file of few bytes may have millions of pixels, and any number of threads asks.
struct Decoders {
    free: Mutex<usize>,
    freed: Condvar,
}

static DECODERS: LazyLock<Decoders> = LazyLock::new(|| Decoders {
    free: Mutex::new(std::thread::available_parallelism().map_or(1, usize::from)),
    freed: Condvar::new(),
});

impl Decoders {
    /// Does the work once a decoder is free.
    fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Taken<'a>(&'a Decoders);

        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                self.0.freed.notify_one();
            }
        }

        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.freed.wait_while(free, |free| *free == 0);
        *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        let _taken = Taken(self);
        work()
    }
}

/// The image of a request, decoded and resized.
fn unit(request: &ImageRequest, preprocessing: &Preprocessing) -> Result<ImageUnit> {
    let decoded = DECODERS
        .with(|| decode_image(&request.bytes, &request.limits).and_then(|image| preprocessing.fit(&image)));
    let image = decoded.map_err(|problem| TrainerError::BadInput { problem: problem.to_string() })?;
    Ok(ImageUnit { image, normalize: request.normalize })
}

/// A batch of units.
fn batch(units: &[&ImageUnit], preprocessing: &Preprocessing) -> ImageBatch {
    let mut batch = ImageBatch::default();
    for unit in units {
        batch.push(preprocessing.values(&unit.image));
    }
    batch
}

impl Respond for ImagePredictor {
    type Request = ImageRequest;
    type Unit = ImageUnit;
    type Answer = ImageOutput;

    fn encode(&self, request: ImageRequest) -> Result<ImageUnit> {
        unit(&request, self.preprocessing())
    }

    fn cost(&self, _: &ImageUnit) -> usize {
        self.config().encoder().n_states()
    }

    fn answer(&self, units: &[&ImageUnit]) -> Vec<Result<ImageOutput>> {
        let batch = batch(units, self.preprocessing());
        let device = self.device();
        let outputs = on_awake_cores(device, || ImageOutput::of(self.logits(pixels(&batch, device))));
        let finite = |output: ImageOutput| match output.probabilities.iter().all(|p| p.is_finite()) {
            true => Ok(output),
            false => Err(TrainerError::OutputNotFinite),
        };
        outputs.into_iter().map(finite).collect()
    }
}

impl Respond for ImageEmbedder {
    type Request = ImageRequest;
    type Unit = ImageUnit;
    /// The vector.
    type Answer = Vec<f32>;

    fn encode(&self, request: ImageRequest) -> Result<ImageUnit> {
        unit(&request, self.preprocessing())
    }

    fn cost(&self, _: &ImageUnit) -> usize {
        self.config().n_states()
    }

    fn answer(&self, units: &[&ImageUnit]) -> Vec<Result<Vec<f32>>> {
        let batch = batch(units, self.preprocessing());
        let device = self.device();
        let found = on_awake_cores(device, || self.vectors(pixels(&batch, device)).into_data());
        let values: Vec<f32> = found.iter::<f32>().collect();
        let finish = |(values, unit): (&[f32], &&ImageUnit)| {
            if !values.iter().all(|value| value.is_finite()) {
                return Err(TrainerError::OutputNotFinite);
            }
            let mut values = values.to_vec();
            if unit.normalize.unwrap_or(self.normalizes()) {
                normalize(&mut values);
            }
            Ok(values)
        };
        values.chunks_exact(self.width()).zip(units).map(finish).collect()
    }
}
