//! Learning from pairs of views without labels (Chen et al. 2020, "SimCLR"): config, recipe and run.

use super::config::{
    FREE_KEYS, ImageDataSection, ImageEval, ImageTaskSection, ImageTrain, NewImageEncoder, of_model,
};
use super::data::{ImageSplits, pixels, pixels_of};
use super::features::probe;
use super::memory::{Layers, Maps, Size};
use super::start::{PREPROCESSOR, settings};
use super::without_classifier::{Opened, Sections};
use crate::config::shards::check_parts;
use crate::config::validate::{Check, at_least, ensure, positive};
use crate::config::{ConfigFile, Run, layered};
use crate::engine::origin::Input;
use crate::engine::{
    Advance, ByRows, Exported, Objective, Outcome, Position, Recipe, RunOptions, SplitFigures, StepBatches,
    Term, in_parts, train_in,
};
use crate::memory::n_parameters;
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_data::images::{AugmentConfig, ImageBatch, Preprocessing};
use cloze_data::labelled::Named;
use cloze_evaluation::figures::Figures;
use cloze_evaluation::table::{self, grouped};
use cloze_model::ParamInit;
use cloze_model::huggingface::{FloatType, load_published_as, save_published};
use cloze_model::vision::{AnyImageEncoder, AnyImageEncoderConfig, SimClr, nt_xent};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::Path;

/// Separates the random stream of new parameters from all others of a seed.
const INIT_STREAM: u64 = 0x1A72;

/// Configures a run that trains an encoder of images on pairs of views: `objective.kind = "contrastive-views"`.
pub type ContrastiveViewsRunConfig = Run<ContrastiveViewsRun>;

/// The sections of a [`ContrastiveViewsRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ContrastiveViewsRun {
    /// `[objective]`: how views are compared.
    pub objective: ContrastiveViewsSection,
    /// `[model]`: the network; the result is it alone.
    pub model: NewImageEncoder,
    /// `[data]`: images for training and evaluation. Classes are used in evaluations alone.
    pub data: ImageDataSection,
    /// `[augment]`: the random changes that make a view. Default none, which teaches nothing.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// `[train]`: epochs and batches; a batch of `N` images has `2N` views.
    pub train: ImageTrain,
    /// `[eval]`: when to evaluate, by which metric, and when to stop.
    #[serde(default)]
    pub eval: ImageEval,
}

/// `[objective]` of training on pairs of views.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ContrastiveViewsSection {
    /// Two views of an image are to be nearer to one another than to all other views of the batch (Chen et al. 2020).
    ContrastiveViews {
        /// The temperature τ. Default 0.5.
        #[serde(default = "half")]
        temperature: f64,
        /// Features of the projection, which is not kept. Default 128.
        #[serde(default = "projection")]
        d_projection: usize,
        /// Images whose graph is in memory at the same time: the same gradients in less memory, for one more forward pass.
        /// Default: all of a batch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chunk: Option<usize>,
        /// The number of parts of a batch that several processes may share: what `train.shards` sets. Default: one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shards: Option<usize>,
        /// Whether evaluations measure what the features know of the images' classes, which the data then have to have: the
        /// `accuracy` of a linear probe, and that of the nearest training images, `neighbours`. Otherwise nothing is
        /// measured. Default true.
        #[serde(default = "yes")]
        probe: bool,
    },
}

fn yes() -> bool {
    true
}

fn half() -> f64 {
    0.5
}

fn projection() -> usize {
    128
}

impl ContrastiveViewsRun {
    fn sections(&self) -> Sections<'_> {
        let Self { data, augment, train, eval, .. } = self;
        Sections { data, augment, train, eval }
    }
}

impl ContrastiveViewsSection {
    /// Its name in configs.
    pub(crate) const KIND: &'static str = "contrastive-views";
}

impl RunKind for ContrastiveViewsRun {
    const FREE_KEYS: &'static [&'static str] = FREE_KEYS;

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("objective") == Some(ContrastiveViewsSection::KIND)
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
        train_contrastive_views(run, options, progress).map_err(TrainerError::of_training_data)
    }
}

fn validate(config: &Run<ContrastiveViewsRun>) -> Check {
    let (ContrastiveViewsRun { objective, model, train, .. }, sections) =
        (&config.kind, config.kind.sections());
    let ContrastiveViewsSection::ContrastiveViews { temperature, d_projection, chunk, shards, .. } =
        objective;
    positive("objective.temperature", *temperature)?;
    at_least(1, "objective.d_projection", *d_projection)?;
    check_parts(("objective.chunk", *chunk), ("objective.shards", *shards))?;
    model.encoder(sections.size()?).validate().map_err(of_model)?;
    if let NewImageEncoder::Vit(vit) = model {
        let key = "model.distillation_piece";
        ensure(!vit.distillation_piece, key, true, "false: there is no teacher")?;
    }
    ensure(
        train.batch_size > 1,
        "train.batch_size",
        train.batch_size,
        "at least 2: an image is compared with others",
    )?;
    sections.check(config)
}

