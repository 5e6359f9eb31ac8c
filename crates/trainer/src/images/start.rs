//! A run on images from the config to the saved model.

use super::classification::ImageClassification;
use super::config::{ImageEval, ImageModelSection, ImageRunConfig, ImageTrain, PretrainedImageModel};
use super::data::{ImageSplits, Reading, bad_setting};
use super::memory::{Layers, Maps, Size};
use super::teacher::ImageTeacher;
use crate::classes::Classes;
use crate::config::Common;
use crate::engine::run_folder::RunFolder;
use crate::engine::{
    Cadence, CheckpointSection, Epochs, Export, LogSection, ModelFormat, Outcome, RunOptions, RunSettings,
    train_in,
};
use crate::layer_decay::layer_decay;
use crate::memory::n_parameters;
use crate::metrics::progress::{RunProgress, SpeedUnit};
use crate::{Result, recompute};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::derive_seed;
use cloze_data::images::{ImageData, Preprocessing};
use cloze_data::labelled::Target;
use cloze_evaluation::table::{self, grouped};
use cloze_model::blocks::merge_lora;
use cloze_model::huggingface::{FloatType, load_published_as, read_published, save_published};
use cloze_model::vision::{
    AnyImageClassifierConfig, AnyImageEncoder, AnyImageEncoderConfig, ImageClassifier, ImagePooling,
    PatchPositions,
};
use cloze_model::{Backbone, HasBackbone, ParamInit, first_layers, freeze};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Separates the random stream of new parameters from all others of a seed.
const INIT_STREAM: u64 = 0x1A6D;

/// The file that says how images become inputs.
pub(crate) const PREPROCESSOR: &str = "preprocessor_config.json";

/// Trains a classifier of images as configured: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Invalid data, checkpoint or run folder; a non-finite loss if the config says to stop on one.
pub fn train_images(
    config: &ImageRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let device = options.device.clone().autodiff();
    recompute::check(config.train.recompute, &device)?;
    let own = match config.model.as_pretrained() {
        Some(section) => read_preprocessing(&section.path)?,
        None => None,
    };
    let preprocessing = config.data.preprocessing(own);
    let reading = Reading {
        task: Some(&config.task),
        data: &config.data,
        augment: &config.augment,
        mix: &config.mix,
        seed: config.common.run.seed,
    };
    let found = reading.find(progress)?;
    let labels = found.labels.clone();
    let splits = reading.prepare(found, &preprocessing)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    let size = preprocessing.input_size().map(|(height, width)| [height, width]).unwrap_or_default();
    let mut init = ParamInit::new(&device, derive_seed(config.common.run.seed, &[INIT_STREAM]));
    check_memory(config, &labels, size, options, progress)?;
    let (shape, mut model, new) = initial_model(config, &labels, size, &mut init)?;
    model.encoder.set_recompute(config.train.recompute);

    let mut settings = settings(&config.common, &config.train, &config.eval, splits.train.examples().len());
    if let Some(decay) = config.model.as_pretrained().and_then(|section| section.layer_decay) {
        settings.optimizer.groups.extend(layer_decay(&model, decay));
    }
    introduce(config, &splits, &shape, &model, settings.steps, &new, progress);
    let format = PublishedFormat { config: shape, preprocessing: preprocessing.clone() };
    let mut recipe = ImageClassification::new(splits, &config.train, &config.eval)?
        .with_format(Box::new(format))
        .with_label_smoothing(config.task.label_smoothing());
    if let Some(section) = &config.distillation {
        let teacher = ImageTeacher::open(&section.teacher, &labels, &preprocessing, &options.device)?;
        recipe = recipe.with_teacher(teacher, section.weight);
    }
    train_in(&folder, &recipe, model, &settings, options, progress)
}

/// The preprocessing that a folder has, if it has one.
///
/// # Errors
/// An unreadable file, or one that this crate does not support.
pub(crate) fn read_preprocessing(folder: &Path) -> Result<Option<Preprocessing>> {
    let path = folder.join(PREPROCESSOR);
    match path.exists() {
        true => Ok(Some(Preprocessing::read(&path)?)),
        false => Ok(None),
    }
}

