//! The configuration of a run on images.

use super::start;
use crate::config::validate::{
    Check, Complaint, at_least, averaging, below_one, ensure, optimizer, positive, schedule_of_epochs, share,
};
use crate::config::{Common, ConfigFile, NonFinite, Precision, Run, layered};
use crate::engine::origin::{Input, model_files};
use crate::engine::{Outcome, RunOptions};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, TrainerError};
use cloze_data::DataError;
use cloze_data::images::{AugmentConfig, Filter, MixConfig, Normalisation, Preprocessing, TargetSize};
use cloze_data::labelled::{LabelledSource, Named, OnBadRow};
use cloze_model::ModelError;
use cloze_model::blocks::{Activation, LoraConfig};
use cloze_model::vision::{AnyImageEncoderConfig, ImagePooling, PatchPositions, ResNetConfig, VitConfig};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configures a run that trains a classifier of images: `task.kind = "image-classification"`.
pub type ImageRunConfig = Run<ImageRun>;

/// The sections of an [`ImageRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageRun {
    /// `[task]`: what is predicted.
    pub task: ImageTaskSection,
    /// `[model]`: the network, new or a checkpoint's.
    pub model: ImageModelSection,
    /// `[data]`: images for training and evaluation.
    pub data: ImageDataSection,
    /// `[augment]`: random changes of images in training. Default none.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// `[mix]`: images mixed with others in training. Default none.
    #[serde(default)]
    pub mix: MixConfig,
    /// `[distillation]`: a teacher. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distillation: Option<ImageDistillationSection>,
    /// `[train]`: epochs and batches.
    pub train: ImageTrain,
    /// `[eval]`: when to evaluate, by which metric, and when to stop.
    #[serde(default)]
    pub eval: ImageEval,
}

/// `[task]`: what is predicted of an image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ImageTaskSection {
    /// One class for each image.
    ImageClassification {
        /// The classes in the order of their numbers. Default: those that occur in the training data, sorted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        labels: Option<Vec<String>>,
        /// The share of the target that is spread over all classes. Default 0.
        #[serde(default)]
        label_smoothing: f64,
    },
}

impl ImageTaskSection {
    /// Its name in configs.
    pub(crate) const KIND: &'static str = "image-classification";

    pub(super) fn labels(&self) -> Option<&[String]> {
        let Self::ImageClassification { labels, .. } = self;
        labels.as_deref()
    }

    pub(super) fn label_smoothing(&self) -> f64 {
        let Self::ImageClassification { label_smoothing, .. } = self;
        *label_smoothing
    }
}

/// `[model]`: the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ImageModelSection {
    /// A Vision Transformer with random weights (Dosovitskiy et al. 2021); with a distillation piece DeiT (Touvron et al.
    /// 2021).
    Vit(NewVit),
    /// A residual network of convolutions with random weights (He et al. 2016, §4.2), with group normalisation.
    Resnet(NewResNet),
    /// A checkpoint to fine-tune.
    Pretrained(PretrainedImageModel),
}

impl ImageModelSection {
    /// Checks a new network for images of this height and width; the width of its states.
    pub(crate) fn check(&self, size: [usize; 2]) -> std::result::Result<usize, Complaint> {
        match self {
            Self::Pretrained(_) => Ok(0),
            Self::Vit(section) => {
                section.vit(size).validate().map_err(of_model)?;
                Ok(section.d_model)
            }
            Self::Resnet(section) => {
                let resnet = section.resnet(size);
                resnet.validate().map_err(of_model)?;
                Ok(resnet.d_model())
            }
        }
    }

    /// The checkpoint's settings, if there is one.
    pub fn as_pretrained(&self) -> Option<&PretrainedImageModel> {
        match self {
            Self::Pretrained(model) => Some(model),
            Self::Vit(_) | Self::Resnet(_) => None,
        }
    }
}

/// A new network without labels' help: the `[model]` of pretraining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NewImageEncoder {
    /// A Vision Transformer (Dosovitskiy et al. 2021).
    Vit(NewVit),
    /// A residual network of convolutions (He et al. 2016, §4.2), with group normalisation.
    Resnet(NewResNet),
}

impl NewImageEncoder {
    /// The model for images of this height and width.
    pub fn encoder(&self, image_size: [usize; 2]) -> AnyImageEncoderConfig {
        match self {
            Self::Vit(section) => section.vit(image_size).into(),
            Self::Resnet(section) => section.resnet(image_size).into(),
        }
    }
}

