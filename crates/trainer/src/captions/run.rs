//! A run on images with captions from the config to the saved model.

use super::config::{CaptionModelSection, CaptionRunConfig, NewCaptioner};
use super::data::{CaptionSplits, CaptionTexts};
use super::recipe::CaptionRecipe;
use super::vocabulary::{CaptionVocabulary, run_vocabulary};
use crate::engine::run_folder::RunFolder;
use crate::engine::{ModelFormat, Outcome, RunOptions, train_in};
use crate::images::ImageModelSection;
use crate::images::start::{PREPROCESSOR, read_preprocessing, settings};
use crate::metrics::progress::RunProgress;
use crate::{Result, TrainerError, recompute};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::derive_seed;
use cloze_data::images::Preprocessing;
use cloze_evaluation::table::{self, grouped};
use cloze_model::captions::{
    AnyCaptionDecoder, AnyCaptionDecoderConfig, Captioner, CaptionerConfig, Looking,
};
use cloze_model::huggingface::{FloatType, load_published_as, read_published, save_published};
use cloze_model::vision::{AnyImageEncoder, AnyImageEncoderConfig};
use cloze_model::{ParamInit, freeze};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Separates the random stream of new parameters from all others of a seed.
const INIT_STREAM: u64 = 0x1A82;

/// The captioners that `cloze train` makes.
pub(super) type AnyCaptioner = Captioner<AnyImageEncoder, AnyCaptionDecoder>;

/// Trains a model to describe images as configured: vocabulary, data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Invalid data, checkpoint, tokenizer or run folder; a non-finite loss if the config says to stop on one.
pub fn train_captions(
    config: &CaptionRunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    let folder = RunFolder::open(&options.folder, config, options.resume)?;
    let device = options.device.clone().autodiff();
    recompute::check(config.train.recompute, &device)?;
    let seed = config.common.run.seed;
    let checkpoint = match &config.model {
        CaptionModelSection::Pretrained(section) => Some(&section.path),
        CaptionModelSection::Captioner(new) => new.encoder.as_pretrained().map(|section| &section.path),
    };
    let own = checkpoint.map(|path| read_preprocessing(path)).transpose()?.flatten();
    let preprocessing = config.data.images().preprocessing(own);
    let texts = CaptionTexts::find(&config.data, seed, progress)?;
    let vocabulary = run_vocabulary(config, &texts, &folder, options.resume, progress)?;
    let splits = texts.prepare(&vocabulary, &preprocessing, &config.augment, config.data.max_len, seed)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    let size = preprocessing.input_size().map(|(height, width)| [height, width]).unwrap_or_default();
    let mut init = ParamInit::new(&device, derive_seed(seed, &[INIT_STREAM]));
    let (shape, mut model) = initial_model(config, &vocabulary, size, &mut init)?;
    model.encoder.set_recompute(config.train.recompute);
    let settings =
        settings(&config.common, &config.train, &config.eval.images(), splits.train.images.examples().len());
    introduce(&splits, &vocabulary, &shape, &model, settings.steps, progress);
    let is_soft = matches!(&shape.decoder, AnyCaptionDecoderConfig::Recurrent(decoder) if decoder.looking == Looking::Soft);
    let format = CaptionerFormat { config: shape, preprocessing, vocabulary: vocabulary.clone() };
    let recipe = CaptionRecipe::new(config, splits, vocabulary, &model.decoder, is_soft)?
        .with_format(Box::new(format));
    train_in(&folder, &recipe, model, &settings, options, progress)
}

