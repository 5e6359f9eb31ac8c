//! Vectors of images.

use super::data::pixels;
use super::predictor::{fitting_preprocessing, source_of_line};
use crate::embed::normalize;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::images::{ImageBatch, ImageData, ImageExample, ImageSource, Preprocessing};
use cloze_data::labelled::Target;
use cloze_model::ParamInit;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::load_published;
use cloze_model::vision::{AnyImageEncoder, AnyImageEncoderConfig, ImageEncoder, ImagePooling};
use cloze_ops::on_awake_cores;
use std::path::{Path, PathBuf};

/// Images that are read at a time.
const BATCH: usize = 64;

/// Settings of an [`ImageEmbedder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageEmbedConfig {
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// Whether the layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
}

/// The encoder in a folder of a model of images, whatever its head: it makes a vector of each image. Can be shared between
/// threads.
///
/// The vector is what a head of classes sees, by the model's pooling: after the last normalisation, the state of the class
/// piece, `last_hidden_state[:, 0]` in transformers (also of a DeiT and of an MAE, none of whose patches are masked), or the
/// mean of the patches' states, as also of a residual network's places.
#[derive(Debug)]
pub struct ImageEmbedder {
    encoder: AnyImageEncoder,
    config: AnyImageEncoderConfig,
    preprocessing: Preprocessing,
    folder: PathBuf,
    device: Device,
    normalize: bool,
}

/// The vectors of images.
#[derive(Debug)]
pub struct ImageEmbeddings {
    /// `[images · width]`, of the images before the first that cannot be used.
    pub values: Vec<f32>,
    /// What is wrong with the next image, if there is one.
    pub refused: Option<TrainerError>,
}

impl ImageEmbedder {
    /// The encoder in a folder, and how images become its inputs. `device` is without autodiff.
    ///
    /// # Errors
    /// Those of reading the folder; a `preprocessor_config.json` that contradicts the model.
    pub fn open(folder: &Path, config: ImageEmbedConfig, device: &Device) -> Result<Self> {
        let (shape, mut encoder, _) =
            load_published::<AnyImageEncoderConfig>(folder, &mut ParamInit::new(device, 0))?;
        match config.int8 {
            true => quantize_int8(&mut encoder),
            false => pack_weights(&mut encoder),
        }
        Ok(Self {
            encoder,
            preprocessing: fitting_preprocessing(folder, &shape)?,
            config: shape,
            folder: folder.into(),
            device: device.clone(),
            normalize: config.normalize,
        })
    }

    /// The configuration of the model.
    pub fn config(&self) -> &AnyImageEncoderConfig {
        &self.config
    }

    /// Where it computes.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The model's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Features of a vector.
    pub fn width(&self) -> usize {
        self.config.d_model()
    }

    /// Which state becomes the vector.
    pub fn pooling(&self) -> ImagePooling {
        match &self.config {
            AnyImageEncoderConfig::Vit(vit) => vit.pooling,
            _ => ImagePooling::Mean,
        }
    }

    /// Whether vectors are scaled to length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// How images become inputs.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// The image of an input line, as [`ImagePredictor::predict_lines`](super::ImagePredictor::predict_lines) reads it.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn source_of_line(line: &str) -> Result<ImageSource> {
        source_of_line(line)
    }

    /// The vectors of inputs, not scaled.
    ///
    /// # Shapes
    /// - `pixels`: `[images, channels, height, width]`; returns `[images, width]`
    pub fn vectors(&self, pixels: Tensor<4>) -> Tensor<2> {
        self.encoder.summaries(pixels).class
    }

    /// The vectors of images, up to the first that cannot be used. Any number of images needs the memory of a few; pass
    /// them in parts.
    ///
    /// # Errors
    /// [`TrainerError::OutputNotFinite`].
    pub fn embed(&self, images: Vec<ImageSource>) -> Result<ImageEmbeddings> {
        let mut all =
            ImageEmbeddings { values: Vec::with_capacity(images.len() * self.width()), refused: None };
        let mut images = images.into_iter();
        while all.refused.is_none() {
            let example = |image| ImageExample { image, target: Target::None };
            let examples: Vec<ImageExample> = images.by_ref().take(BATCH).map(example).collect();
            if examples.is_empty() {
                break;
            }
            let data = ImageData::new(examples, self.preprocessing.clone(), 0)?;
            let bad = data.first_bad();
            let n = bad.as_ref().map_or(data.examples().len(), |(place, _)| *place);
            all.refused = bad.map(|(_, error)| error.into());
            if n > 0 {
                self.append(&data.in_order(0..n)?, &mut all.values)?;
            }
        }
        Ok(all)
    }

    fn append(&self, batch: &ImageBatch, values: &mut Vec<f32>) -> Result<()> {
        let found = on_awake_cores(&self.device, || self.vectors(pixels(batch, &self.device)).into_data());
        let before = values.len();
        values.extend(found.iter::<f32>());
        let new = &mut values[before..];
        if !new.iter().all(|value| value.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        if self.normalize {
            new.chunks_exact_mut(self.width()).for_each(normalize);
        }
        Ok(())
    }
}
