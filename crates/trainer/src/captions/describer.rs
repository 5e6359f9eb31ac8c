//! A trained captioner, to use.

use super::config::CaptionRunConfig;
use super::data::{CaptionData, CaptionTexts};
use super::measures::{CaptionsMeasured, Measures, decode_config};
use super::run::AnyCaptioner;
use super::vocabulary::CaptionVocabulary;
use super::written::{WrittenCaption, in_words, write};
use crate::engine::Advance;
use crate::finetune::Cost;
use crate::fit::check_vocabulary;
use crate::generate::of_search;
use crate::images::outputs::picture;
use crate::images::predictor::{WARM_UP, fitting_preprocessing};
use crate::images::{EvaluationSplit, ImageMeasurement, pixels};
use crate::memory::n_parameters;
use crate::translation::vocabulary::load;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::SkipReport;
use cloze_data::images::{Image, ImageData, ImageExample, ImageSource, Preprocessing};
use cloze_data::labelled::Target;
use cloze_evaluation::report::WithPictures;
use cloze_model::ParamInit;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::captions::CaptionerConfig;
use cloze_model::generate::{BeamSearch, DecodeConfig, Search};
use cloze_model::huggingface::{DecodeOptions, Format, load_published, model_type, read_decode_settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Overrides for the settings in a model folder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DescribeConfig {
    /// Decoding settings that override or remove those of the model folder. If neither sets beams, there are five; if neither
    /// sets a maximum length, it is the model's positions, or [`MAX_NEW`](Self::MAX_NEW).
    pub decoding: DecodeOptions,
    /// Number of captions of each image, the best first.
    pub n_best: usize,
    /// Whether the places that the model looked at are wanted.
    pub attention: bool,
    /// Whether linear layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
}

impl DescribeConfig {
    /// The maximum of new tokens of a model without positions.
    pub const MAX_NEW: usize = 64;
    /// The beams if nothing else is said.
    pub const BEAMS: usize = 5;
}

impl Default for DescribeConfig {
    fn default() -> Self {
        Self { decoding: DecodeOptions::default(), n_best: 1, attention: false, int8: false }
    }
}

/// Whether a folder has a model that describes images.
pub fn is_captioner(folder: &Path) -> bool {
    matches!(model_type(folder), Ok(Some(kind)) if CaptionerConfig::MODEL_TYPES.contains(&kind.as_str()))
}

/// What a model says of an image.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Described {
    /// The captions, the best first.
    pub captions: Vec<WrittenCaption>,
    /// Rows and columns of the places that it looks at.
    pub grid: [usize; 2],
    /// The image as the model sees it: resized and cropped.
    pub input: Option<Image>,
}

/// What a model says of images.
#[derive(Debug)]
#[non_exhaustive]
pub struct Descriptions {
    /// The images before the first that cannot be used.
    pub images: Vec<Described>,
    /// What is wrong with that one.
    pub refused: Option<TrainerError>,
}

/// A trained model that describes images, from one folder. Can be shared between threads.
#[derive(Debug)]
pub struct ImageDescriber {
    model: AnyCaptioner,
    vocabulary: CaptionVocabulary,
    preprocessing: Preprocessing,
    decode: DecodeConfig,
    max_new: usize,
    n_places: usize,
    folder: PathBuf,
    device: Device,
}

impl ImageDescriber {
    /// The model in a folder: of `cloze train`, or of transformers' `VisionEncoderDecoderModel` with a ViT and a GPT-2.
    /// `device` is without autodiff.
    ///
    /// # Errors
    /// Those of reading the folder; a `preprocessor_config.json` that contradicts the model; a tokenizer with more pieces than
    /// the model; [`TrainerError::Setting`] for an invalid `config`.
    pub fn open(folder: &Path, config: &DescribeConfig, device: &Device) -> Result<Self> {
        let (shape, mut model, report) =
            load_published::<CaptionerConfig>(folder, &mut ParamInit::new(device, 0))?;
        if let Some(missing) = report.missing.into_iter().next() {
            let reason = format!("it lacks `{missing}`");
            return Err(TrainerError::BadWeights { path: folder.into(), reason });
        }
        let tokenizer = load(folder)?;
        check_vocabulary(&tokenizer, folder, shape.decoder.vocab_size())?;
        match config.int8 {
            true => quantize_int8(&mut model),
            false => pack_weights(&mut model),
        }
        let preprocessing = fitting_preprocessing(folder, &shape.encoder)?;
        let mut tokens = shape.tokens.clone();
        let settings = read_decode_settings(folder, &config.decoding)?;
        if let Some(start) = settings.start_id {
            tokens.decoder_start = usize::try_from(start).unwrap_or_default();
        }
        let vocabulary = CaptionVocabulary { tokenizer: Arc::new(tokenizer), tokens };
        let search = settings.search(Search::Beam(BeamSearch::new(DescribeConfig::BEAMS)));
        let mut decode = settings.config(search);
        let usual = decode_config(&vocabulary, 1);
        if decode.stop_ids.is_empty() {
            decode.stop_ids = usual.stop_ids;
        }
        let never = usual.forbidden_ids.into_iter().filter(|id| !decode.stop_ids.contains(id));
        decode.forbidden_ids.extend(never.collect::<Vec<_>>());
        if decode.no_repeat_input_ngram > 0 || decode.input_repetition_penalty != 1.0 {
            return Err(TrainerError::Setting {
                key: "encoder_no_repeat_ngram_size, encoder_repetition_penalty".into(),
                found: "set".into(),
                expected: "neither: an image has no pieces that could be repeated".into(),
            });
        }
        decode.n_best = config.n_best;
        if let Search::Beam(beam) = &mut decode.search
            && config.decoding.settings.beams.is_none()
        {
            beam.beams = beam.beams.max(config.n_best);
        }
        decode.alignment = config.attention;
        decode.validate().map_err(of_search)?;
        // In transformers `max_length` counts the start token too.
        let max_new = settings.max_new.or(settings.max_length.map(|most| most.saturating_sub(1).max(1)));
        let max_new = max_new.unwrap_or(DescribeConfig::MAX_NEW);
        let (n_places, folder, device) = (shape.encoder.n_states(), folder.into(), device.clone());
        Ok(Self { model, vocabulary, preprocessing, decode, max_new, n_places, folder, device })
    }

