//! Masked autoencoding of images (He et al. 2022): config, recipe and run.

use super::config::{ImageDataSection, ImageEval, ImageTrain, of_model};
use super::data::{ImageSplits, pixels};
use super::memory::{Layers, Maps, Size};
use super::start::{PREPROCESSOR, settings};
use super::without_classifier::{Opened, Sections};
use crate::config::validate::{Check, Complaint};
use crate::config::{ConfigFile, Run, layered};
use crate::engine::origin::Input;
use crate::engine::share_out;
use crate::engine::{
    Advance, Exported, Measured, Objective, Outcome, Position, Recipe, RunOptions, SplitFigures, StepBatches,
    Term, train_in,
};
use crate::memory::n_parameters;
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::images::ImageExample;
use cloze_data::images::{AugmentConfig, ImageBatch, ImageData, Preprocessing};
use cloze_data::labelled::Named;
use cloze_data::{Random, derive_seed};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{Picture, Predictions, RestoredExample, RestoredPredictions, WithPictures};
use cloze_evaluation::table::{self, grouped};
use cloze_model::blocks::Activation;
use cloze_model::huggingface::{FloatType, load_published_as, save_published};
use cloze_model::ops::on_awake_cores;
use cloze_model::vision::{Mae, MaeConfig, MaeDecoderConfig, MaskedPatches, VitConfig};
use cloze_model::{ModelError, ParamInit};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Separates the random stream of new parameters from all others of a seed.
const INIT_STREAM: u64 = 0x1A71;

/// Configures a run that pretrains a Vision Transformer as a masked autoencoder: `objective.kind = "masked-patches"`.
pub type MaskedPatchesRunConfig = Run<MaskedPatchesRun>;

/// The sections of a [`MaskedPatchesRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MaskedPatchesRun {
    /// `[objective]`: what is restored.
    pub objective: MaskedPatchesSection,
    /// `[model]`: the encoder and the decoder.
    pub model: MaeSection,
    /// `[data]`: images for training and evaluation; their classes are not read.
    pub data: ImageDataSection,
    /// `[augment]`: random changes of images in training. Default none.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// `[train]`: epochs and batches.
    pub train: ImageTrain,
    /// `[eval]`: when to evaluate, and when to stop.
    #[serde(default)]
    pub eval: ImageEval,
}

/// `[objective]` of a masked autoencoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum MaskedPatchesSection {
    /// The pixels of masked patches are restored from the others (He et al. 2022).
    MaskedPatches {
        /// The share of patches that is masked. Default 0.75.
        #[serde(default = "three_quarters")]
        mask_ratio: f64,
        /// Whether the pixels to restore are normalised patch by patch. Default true.
        #[serde(default = "yes")]
        normalised_pixels: bool,
    },
}

impl MaskedPatchesSection {
    /// Its name in configs.
    pub(crate) const KIND: &'static str = "masked-patches";
}

fn three_quarters() -> f64 {
    0.75
}

fn yes() -> bool {
    true
}

/// `[model]`: a Vision Transformer with sinusoidal positions and a narrow decoder. The result is transformers'
/// `ViTMAEForPreTraining`; `kind = "pretrained"` fine-tunes its encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MaeSection {
    /// Rows and columns of a patch, in pixels.
    pub patch_size: usize,
    /// Encoder layers.
    pub n_layers: usize,
    /// Width of the encoder's hidden states.
    pub d_model: usize,
    /// The encoder's attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the encoder's feed-forward. Default `4 · d_model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
    /// The decoder.
    pub decoder: MaeDecoderSection,
    /// The feed-forwards' activation. Default `"gelu"`.
    #[serde(default)]
    pub activation: Activation,
    /// Added to the variance in layer norms. Default 1e-6.
    #[serde(default = "epsilon")]
    pub layer_norm_eps: f64,
    /// Standard deviation of the truncated normal distribution of initial weights. Default 0.02.
    #[serde(default = "init_std")]
    pub init_std: f64,
}

fn epsilon() -> f64 {
    1e-6
}

fn init_std() -> f64 {
    0.02
}

/// `[model.decoder]`: what restores the pixels, and is not used afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MaeDecoderSection {
    /// Decoder layers.
    pub n_layers: usize,
    /// Width of the decoder's hidden states.
    pub d_model: usize,
    /// The decoder's attention heads; divides its `d_model`.
    pub n_heads: usize,
    /// Inner width of the decoder's feed-forward. Default `4 · d_model` of the decoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
}

impl MaskedPatchesRun {
    fn sections(&self) -> Sections<'_> {
        let Self { data, augment, train, eval, .. } = self;
        Sections { data, augment, train, eval }
    }

    /// The model for images of this height and width.
    pub fn mae(&self, image_size: [usize; 2]) -> MaeConfig {
        let MaeSection { patch_size, n_layers, d_model, n_heads, d_ff, decoder, .. } = &self.model;
        let MaskedPatchesSection::MaskedPatches { mask_ratio, normalised_pixels } = self.objective;
        let vit = VitConfig::new(1, 1, *n_layers, *d_model)
            .with_image_size(image_size)
            .with_patch_size([*patch_size; 2])
            .with_n_heads(*n_heads)
            .with_d_ff(d_ff.unwrap_or(d_model.saturating_mul(4)))
            .with_activation(self.model.activation)
            .with_layer_norm_eps(self.model.layer_norm_eps)
            .with_init_std(self.model.init_std);
        let sizes = MaeDecoderConfig::new(decoder.n_layers, decoder.d_model, decoder.n_heads);
        let sizes = sizes.with_d_ff(decoder.d_ff.unwrap_or(sizes.d_ff));
        MaeConfig::new(vit, sizes).with_mask_ratio(mask_ratio).with_normalised_pixels(normalised_pixels)
    }
}