/// A new Vision Transformer for images of `data.size`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewVit {
    /// Rows and columns of a patch, in pixels.
    pub patch_size: usize,
    /// Encoder layers.
    pub n_layers: usize,
    /// Width of the hidden states.
    pub d_model: usize,
    /// Attention heads; divides `d_model`.
    pub n_heads: usize,
    /// Inner width of the feed-forward. Default `4 · d_model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<usize>,
    /// Where the positions of patches come from: `"learned"`, `"sinusoidal"` or `"none"`. transformers has only learned
    /// ones. Default `"learned"`.
    #[serde(default)]
    pub positions: PatchPositions,
    /// What the head sees: the state of the class piece, `"class"`, or the mean of the patches' states, `"mean"`, for
    /// which there is no class piece and no class in transformers. Default `"class"`.
    #[serde(default)]
    pub pooling: ImagePooling,
    /// Whether there is a distillation piece with a head of its own, which learns from the teacher of `[distillation]`.
    /// Default false.
    #[serde(default)]
    pub distillation_piece: bool,
    /// Dropout of the embeddings and of each sublayer's output. Default 0.
    #[serde(default)]
    pub hidden_dropout: f64,
    /// Dropout of the attention probabilities. Default 0.
    #[serde(default)]
    pub attention_dropout: f64,
    /// The probability that the last layer's sublayers are left out for an image; it grows evenly from 0 in the first
    /// layer (Huang et al. 2016). Default 0.
    #[serde(default)]
    pub stochastic_depth: f64,
    /// The feed-forward's activation. Default `"gelu"`.
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

impl NewVit {
    /// The model for images of this height and width.
    pub fn vit(&self, image_size: [usize; 2]) -> VitConfig {
        let has_class_piece = self.pooling == ImagePooling::Class || self.distillation_piece;
        VitConfig::new(1, 1, self.n_layers, self.d_model)
            .with_image_size(image_size)
            .with_patch_size([self.patch_size; 2])
            .with_n_heads(self.n_heads)
            .with_d_ff(self.d_ff.unwrap_or(self.d_model.saturating_mul(4)))
            .with_positions(self.positions)
            .with_pooling(self.pooling)
            .with_class_piece(has_class_piece)
            .with_distillation_piece(self.distillation_piece)
            .with_hidden_dropout(self.hidden_dropout)
            .with_attention_dropout(self.attention_dropout)
            .with_stochastic_depth(self.stochastic_depth)
            .with_activation(self.activation)
            .with_layer_norm_eps(self.layer_norm_eps)
            .with_init_std(self.init_std)
    }
}

/// A new residual network for images of `data.size`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewResNet {
    /// Blocks of each stage, of two convolutions each: with three stages, 3 blocks are ResNet-20. Default 3.
    #[serde(default = "n_blocks")]
    pub n_blocks: usize,
    /// Channels of each stage; a stage with more than the one before halves rows and columns. Default `[16, 32, 64]`.
    #[serde(default = "widths")]
    pub widths: Vec<usize>,
    /// Channels of a group in normalisations; divides all of `widths`. Default 8.
    #[serde(default = "group_width")]
    pub group_width: usize,
    /// Added to the variance in normalisations. Default 1e-5.
    #[serde(default = "norm_eps")]
    pub norm_eps: f64,
}

fn n_blocks() -> usize {
    3
}

fn widths() -> Vec<usize> {
    vec![16, 32, 64]
}

fn group_width() -> usize {
    8
}

fn norm_eps() -> f64 {
    1e-5
}

impl NewResNet {
    /// The model for images of this height and width.
    pub fn resnet(&self, image_size: [usize; 2]) -> ResNetConfig {
        ResNetConfig::new(1, self.n_blocks)
            .with_image_size(image_size)
            .with_widths(self.widths.clone())
            .with_group_width(self.group_width)
            .with_norm_eps(self.norm_eps)
    }
}