    /// The model's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How images become inputs.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// Describes images, up to the first that cannot be used. They are computed together.
    ///
    /// # Errors
    /// Outputs that are not finite.
    pub fn describe(&self, images: Vec<ImageSource>) -> Result<Descriptions> {
        let examples = images.into_iter().map(|image| ImageExample { image, target: Target::None });
        let data = ImageData::new(examples.collect(), self.preprocessing.clone(), 0)?;
        let bad = data.first_bad();
        let n = bad.as_ref().map_or(data.examples().len(), |(example, _)| *example);
        let refused = bad.map(|(_, error)| error.into());
        if n == 0 {
            return Ok(Descriptions { images: Vec::new(), refused });
        }
        let batch = data.in_order(0..n)?;
        let fit = |image: usize| Ok(self.preprocessing.fit(&*data.decoded(image)?).ok());
        let inputs: Vec<Option<Image>> = (0..n).map(fit).collect::<Result<_>>()?;
        let start = self.vocabulary.tokens.decoder_start as i32;
        let pixels = pixels(&batch, &self.device);
        let written = write(&self.model, pixels, start, &self.decode, self.max_new, &self.device)?;
        let described = written.captions.iter().zip(inputs).map(|(captions, input)| {
            let captions = captions.iter().map(|caption| in_words(&self.vocabulary, caption));
            Ok(Described { captions: captions.collect::<Result<_>>()?, grid: written.grid, input })
        });
        Ok(Descriptions { images: described.collect::<Result<_>>()?, refused })
    }

    /// The model's figures on the development or test images of a config, as training measures them; none if the config names
    /// none. The config's model is ignored. `singly` images, evenly spread, are described by themselves as well, for their
    /// latency.
    ///
    /// # Errors
    /// Those of the data; a caption longer than `data.max_len`; a metric that there is not.
    pub fn evaluate(
        &self,
        config: &CaptionRunConfig,
        split: EvaluationSplit,
        singly: usize,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Option<ImageMeasurement>> {
        let (seed, max_len) = (config.common.run.seed, config.data.max_len);
        let mut skipped = SkipReport::default();
        let found =
            CaptionTexts::evaluation(&config.data, split, seed, &mut |report, _| skipped = report.clone())?;
        let Some(found) = found else { return Ok(None) };
        if found.is_empty() {
            return Err(TrainerError::NoExamples { split: "evaluation" });
        }
        let data = CaptionData::new(found, &self.vocabulary, &self.preprocessing, max_len, None)?;
        let n = data.images.examples().len();
        let measures = Measures { vocabulary: &self.vocabulary, eval: &config.eval, max_len, seed };
        let CaptionsMeasured { predictions, figures, seconds } =
            measures.of(&self.model, &data, &self.device, advanced)?;
        let cost = Cost {
            parameters: n_parameters(&self.model),
            examples: n,
            lengths: vec![self.n_places; n],
            seconds,
            latencies: self.latencies(&data.images, &measures, singly)?,
            flops: None,
        };
        let images = Arc::clone(&data.images);
        let predictions = WithPictures::new(predictions, move |image| picture(&images, image));
        Ok(Some(ImageMeasurement { predictions: Box::new(predictions), figures, skipped, cost }))
    }

    /// The seconds that each of `n` images, evenly spread, takes by itself.
    fn latencies(&self, images: &ImageData, measures: &Measures<'_>, n: usize) -> Result<Vec<f64>> {
        let (all, config) = (images.examples().len(), decode_config(&self.vocabulary, measures.eval.beams));
        let start = self.vocabulary.tokens.decoder_start as i32;
        let n = n.min(all);
        let one = |place: usize| {
            let batch = images.in_order(place..place + 1)?;
            let begun = Instant::now();
            let pixels = pixels(&batch, &self.device);
            write(&self.model, pixels, start, &config, measures.max_len - 1, &self.device)?;
            Ok(begun.elapsed().as_secs_f64())
        };
        for place in 0..n.min(WARM_UP) {
            one(place)?;
        }
        (0..n).map(|i| one(i * all / n)).collect()
    }
}