impl RunKind for MaskedPatchesRun {
    const FREE_KEYS: &'static [&'static str] = super::config::FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some(MaskedPatchesSection::KIND)
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        layered::read(file, sets, |config: &mut Run<Self>| {
            config.data.train.named = Named::TrainingData;
            validate(config)
        })
    }

    /// Images, of which there may be millions, are known by the checkpoint's hash of them.
    fn inputs(&self) -> Result<Vec<Input>> {
        Ok(Vec::new())
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        train_masked_patches(run, options, progress).map_err(TrainerError::of_training_data)
    }
}

fn validate(config: &Run<MaskedPatchesRun>) -> Check {
    let sections = config.kind.sections();
    config.mae(sections.size()?).validate().map_err(|error| match error {
        ModelError::Setting { key: "mask_ratio", found, expected } => {
            Complaint { key: "objective.mask_ratio".into(), found, expected }
        }
        other => of_model(other),
    })?;
    sections.check(config)
}

/// Pretrains a masked autoencoder as configured.
///
/// # Errors
/// Invalid data or run folder; a non-finite loss if the config says to stop on one.
pub fn train_masked_patches(
    config: &MaskedPatchesRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let Some(opened) = Opened::open(config, config.kind.sections(), None, options, progress)? else {
        return Ok(Outcome::Stopped { step: 0 });
    };
    let Opened { folder, device, preprocessing, splits } = opened;
    let (size, seed) = (config.data.size.unwrap_or_default(), config.common.run.seed);
    let shape = config.mae(size);
    shape.validate()?;
    Size {
        parameters: [n_parameters(&shape.init(&mut ParamInit::new(&device, 0).deferred())); 2],
        layers: Layers::of_mae(&shape).to_vec(),
        maps: Maps::default(),
        input: size,
        views: 1,
        chunk: None,
        checkpoint: None,
    }
    .check(&config.train, options, progress)?;
    let mut model = shape.init(&mut ParamInit::new(&device, derive_seed(seed, &[INIT_STREAM])));
    model.vit.encoder.recompute = config.train.recompute;
    model.decoder.layers.recompute = config.train.recompute;
    let settings = settings(&config.common, &config.train, &config.eval, splits.train.examples().len());
    let [rows, columns] = shape.vit.grid();
    progress.note(&table::facts(
        "images",
        [
            ("train", grouped(splits.train.examples().len() as u64)),
            ("patches", format!("{rows} × {columns}, {} of them seen", shape.n_kept())),
            ("steps", grouped(settings.steps)),
            ("parameters", grouped(model.num_params() as u64)),
        ],
    ));
    let recipe = MaskedPatchesRecipe::new(splits, &config.train, &config.eval, shape, preprocessing)?;
    train_in(&folder, &recipe, model, &settings, options, progress)
}

/// The training of a [`Mae`]: the mean over masked patches of the squared error of their pixels.
#[derive(Debug)]
pub struct MaskedPatchesRecipe<'a> {
    splits: ImageSplits,
    /// Identifies the training images.
    key: String,
    train: &'a ImageTrain,
    eval: &'a ImageEval,
    shape: MaeConfig,
    preprocessing: Preprocessing,
}

impl<'a> MaskedPatchesRecipe<'a> {
    /// A recipe on these images for a model of `shape`, which is saved with its preprocessing.
    ///
    /// # Errors
    /// A file of the training images that cannot be read.
    pub fn new(
        splits: ImageSplits,
        train: &'a ImageTrain,
        eval: &'a ImageEval,
        shape: MaeConfig,
        preprocessing: Preprocessing,
    ) -> Result<Self> {
        let key = splits.train.checksum()?;
        Ok(Self { splits, key, train, eval, shape, preprocessing })
    }

    /// The patches that the encoder sees of each image of a batch: a function of the example and the epoch.
    fn masked(&self, batch: &ImageBatch) -> MaskedPatches {
        let [rows, columns] = self.shape.vit.grid();
        let (n, n_kept) = (rows * columns, self.shape.n_kept());
        let kept: Vec<Vec<usize>> = batch.draws.iter().map(|draw| drawn(n, n_kept, *draw)).collect();
        let kept: Vec<&[usize]> = kept.iter().map(Vec::as_slice).collect();
        MaskedPatches::new(&kept, n)
    }