/// A checkpoint to fine-tune. Its sizes are its own; for images of another size its positions are resized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedImageModel {
    /// The checkpoint: the folder of a ViT, DeiT, MAE or residual network, or of a captioner, whose encoder is taken; relative to the
    /// current directory. `cloze` also takes a name on the hub. A head of the same classes is kept, another is replaced by a new one.
    pub path: PathBuf,
    /// What the head sees, see `kind = "vit"`. Default `"class"`; of a residual network always the mean of the places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooling: Option<ImagePooling>,
    /// Dropout of the embeddings and of each sublayer's output. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_dropout: Option<f64>,
    /// Dropout of the attention probabilities. Default the checkpoint's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// The probability that the last layer's sublayers are left out for an image. Default 0.
    #[serde(default)]
    pub stochastic_depth: f64,
    /// Patterns for the paths of frozen parameters: `["encoder.*"]` trains the head alone. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
    /// Number of first layers to freeze, together with the embeddings. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze_layers: Option<usize>,
    /// Each layer's learning rate is this times that of the layer above it. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
    /// Low-rank adapters, which are trained instead of the encoder and merged into it at the end. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<LoraConfig>,
}

/// `[data]`: images for training and evaluation, and how they become a model's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageDataSection {
    /// The training data: a folder with a folder for each class; an IDX file of images, with the file of classes beside
    /// it; or tables with the columns `image`, a path or bytes, and `label`.
    pub train: LabelledSource,
    /// Files for evaluation during training, which select the best model, read like the training data. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dev: Vec<String>,
    /// The fraction of the training data held out for evaluation during training, instead of files. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev_fraction: Option<f64>,
    /// Files for evaluating the result, read like the training data. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<String>,
    /// Number of training examples per class, drawn by the seed from those not held out. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
    /// The fraction of the training examples that is used, drawn by the seed from those not held out. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// Height and width of the model's input, in pixels: images are resized to it. Default the checkpoint's; required
    /// for a new model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[usize; 2]>,
    /// The filter of the resize: `"box"`, `"bilinear"` or `"bicubic"`. Default the checkpoint's, or `"bilinear"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// The means of red, green and blue, of values from 0 to 1, which are subtracted. Default the checkpoint's, or 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<[f32; 3]>,
    /// The deviations that the values are divided by. Default the checkpoint's, or 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub std: Option<[f32; 3]>,
    /// What happens when an image cannot be decoded. Default `"error"`.
    #[serde(default)]
    pub on_bad_image: OnBadRow,
}

impl ImageDataSection {
    /// These training images; all else is the default.
    pub fn new(train: LabelledSource) -> Self {
        Self {
            train,
            dev: Vec::new(),
            dev_fraction: None,
            test: Vec::new(),
            shots: None,
            fraction: None,
            size: None,
            filter: None,
            mean: None,
            std: None,
            on_bad_image: OnBadRow::default(),
        }
    }

    /// Whether there are images for evaluation during training.
    pub(super) fn is_measured(&self) -> bool {
        !self.dev.is_empty() || self.dev_fraction.is_some()
    }

    /// How images become inputs; `own` is the checkpoint's way, if there is one.
    pub(crate) fn preprocessing(&self, own: Option<Preprocessing>) -> Preprocessing {
        let mut all = own.unwrap_or_else(|| {
            let [height, width] = self.size.unwrap_or([224; 2]);
            Preprocessing::to_size(height, width)
        });
        if let Some([height, width]) = self.size {
            let filter = all.resize.map_or(Filter::Bilinear, |(_, filter)| filter);
            (all.resize, all.centre_crop) = (Some((TargetSize::Exact { height, width }, filter)), None);
        }
        if let (Some((_, filter)), Some(wanted)) = (&mut all.resize, self.filter) {
            *filter = wanted;
        }
        if self.mean.is_some() || self.std.is_some() {
            let own = all.normalise.unwrap_or(Normalisation { mean: [0.0; 3], std: [1.0; 3] });
            all.normalise =
                Some(Normalisation { mean: self.mean.unwrap_or(own.mean), std: self.std.unwrap_or(own.std) });
        }
        all
    }
}

/// `[distillation]`: a teacher, whose classes the distillation piece's head learns (Touvron et al. 2021, §4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageDistillationSection {
    /// The folder of a classifier of the same classes, for images of the same size.
    pub teacher: PathBuf,
    /// The weight of the teacher's classes in the loss; that of the labels is 1 less it. Default 0.5, the paper's.
    #[serde(default = "half")]
    pub weight: f64,
}

fn half() -> f64 {
    0.5
}