/// The configured model.
fn initial_model(
    config: &CaptionRunConfig,
    vocabulary: &CaptionVocabulary,
    size: [usize; 2],
    init: &mut ParamInit,
) -> Result<(CaptionerConfig, AnyCaptioner)> {
    let NewCaptioner { encoder, decoder } = match &config.model {
        CaptionModelSection::Pretrained(section) => {
            let mut shape: CaptionerConfig = read_published(&section.path)?;
            let (model, _) = load_published_as(&shape, &section.path, init)?;
            shape.encoder = shape.encoder.with_image_size(size);
            let model = Captioner { encoder: model.encoder.with_image_size(size), ..model };
            shape.validate()?;
            return Ok((shape, frozen(model, &section.freeze)?));
        }
        CaptionModelSection::Captioner(new) => new,
    };
    let (of_encoder, loaded, frozen_paths): (AnyImageEncoderConfig, Option<AnyImageEncoder>, &[String]) =
        match encoder {
            ImageModelSection::Vit(section) => (section.vit(size).into(), None, &[]),
            ImageModelSection::Resnet(section) => (section.resnet(size).into(), None, &[]),
            ImageModelSection::Pretrained(section) => {
                let shape = section.encoder_config()?;
                let encoder = section.encoder(&shape, init)?;
                (shape.with_image_size(size), Some(encoder.with_image_size(size)), &section.freeze)
            }
        };
    let tokens = vocabulary.tokens.clone();
    let of_decoder =
        decoder.config(vocabulary.tokenizer.vocab_size(), &tokens, of_encoder.d_model(), config.data.max_len);
    let shape = CaptionerConfig::new(of_encoder, of_decoder, tokens);
    shape.validate()?;
    let mut model = shape.init(init);
    if let Some(encoder) = loaded {
        model.encoder = encoder;
    }
    Ok((shape, frozen(model, frozen_paths)?))
}

fn frozen(model: AnyCaptioner, patterns: &[String]) -> Result<AnyCaptioner> {
    match patterns.is_empty() {
        true => Ok(model),
        false => Ok(freeze(model, patterns)?),
    }
}

/// Prints the data and the model before the first step.
fn introduce(
    splits: &CaptionSplits,
    vocabulary: &CaptionVocabulary,
    shape: &CaptionerConfig,
    model: &AnyCaptioner,
    steps: u64,
    progress: &mut dyn RunProgress,
) {
    let of = |data: Option<&super::data::CaptionData>| {
        data.map_or(String::new(), |data| {
            let captions: usize = data.texts.iter().map(Vec::len).sum();
            let images = grouped(data.images.examples().len() as u64);
            format!("{images} images, {} captions", grouped(captions as u64))
        })
    };
    let decoder = match &shape.decoder {
        AnyCaptionDecoderConfig::Recurrent(config) => match config.looking {
            Looking::Soft => "LSTM with soft attention".to_owned(),
            Looking::Hard => "LSTM with hard attention".to_owned(),
            _ => "LSTM without attention".to_owned(),
        },
        AnyCaptionDecoderConfig::Transformer(config) => {
            format!("Transformer of {} layers", config.gpt.n_layers)
        }
        _ => String::new(),
    };
    progress.note(&table::facts(
        "captions",
        [
            ("train", of(Some(&splits.train))),
            ("dev", of(splits.dev.as_ref())),
            ("test", of(splits.test.as_ref())),
            ("vocabulary", grouped(vocabulary.tokenizer.vocab_size() as u64)),
            ("decoder", decoder),
            ("steps", grouped(steps)),
            ("parameters", grouped(model.num_params() as u64)),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty()),
    ));
}

/// A captioner, in transformers' format where it has a class, with its tokenizer.
struct CaptionerFormat {
    config: CaptionerConfig,
    preprocessing: Preprocessing,
    vocabulary: CaptionVocabulary,
}

impl ModelFormat<AnyCaptioner> for CaptionerFormat {
    fn save(&self, model: &AnyCaptioner, folder: &Path) -> Result<()> {
        save_published(folder, model, &self.config, FloatType::F32)?;
        self.vocabulary.tokenizer.save(folder)?;
        Ok(self.preprocessing.write(&folder.join(PREPROCESSOR))?)
    }

    fn load(&self, model: AnyCaptioner, folder: &Path) -> Result<AnyCaptioner> {
        let device: Device = model.devices().into_iter().next().ok_or_else(|| TrainerError::BadWeights {
            path: folder.into(),
            reason: "the model has no parameters".into(),
        })?;
        let (loaded, _) = load_published_as(&self.config, folder, &mut ParamInit::new(&device, 0))?;
        Ok(loaded)
    }
}