    /// The loss of each image.
    fn losses(
        &self,
        model: &Mae,
        data: &ImageData,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<RestoredPredictions> {
        let n = data.examples().len();
        let size = self.eval.batch_size.max(1);
        let losses = share_out(n.div_ceil(size), |own| {
            let (n_own, mut done) = (n.min(own.end * size).saturating_sub(own.start * size), 0);
            let of_batches = own.map(|place| {
                let batch = data.in_order(place * size..n.min((place + 1) * size))?;
                let masked = self.masked(&batch);
                let losses = on_awake_cores(device, || {
                    let errors = model.errors(pixels(&batch, device), &masked) * masked.mask(device);
                    (errors.sum_dim(1) / masked.n_masked() as f64).into_data()
                });
                done += batch.n_images();
                advanced(Advance { done, share: done as f64 / n_own as f64 });
                Ok(losses.iter::<f64>().collect::<Vec<f64>>())
            });
            of_batches.collect()
        })?;
        let examples = data.examples().iter().zip(losses.into_iter().flatten());
        let restored =
            |(example, loss): (&ImageExample, f64)| RestoredExample { id: example.image.to_string(), loss };
        Ok(RestoredPredictions { examples: examples.map(restored).collect() })
    }

    /// An image, what the encoder sees of it, and what is restored; nothing of an image that does not decode any more.
    fn pictures(&self, model: &Mae, data: &ImageData, example: usize, device: &Device) -> Vec<Picture> {
        let Ok(batch) = data.in_order(example..example + 1) else { return Vec::new() };
        let (masked, original) = (self.masked(&batch), pixels(&batch, device));
        let restored = model.forward(original.clone(), &masked);
        let restored = model.images(original.clone(), restored, &masked);
        // Masked patches in the middle of the values.
        let seen = model.without_masked(original.clone(), &masked);
        let picture = |caption, pixels: Tensor<4>| {
            let values: Vec<f32> = pixels.into_data().iter::<f32>().collect();
            let image = self.preprocessing.image(&values, batch.height, batch.width);
            Picture { caption, png: image.to_png() }
        };
        vec![picture("original", original), picture("masked", seen), picture("restored", restored)]
    }
}

/// So many of `n` numbers, in ascending order.
fn drawn(n: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut numbers: Vec<usize> = (0..n).collect();
    for place in 0..count {
        let other = place + random.below((n - place) as u64) as usize;
        numbers.swap(place, other);
    }
    numbers.truncate(count);
    numbers.sort_unstable();
    numbers
}

impl Objective for MaskedPatchesRecipe<'_> {
    type Model = Mae;
    type Batch = ImageBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, batch: &ImageBatch) -> Vec<f64> {
        let [rows, columns] = self.shape.vit.grid();
        vec![(batch.n_images() * (rows * columns - self.shape.n_kept())) as f64]
    }

    fn sums(&self, model: &Mae, batch: &ImageBatch, device: &Device) -> Vec<Tensor<1>> {
        vec![model.loss(pixels(batch, device), &self.masked(batch))]
    }
}

impl Recipe for MaskedPatchesRecipe<'_> {
    fn data(&self) -> String {
        self.key.clone()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<ImageBatch>>> + '_> {
        self.train.steps(&self.splits.train, from)
    }

    fn split(&self) -> Option<&str> {
        self.splits.dev.as_ref().map(|_| "dev")
    }

    /// Each image is masked in the same way at every evaluation.
    fn evaluate(&self, model: &Mae, device: &Device, advanced: &mut dyn FnMut(Advance)) -> Result<Figures> {
        let dev = self.splits.dev.as_ref().expect("only what `split` names is measured");
        Ok(self.losses(model, dev, device, advanced)?.figures())
    }

    fn save(&self, model: &Mae, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.shape, FloatType::F32)?;
        Ok(self.preprocessing.write(&folder.join(PREPROCESSOR))?)
    }

    fn load(&self, model: Mae, folder: &Path) -> Result<Mae> {
        let device = model.decoder.mask_piece.lazy_device();
        Ok(load_published_as(&self.shape, folder, &mut ParamInit::new(&device, 0))?.0)
    }

    /// The result's loss on each split, with images as they are, as the encoder sees them, and as they are restored.
    fn report(
        &self,
        exported: &Exported<'_, Mae>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let (model, device) = (exported.model, exported.device);
        let splits = [("dev", &self.splits.dev), ("test", &self.splits.test)];
        exported.report_splits(splits, progress, |_, data, advanced| {
            let predictions = self.losses(model, data, device, advanced)?;
            let figures = predictions.figures();
            let pictured =
                WithPictures::new(predictions, |example| self.pictures(model, data, example, device));
            Ok(Measured::new(figures, Box::new(pictured)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_patches_are_drawn_and_each_as_often() {
        let mut counts = [0; 16];
        for seed in 0..4_000 {
            let kept = drawn(16, 4, seed);
            assert!(kept.len() == 4 && kept.is_sorted() && kept.windows(2).all(|pair| pair[0] < pair[1]));
            kept.iter().for_each(|patch| counts[*patch] += 1);
        }
        // A quarter of 4,000, within six deviations.
        assert!(counts.iter().all(|count| (836..=1_164).contains(count)), "{counts:?}");
        assert_eq!(drawn(16, 4, 7), drawn(16, 4, 7));
    }
}