/// `[train]`: epochs, batches and precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageTrain {
    /// Passes over the training data.
    pub epochs: u64,
    /// Images per micro-batch, the unit held in memory.
    pub batch_size: usize,
    /// Micro-batches averaged into one step. Default 1.
    #[serde(default = "one")]
    pub accumulate: usize,
    /// Threads that read and change images. Default 1.
    #[serde(default = "one")]
    pub workers: usize,
    /// Batches made ahead. Default 4.
    #[serde(default = "prefetch")]
    pub prefetch: usize,
    /// What to do on a non-finite loss or gradient. Default `"stop"`.
    #[serde(default)]
    pub non_finite: NonFinite,
    /// Precision of matrix products. Default `"f32"`.
    #[serde(default)]
    pub precision: Precision,
    /// Whether to recompute a layer's activations in the backward pass instead of keeping them. Only on flex. Default
    /// false.
    #[serde(default)]
    pub recompute: bool,
}

impl ImageTrain {
    /// So many passes over the images, in steps of one batch of this size; all else is the default.
    pub fn new(epochs: u64, batch_size: usize) -> Self {
        Self {
            epochs,
            batch_size,
            accumulate: 1,
            workers: 1,
            prefetch: prefetch(),
            non_finite: NonFinite::default(),
            precision: Precision::default(),
            recompute: false,
        }
    }
}

fn one() -> usize {
    1
}

fn prefetch() -> usize {
    4
}

/// `[eval]`: when to evaluate, by which metric, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ImageEval {
    /// Evaluations per epoch, the last one at its end. Default 1.
    pub per_epoch: u64,
    /// The metric that decides which model is best. Default `accuracy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Number of evaluations in a row without a better metric, or an equal metric and a lower loss, after which training
    /// stops. Default none: training never stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Images per evaluation batch; only affects the last digits of results. Default 64.
    pub batch_size: usize,
}

impl Default for ImageEval {
    fn default() -> Self {
        Self { per_epoch: 1, metric: None, patience: None, batch_size: 64 }
    }
}

/// Keys or key prefixes that do not affect the weights.
pub(crate) const FREE_KEYS: &[&str] = &[
    "run.name",
    "train.workers",
    "train.prefetch",
    "train.recompute",
    "eval.batch_size",
    "checkpoint.",
    "log.",
    "data.test",
];

impl RunKind for ImageRun {
    const FREE_KEYS: &'static [&'static str] = FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("task") == Some(ImageTaskSection::KIND)
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        layered::read(file, sets, |config: &mut Run<Self>| {
            config.data.train.named = Named::TrainingData;
            validate(config)
        })
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.model {
            ImageModelSection::Pretrained(model) => Some(&mut model.path),
            ImageModelSection::Vit(_) | ImageModelSection::Resnet(_) => None,
        }
    }

    /// Models' files. Images, of which there may be millions, are known by the checkpoint's hash of them.
    fn inputs(&self) -> Result<Vec<Input>> {
        let folders = [
            self.model.as_pretrained().map(|model| &model.path),
            self.distillation.as_ref().map(|section| &section.teacher),
        ];
        let mut paths = Vec::new();
        for folder in folders.into_iter().flatten() {
            paths.extend(model_files(folder)?);
        }
        Input::of(paths)
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        start::train_images(run, options, progress).map_err(TrainerError::of_training_data)
    }
}

fn validate(config: &Run<ImageRun>) -> Check {
    let ImageRun { task, model, data, augment, mix, distillation, train, eval } = &config.kind;
    below_one("task.label_smoothing", task.label_smoothing())?;
    let size = data.size.unwrap_or_default();
    if model.as_pretrained().is_none() {
        let expected = "height and width of the model's input: `[32, 32]`";
        ensure(data.size.is_some(), "data.size", "absent", expected)?;
    }
    match model {
        ImageModelSection::Vit(section) => section.vit(size).validate().map_err(of_model)?,
        ImageModelSection::Resnet(section) => section.resnet(size).validate().map_err(of_model)?,
        ImageModelSection::Pretrained(section) => {
            for (key, p) in [
                ("model.hidden_dropout", section.hidden_dropout),
                ("model.attention_dropout", section.attention_dropout),
                ("model.stochastic_depth", Some(section.stochastic_depth)),
            ] {
                below_one(key, p.unwrap_or(0.0))?;
            }
            if let Some(decay) = section.layer_decay {
                ensure(
                    decay > 0.0 && decay <= 1.0,
                    "model.layer_decay",
                    decay,
                    "a number above 0, at most 1",
                )?;
            }
        }
    }
    check_data(data, augment)?;
    mix.check().map_err(|error| of_data("mix", error))?;
    if let Some(section) = distillation {
        share("distillation.weight", section.weight)?;
        match model {
            ImageModelSection::Vit(vit) => ensure(
                vit.distillation_piece,
                "model.distillation_piece",
                false,
                "true: `[distillation]` needs a piece that learns from the teacher",
            )?,
            ImageModelSection::Resnet(_) => ensure(
                false,
                "model.kind",
                "resnet",
                "vit: `[distillation]` needs a piece that learns from the teacher",
            )?,
            ImageModelSection::Pretrained(_) => (),
        }
    }
    check_steps(data.is_measured(), train, eval, &config.common)
}