/// Prints the run's memory estimate, and rejects a run that certainly needs more than there is. Of a partly frozen model,
/// only the parameters are counted.
fn check_memory(
    config: &ImageRunConfig,
    labels: &[String],
    size: [usize; 2],
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<()> {
    let (encoder, checkpoint): (AnyImageEncoderConfig, _) = match &config.model {
        ImageModelSection::Vit(section) => (section.vit(size).into(), None),
        ImageModelSection::Resnet(section) => (section.resnet(size).into(), None),
        ImageModelSection::Pretrained(section) => {
            (section.encoder_config()?.with_image_size(size), Some(section))
        }
    };
    encoder.validate()?;
    let is_frozen = checkpoint.is_some_and(|section| {
        !section.freeze.is_empty() || section.freeze_layers.is_some() || section.lora.is_some()
    });
    let device = options.device.clone().autodiff();
    let shape = AnyImageClassifierConfig::new(encoder.clone(), labels.to_vec());
    let model = shape.init(&mut ParamInit::new(&device, 0).deferred());
    let parameters = n_parameters(&model);
    Size {
        parameters: [parameters, if is_frozen { 0 } else { parameters }],
        layers: Layers::of_any(&encoder),
        maps: Maps::of_any(&encoder),
        input: size,
        views: 1,
        chunk: None,
        checkpoint: checkpoint.map(|section| &*section.path),
    }
    .check(&config.train, options, progress)
}

/// The configured model, and what is new in it.
fn initial_model(
    config: &ImageRunConfig,
    labels: &[String],
    size: [usize; 2],
    init: &mut ParamInit,
) -> Result<(AnyImageClassifierConfig, ImageClassifier<AnyImageEncoder>, String)> {
    let new = |encoder: AnyImageEncoderConfig, init: &mut ParamInit| {
        let shape = AnyImageClassifierConfig::new(encoder, labels.to_vec());
        let model = shape.init(init);
        Ok((shape, model, "all".into()))
    };
    let section = match &config.model {
        ImageModelSection::Pretrained(section) => section,
        ImageModelSection::Vit(section) => return new(section.vit(size).into(), init),
        ImageModelSection::Resnet(section) => return new(section.resnet(size).into(), init),
    };
    let encoder = section.encoder_config()?;
    let mut shape = AnyImageClassifierConfig::new(encoder.clone(), labels.to_vec());
    match &mut shape {
        AnyImageClassifierConfig::Vit(shape) => {
            shape.distillation_head = shape.vit.distillation_piece && config.distillation.is_some();
        }
        _ if config.distillation.is_some() => {
            let expected = "a checkpoint with a piece that learns from the teacher, a DeiT's";
            return Err(bad_setting("model.path", section.path.display(), expected.into()));
        }
        _ => (),
    }
    // A head of the same classes is the checkpoint's.
    let same_head = read_published::<AnyImageClassifierConfig>(&section.path).is_ok_and(|saved| {
        saved.labels() == labels && saved.has_distillation_head() == shape.has_distillation_head()
    });
    let (model, new) = match same_head {
        true => (load_published_as(&shape, &section.path, init)?.0, String::new()),
        false => {
            let encoder = section.encoder(&encoder, init)?;
            let mut model = shape.init(init);
            model.encoder = encoder;
            (model, "head".into())
        }
    };
    let model = ImageClassifier { encoder: model.encoder.with_image_size(size), ..model };
    let shape = shape.with_image_size(size);
    shape.validate()?;
    let model = prepare(section, model, init)?;
    Ok((shape, model, new))
}

/// Changes a checkpoint's configuration as the section says.
///
/// # Errors
/// A setting that the network has no use for.
pub(super) fn follow(section: &PretrainedImageModel, encoder: &mut AnyImageEncoderConfig) -> Result<()> {
    match encoder {
        AnyImageEncoderConfig::Vit(vit) => {
            vit.pooling = section.pooling.unwrap_or_default();
            vit.hidden_dropout = section.hidden_dropout.unwrap_or(vit.hidden_dropout);
            vit.attention_dropout = section.attention_dropout.unwrap_or(vit.attention_dropout);
            vit.stochastic_depth = section.stochastic_depth;
            if vit.positions == PatchPositions::Sinusoidal {
                // As in transformers, a checkpoint's are learned further; MAE's own fine-tuning does so too.
                vit.positions = PatchPositions::Learned;
            }
        }
        _ => {
            if section.pooling == Some(ImagePooling::Class) {
                let expected = "\"mean\": a residual network has no class piece";
                return Err(bad_setting("model.pooling", "class", expected.into()));
            }
            for (key, p) in [
                ("model.hidden_dropout", section.hidden_dropout),
                ("model.attention_dropout", section.attention_dropout),
                ("model.stochastic_depth", Some(section.stochastic_depth)),
            ] {
                if let Some(p) = p.filter(|p| *p > 0.0) {
                    return Err(bad_setting(key, p, "0: a residual network has none".into()));
                }
            }
        }
    }
    Ok(())
}

/// Attaches adapters and freezes parts, as configured.
fn prepare(
    section: &PretrainedImageModel,
    mut model: ImageClassifier<AnyImageEncoder>,
    init: &mut ParamInit,
) -> Result<ImageClassifier<AnyImageEncoder>> {
    if let Some(adapters) = &section.lora {
        model.encoder = adapters.attach(model.encoder, init)?;
    }
    let mut frozen = section.freeze.clone();
    if let Some(n_layers) = section.freeze_layers {
        let most = model.backbone().layer_paths().len();
        if n_layers > most {
            let expected = format!("at most {most}, the checkpoint's layers");
            return Err(bad_setting("model.freeze_layers", n_layers, expected));
        }
        frozen.extend(first_layers(&model, n_layers));
    }
    match frozen.is_empty() {
        true => Ok(model),
        false => Ok(freeze(model, &frozen)?),
    }
}

/// The engine's settings of a run on so many images. The result is the best model on the development images, which is kept
/// as exported.
pub(crate) fn settings(
    common: &Common,
    train: &ImageTrain,
    eval: &ImageEval,
    n_images: usize,
) -> RunSettings {
    let (n, per_step) = (n_images as u64, (train.batch_size * train.accumulate) as u64);
    // Batches go on from one epoch to the next.
    let end = |epoch: u64| (epoch * n).div_ceil(per_step);
    let epochs = Epochs::Ends((1..=train.epochs).map(end).collect());
    let steps = end(train.epochs);
    let mut settings = RunSettings::new(&common.run.name, steps, common.optimizer.lr);
    settings.unit = SpeedUnit::Images;
    settings.seed = common.run.seed;
    settings.non_finite = train.non_finite;
    settings.precision = train.precision;
    settings.evaluate_untrained = false;
    settings.evaluate = Cadence::OfEpoch { epochs, parts: eval.per_epoch };
    settings.patience = eval.patience;
    settings.export = Export::Best;
    settings.optimizer = common.optimizer.clone();
    settings.schedule = common.schedule.clone();
    settings.average = common.average.clone();
    settings.checkpoint = CheckpointSection { keep_best: false, ..common.checkpoint.clone() };
    settings.ranks = common.ranks.clone();
    settings.log = LogSection { every: common.log.every.min(steps.div_ceil(20)).max(1) };
    settings
}

/// Prints the data and the model before the first step.
fn introduce(
    config: &ImageRunConfig,
    splits: &ImageSplits,
    shape: &AnyImageClassifierConfig,
    model: &ImageClassifier<AnyImageEncoder>,
    steps: u64,
    new: &str,
    progress: &mut dyn RunProgress,
) {
    let n =
        |data: Option<&ImageData>| data.map_or(String::new(), |data| grouped(data.examples().len() as u64));
    let ([height, width], sizes) = (shape.image_size(), model.backbone().shape());
    let (grid, places) = match shape.encoder() {
        AnyImageEncoderConfig::Vit(vit) => (vit.grid(), "patches"),
        AnyImageEncoderConfig::ResNet(resnet) => (resnet.grid(), "places at the end"),
        _ => ([0; 2], "places"),
    };
    let [rows, columns] = grid;
    let checkpoint = config.model.as_pretrained().map(|section| section.path.display().to_string());
    progress.note(&table::facts(
        "images",
        [
            ("train", n(Some(&splits.train))),
            ("dev", n(splits.dev.as_ref())),
            ("test", n(splits.test.as_ref())),
            ("classes", grouped(shape.labels().len() as u64)),
            ("input", format!("{height} × {width}, {rows} × {columns} {places}")),
            ("steps", grouped(steps)),
            ("layers", sizes.n_layers.to_string()),
            ("width", sizes.d_model.to_string()),
            ("parameters", grouped(model.num_params() as u64)),
            ("checkpoint", checkpoint.unwrap_or_default()),
            ("new", new.to_owned()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
    let of = [("train", Some(&*splits.train)), ("dev", splits.dev.as_ref()), ("test", splits.test.as_ref())];
    let counts =
        of.into_iter().filter_map(|(split, data)| Some((split, class_counts(data?, &splits.labels))));
    if let Some(classes) = Classes::new(counts.collect()) {
        classes.tell(config.data.shots, progress);
    }
}

/// How many images each class has.
pub(super) fn class_counts(data: &ImageData, labels: &[String]) -> Vec<(String, u64)> {
    let mut counts = vec![0; labels.len()];
    for example in data.examples() {
        if let Target::Class(class) = example.target {
            counts[class] += 1;
        }
    }
    labels.iter().cloned().zip(counts).collect()
}

/// A classifier in a folder: in transformers' format, or where it has none in ours.
struct PublishedFormat {
    config: AnyImageClassifierConfig,
    preprocessing: Preprocessing,
}

impl ModelFormat<ImageClassifier<AnyImageEncoder>> for PublishedFormat {
    fn save(&self, model: &ImageClassifier<AnyImageEncoder>, folder: &Path) -> Result<()> {
        save_published(folder, &merge_lora(model.clone()), &self.config, FloatType::F32)?;
        Ok(self.preprocessing.write(&folder.join(PREPROCESSOR))?)
    }

    fn load(
        &self,
        model: ImageClassifier<AnyImageEncoder>,
        folder: &Path,
    ) -> Result<ImageClassifier<AnyImageEncoder>> {
        let device: Device = model.head.weight.lazy_device();
        let (loaded, _) = load_published_as(&self.config, folder, &mut ParamInit::new(&device, 0))?;
        Ok(loaded)
    }
}