/// Trains a network on pairs of views as configured.
///
/// # Errors
/// Invalid data or run folder; a non-finite loss if the config says to stop on one.
pub fn train_contrastive_views(
    config: &ContrastiveViewsRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let ContrastiveViewsSection::ContrastiveViews { temperature, d_projection, chunk, shards, probe } =
        config.objective;
    let classes = ImageTaskSection::ImageClassification { labels: None, label_smoothing: 0.0 };
    let task = probe.then_some(&classes);
    let Some(opened) = Opened::open(config, config.kind.sections(), task, options, progress)? else {
        return Ok(Outcome::Stopped { step: 0 });
    };
    let Opened { folder, device, preprocessing, splits } = opened;
    let splits = splits.with_views(2);
    let (size, seed) = (config.data.size.unwrap_or_default(), config.common.run.seed);
    let shape = config.model.encoder(size);
    shape.validate()?;
    let new = |init: &mut ParamInit| SimClr::new(shape.init(init), d_projection, init);
    Size {
        parameters: [n_parameters(&new(&mut ParamInit::new(&device, 0).deferred())); 2],
        layers: Layers::of_any(&shape),
        maps: Maps::of_any(&shape),
        input: size,
        views: 2,
        chunk: parts(2 * config.train.batch_size, chunk, shards).iter().map(ExactSizeIterator::len).max(),
        checkpoint: None,
    }
    .check(&config.train, options, progress)?;
    let mut model = new(&mut ParamInit::new(&device, derive_seed(seed, &[INIT_STREAM])));
    model.encoder.set_recompute(config.train.recompute);
    let settings = settings(&config.common, &config.train, &config.eval, splits.train.examples().len());
    progress.note(&table::facts(
        "images",
        [
            ("train", grouped(splits.train.examples().len() as u64)),
            ("views a step", grouped((2 * config.train.batch_size * config.train.accumulate) as u64)),
            ("steps", grouped(settings.steps)),
            ("parameters", grouped(model.num_params() as u64)),
        ],
    ));
    let recipe = ContrastiveViews {
        key: splits.train.checksum()?,
        splits,
        train: &config.train,
        eval: &config.eval,
        shape,
        preprocessing,
        temperature,
        parts: (chunk, shards),
        seed,
    };
    train_in(&folder, &recipe, model, &settings, options, progress)
}

/// The parts of a batch of this many views, of so many images each, or so many.
fn parts(n: usize, chunk: Option<usize>, shards: Option<usize>) -> Vec<Range<usize>> {
    in_parts(n, chunk.map(|images| images.saturating_mul(2)), shards)
}

/// The training of a [`SimClr`]: the mean of [`nt_xent`] over all views.
#[derive(Debug)]
struct ContrastiveViews<'a> {
    splits: ImageSplits,
    /// Identifies the training images.
    key: String,
    train: &'a ImageTrain,
    eval: &'a ImageEval,
    shape: AnyImageEncoderConfig,
    preprocessing: Preprocessing,
    temperature: f64,
    /// The images of a part, or the number of parts.
    parts: (Option<usize>, Option<usize>),
    seed: u64,
}

impl Objective for ContrastiveViews<'_> {
    type Model = SimClr<AnyImageEncoder>;
    type Batch = ImageBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, batch: &ImageBatch) -> Vec<f64> {
        vec![batch.n_images() as f64]
    }

    fn sums(&self, model: &Self::Model, batch: &ImageBatch, device: &Device) -> Vec<Tensor<1>> {
        vec![nt_xent(model.forward(pixels(batch, device)), self.temperature).sum()]
    }

    fn by_rows(&self) -> Option<&dyn ByRows<Self::Model, ImageBatch>> {
        if self.parts == (None, None) { None } else { Some(self) }
    }
}

/// The rows are projections of views.
impl ByRows<SimClr<AnyImageEncoder>, ImageBatch> for ContrastiveViews<'_> {
    fn parts(&self, batch: &ImageBatch) -> Vec<Range<usize>> {
        parts(batch.n_images(), self.parts.0, self.parts.1)
    }

    fn rows(
        &self,
        model: &SimClr<AnyImageEncoder>,
        batch: &ImageBatch,
        views: Range<usize>,
        device: &Device,
    ) -> Tensor<2> {
        model.forward(pixels_of(batch, views, device))
    }

    fn sums(&self, _: &SimClr<AnyImageEncoder>, _: &ImageBatch, rows: Tensor<2>) -> Vec<Tensor<1>> {
        vec![nt_xent(rows, self.temperature).sum()]
    }
}

impl Recipe for ContrastiveViews<'_> {
    fn data(&self) -> String {
        self.key.clone()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<ImageBatch>>> + '_> {
        self.train.steps(&self.splits.train, from)
    }

    fn split(&self) -> Option<&str> {
        self.splits.dev.as_ref().filter(|_| !self.splits.labels.is_empty()).map(|_| "dev")
    }

    fn evaluate(
        &self,
        model: &Self::Model,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let dev = self.splits.dev.as_ref().expect("only what `split` names is measured");
        let data = [&*self.splits.train, dev];
        let (n_classes, batch_size) = (self.splits.labels.len(), self.eval.batch_size);
        let figures = probe(&model.encoder, data, n_classes, batch_size, self.seed, device, advanced)?;
        match &self.eval.metric {
            Some(name) => Ok(figures.with_main(name)?),
            None => Ok(figures),
        }
    }

    /// The network alone.
    fn save(&self, model: &Self::Model, folder: &Path) -> Result<()> {
        save_published(folder, &model.encoder, &self.shape, FloatType::F32)?;
        Ok(self.preprocessing.write(&folder.join(PREPROCESSOR))?)
    }

    fn load(&self, model: Self::Model, folder: &Path) -> Result<Self::Model> {
        let device = model.output.weight.lazy_device();
        let (encoder, _) = load_published_as(&self.shape, folder, &mut ParamInit::new(&device, 0))?;
        Ok(SimClr { encoder, ..model })
    }

    fn report(
        &self,
        exported: &Exported<'_, Self::Model>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let (Some(split), Some(figures)) = (self.split(), exported.figures) else { return Ok(Vec::new()) };
        let page = exported.page(split, figures, None)?;
        progress.note(&format!(
            "{split}, the model after step {}\n{figures}\n{}",
            exported.step,
            page.display()
        ));
        Ok(vec![SplitFigures { split: split.into(), figures: figures.clone(), seconds: 0.0, baseline: None }])
    }
}