/// A complaint of the data crate about a value in this section.
fn of_data(section: &str, error: DataError) -> Complaint {
    match error {
        DataError::AugmentSetting { key: part, found, expected } => {
            let key = if part.starts_with("mix.") { part } else { format!("{section}.{part}") };
            Complaint { key, found, expected: expected.into() }
        }
        other => Complaint { key: section.into(), found: "as it is".into(), expected: other.to_string() },
    }
}

/// Checks `[augment]`.
pub(crate) fn check_augment(augment: &AugmentConfig) -> Check {
    augment.check().map_err(|error| of_data("augment", error))
}

/// Checks `[data]` and `[augment]`.
pub(super) fn check_data(data: &ImageDataSection, augment: &AugmentConfig) -> Check {
    check_augment(augment)?;
    ensure(!data.train.files.is_empty(), "data.train.files", "[]", "a folder, or files")?;
    if let Some([height, width]) = data.size {
        ensure(height > 0 && width > 0, "data.size", format!("{height} × {width}"), "at least 1 × 1")?;
    }
    if let Some(fraction) = data.dev_fraction {
        ensure(fraction > 0.0 && fraction < 1.0, "data.dev_fraction", fraction, "a number between 0 and 1")?;
        ensure(
            data.dev.is_empty(),
            "data.dev_fraction",
            fraction,
            "it to be absent: `data.dev` names files",
        )?;
    }
    if let Some(fraction) = data.fraction {
        share("data.fraction", fraction)?;
        positive("data.fraction", fraction)?;
        ensure(
            data.shots.is_none(),
            "data.fraction",
            fraction,
            "it to be absent: `data.shots` draws as well",
        )?;
    }
    at_least(1, "data.shots", data.shots.unwrap_or(1))?;
    for value in data.std.into_iter().flatten() {
        ensure(value.is_finite() && value > 0.0, "data.std", value, "numbers above 0")?;
    }
    for value in data.mean.into_iter().flatten() {
        ensure(value.is_finite(), "data.mean", value, "finite numbers")?;
    }
    Ok(())
}

/// Checks `[train]`, `[eval]` and what all runs have.
pub(crate) fn check_steps(is_measured: bool, train: &ImageTrain, eval: &ImageEval, common: &Common) -> Check {
    at_least(1, "train.epochs", train.epochs)?;
    at_least(1, "train.batch_size", train.batch_size)?;
    at_least(1, "train.accumulate", train.accumulate)?;
    at_least(1, "train.workers", train.workers)?;
    at_least(1, "train.prefetch", train.prefetch)?;
    at_least(1, "eval.per_epoch", eval.per_epoch)?;
    at_least(1, "eval.batch_size", eval.batch_size)?;
    at_least(1, "eval.patience", eval.patience.unwrap_or(1))?;
    if let Some(patience) = eval.patience {
        ensure(is_measured, "eval.patience", patience, "it to be absent: there is no `data.dev`")?;
    }
    optimizer(&common.optimizer)?;
    schedule_of_epochs(&common.schedule)?;
    averaging(common.average.as_ref(), is_measured)
}

/// The error of a model's setting, as one of `[model]`; the images' size is `data.size`.
pub(crate) fn of_model(error: ModelError) -> Complaint {
    match error {
        ModelError::Setting { key: "image_size", found, expected } => {
            Complaint { key: "data.size".into(), found, expected }
        }
        ModelError::Setting { key, found, expected } => {
            Complaint { key: format!("model.{key}"), found, expected }
        }
        other => Complaint { key: "model".into(), found: "as it is".into(), expected: other.to_string() },
    }
}
