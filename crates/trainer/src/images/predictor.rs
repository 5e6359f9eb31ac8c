//! Answers of a saved classifier of images.

use super::config::ImageRunConfig;
use super::data::{held_out, pixels};
use super::outputs::{ImageOutput, outputs, picture, predictions, timed_outputs};
use super::start::{PREPROCESSOR, read_preprocessing};
use crate::engine::Advance;
use crate::finetune::{Cost, InputKey, LineFields, Predicted, figures};
use crate::memory::n_parameters;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::SkipReport;
use cloze_data::images::{
    DecodeLimits, ImageBatch, ImageData, ImageExample, ImageSource, Preprocessing, labelled_images,
    without_bad_images,
};
use cloze_data::labelled::{LabelSet, Labels, Loaded, Target};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{Predictions, WithPictures};
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::{Format, load_published, model_type};
use cloze_model::vision::{
    AnyImageClassifierConfig, AnyImageEncoder, AnyImageEncoderConfig, ImageClassifier, ImageEncoder,
};
use cloze_model::{HasBackbone, ParamInit};
use cloze_ops::on_awake_cores;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Images that warm the caches before latencies are taken.
pub(crate) const WARM_UP: usize = 5;

/// Images that are answered at a time.
const BATCH: usize = 64;

/// Whether a folder has a model of images.
pub fn is_image_model(folder: &Path) -> bool {
    matches!(model_type(folder), Ok(Some(kind)) if AnyImageEncoderConfig::MODEL_TYPES.contains(&kind.as_str()))
}

/// Whether the model of images in a folder is a classifier, as its configuration says.
///
/// # Errors
/// A configuration that cannot be read.
pub fn has_classes(folder: &Path) -> Result<bool> {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let mut classes = config["architectures"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(classes.any(|class| class.contains("ForImageClassification")))
}

/// How images become inputs of the model in a folder: as its file says, or in the usual way.
///
/// # Errors
/// An unreadable file, or one that contradicts the model.
pub(crate) fn fitting_preprocessing(folder: &Path, encoder: &AnyImageEncoderConfig) -> Result<Preprocessing> {
    let [height, width] = encoder.image_size();
    let preprocessing = read_preprocessing(folder)?.unwrap_or_else(|| Preprocessing::to_size(height, width));
    let unfit = |reason: String| {
        let path = folder.join(PREPROCESSOR);
        Err(TrainerError::UnfitPreprocessing { path, reason })
    };
    match preprocessing.input_size() {
        None => unfit(format!("images keep their ratio, but the model takes {height} × {width} pixels")),
        Some(found) if found != (height, width) => unfit(format!(
            "inputs have {} × {} pixels, but the model takes {height} × {width}",
            found.0, found.1
        )),
        Some(_) if encoder.n_channels() != 3 => unfit(format!(
            "inputs have 3 numbers for each pixel, but the model takes {}",
            encoder.n_channels()
        )),
        Some(_) => Ok(preprocessing),
    }
}

/// The expected form of an input line, for error messages.
const INPUT: &str = r#"{"image": "path"}, {"image": "data:image/png;base64,…"} or "path""#;

/// The image of an input line. Relative paths begin at the current directory.
///
/// # Errors
/// What is wrong with the line.
pub(super) fn source_of_line(line: &str) -> Result<ImageSource> {
    let bad = |found: String| TrainerError::BadInput { problem: format!("{found}; expected {INPUT}") };
    let value = serde_json::from_str(line).map_err(|error| bad(format!("not JSON ({error})")))?;
    let text = match value {
        Value::String(text) => text,
        other => {
            let mut fields = LineFields::of(other).map_err(bad)?;
            let text = fields.text("image").map_err(bad)?;
            fields.end().map_err(bad)?;
            text.ok_or_else(|| bad("`image` is missing".into()))?
        }
    };
    ImageSource::of_text(text.trim(), Path::new(""), "the line's image").map_err(bad)
}

/// A saved classifier of images. Can be shared between threads.
#[derive(Debug)]
pub struct ImagePredictor {
    model: ImageClassifier<AnyImageEncoder>,
    config: AnyImageClassifierConfig,
    preprocessing: Preprocessing,
    folder: PathBuf,
    device: Device,
}

impl ImagePredictor {
    /// The classifier in a folder: its model, and how images become its inputs. With `int8` the encoder's layers multiply
    /// in 8 bits. `device` is without autodiff.
    ///
    /// # Errors
    /// Those of reading the folder; a `preprocessor_config.json` that contradicts the model.
    pub fn open(folder: &Path, device: &Device, int8: bool) -> Result<Self> {
        let (config, mut model, report) =
            load_published::<AnyImageClassifierConfig>(folder, &mut ParamInit::new(device, 0))?;
        if let Some(missing) = report.missing.into_iter().next() {
            return Err(TrainerError::NoTaskHead { folder: folder.into(), missing });
        }
        match int8 {
            true => quantize_int8(model.backbone_mut()),
            false => pack_weights(model.backbone_mut()),
        }
        let preprocessing = fitting_preprocessing(folder, &config.encoder())?;
        Ok(Self { model, config, preprocessing, folder: folder.into(), device: device.clone() })
    }

    /// The model's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The configuration of the model.
    pub fn config(&self) -> &AnyImageClassifierConfig {
        &self.config
    }

    /// Where it computes.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The names of the classes.
    pub fn labels(&self) -> &[String] {
        self.config.labels()
    }

    /// How images become inputs.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// The logits of images, `[batch, classes]`, from `[batch, 3, height, width]`.
    pub(super) fn logits(&self, pixels: Tensor<4>) -> Tensor<2> {
        self.model.forward(pixels)
    }

    /// A vector for each image: what the head sees. `[batch, d_model]`
    pub fn summaries(&self, batch: &ImageBatch) -> Tensor<2> {
        self.model.encoder.summaries(pixels(batch, &self.device)).class
    }

    /// The keys read from an input line.
    pub fn input_keys(&self) -> &'static [InputKey] {
        const KEYS: [InputKey; 1] = [InputKey::text("image")];
        &KEYS
    }

    /// The expected form of an input line, for error messages.
    pub fn input(&self) -> &'static str {
        INPUT
    }

    /// The keys of an answer.
    pub fn answer_keys(&self) -> Vec<&'static str> {
        vec!["label", "score", "scores"]
    }

    /// The answers to input lines, up to the first invalid line, as a classifier of texts gives them. Relative paths begin
    /// at the current directory.
    ///
    /// # Errors
    /// Inputs of different sizes.
    pub fn predict_lines(&self, lines: &[&str], advanced: &mut dyn FnMut(Advance)) -> Result<Predicted> {
        let (mut places, mut examples, mut refused) = (Vec::new(), Vec::new(), None);
        for (place, line) in lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match source_of_line(line) {
                Ok(image) => {
                    places.push(place);
                    examples.push(ImageExample { image, target: Target::None });
                }
                Err(error) => {
                    refused = Some((place, error));
                    break;
                }
            }
        }
        let data = ImageData::new(examples, self.preprocessing.clone(), 0)?;
        let bad = data.first_bad();
        let n = bad.as_ref().map_or(places.len(), |(example, _)| *example);
        let refused = bad.map(|(example, error)| (places[example], error.into())).or(refused);
        let mut values = vec![Value::Null; refused.as_ref().map_or(lines.len(), |(place, _)| *place)];
        let outputs = self.outputs(&data, n, BATCH, advanced)?;
        for (place, output) in places.into_iter().zip(outputs) {
            values[place] = self.answer(&output);
        }
        Ok(Predicted { values, truncated: 0, refused: refused.map(|(_, error)| error) })
    }

    fn answer(&self, output: &ImageOutput) -> Value {
        let number = |p: f64| (p as f32).to_string().parse::<f64>().map_or(Value::Null, Value::from);
        let scores = self.labels().iter().zip(&output.probabilities);
        let scores: Map<String, Value> = scores.map(|(label, p)| (label.clone(), number(*p))).collect();
        json!({
            "label": self.labels()[output.class],
            "score": number(output.probabilities[output.class]),
            "scores": scores,
        })
    }

    /// The outputs for images, in order, in batches of this size.
    ///
    /// # Errors
    /// Those of decoding.
    pub fn predict(
        &self,
        examples: Vec<ImageExample>,
        batch_size: usize,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Vec<ImageOutput>> {
        let data = ImageData::new(examples, self.preprocessing.clone(), 0)?;
        self.outputs(&data, data.examples().len(), batch_size, advanced)
    }

    /// The seconds that each of `n` images, evenly spread, takes by itself.
    fn latencies(&self, data: &ImageData, n: usize) -> Result<Vec<f64>> {
        let all = data.examples().len();
        let n = n.min(all);
        let one = |place: usize| {
            let batch = data.in_order(place..place + 1)?;
            let begun = Instant::now();
            on_awake_cores(&self.device, || self.logits(pixels(&batch, &self.device)).into_data());
            Ok(begun.elapsed().as_secs_f64())
        };
        for place in 0..n.min(WARM_UP) {
            one(place)?;
        }
        (0..n).map(|i| one(i * all / n)).collect()
    }

    /// The outputs for the first `n` images.
    fn outputs(
        &self,
        data: &ImageData,
        n: usize,
        batch_size: usize,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Vec<ImageOutput>> {
        let logits = |batch: &ImageBatch, device: &Device| self.logits(pixels(batch, device));
        outputs(&logits, data, n, batch_size, &self.device, advanced)
    }

    /// The model's figures on the development or test images of a config, which are found as training finds them; none if
    /// the config names none. The config's model is ignored.
    ///
    /// # Errors
    /// Those of the data; a class that the model lacks; a metric that there is not.
    pub fn evaluate(
        &self,
        config: &ImageRunConfig,
        split: EvaluationSplit,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Option<ImageMeasurement>> {
        self.evaluate_singly(config, split, 0, advanced)
    }

    /// [`evaluate`](Self::evaluate), and so many images, evenly spread, by themselves, for their latency.
    ///
    /// # Errors
    /// The same.
    pub fn evaluate_singly(
        &self,
        config: &ImageRunConfig,
        split: EvaluationSplit,
        singly: usize,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Option<ImageMeasurement>> {
        let (data, eval) = (&config.data, &config.eval);
        let (files, share) = match split {
            EvaluationSplit::Dev if data.dev_fraction.is_some() => (&data.train.files, data.dev_fraction),
            EvaluationSplit::Dev => (&data.dev, None),
            EvaluationSplit::Test => (&data.test, None),
        };
        if files.is_empty() {
            return Ok(None);
        }
        let labels = LabelSet::given(self.labels().to_vec())?;
        let source = data.train.with_files(files.clone());
        let (loaded, _) = labelled_images(&source, Path::new(""), Labels::Of(&labels))?;
        let Loaded { mut examples, skipped, .. } =
            without_bad_images(loaded, &DecodeLimits::default(), data.on_bad_image)?;
        if let Some(share) = share {
            examples = held_out(examples, share, config.common.run.seed).0;
        }
        if examples.is_empty() {
            return Err(TrainerError::NoExamples { split: "evaluation" });
        }
        let images = ImageData::new(examples, self.preprocessing.clone(), 0)?;
        let n = images.examples().len();
        let logits = |batch: &ImageBatch, device: &Device| self.logits(pixels(batch, device));
        let (outputs, seconds) =
            timed_outputs(&logits, &images, 0..n, eval.batch_size, &self.device, advanced)?;
        let encoder = self.config.encoder();
        let cost = Cost {
            parameters: n_parameters(&self.model),
            examples: n,
            lengths: vec![encoder.n_states(); n],
            seconds,
            latencies: self.latencies(&images, singly)?,
            flops: Some(n as f64 * encoder.flops()),
        };
        let predictions = predictions(self.labels(), &images, &outputs);
        let figures = figures(&predictions, eval.metric.as_deref())?;
        let predictions = WithPictures::new(predictions, move |example| picture(&images, example));
        Ok(Some(ImageMeasurement { predictions: Box::new(predictions), figures, skipped, cost }))
    }
}

/// The images that a model is evaluated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationSplit {
    /// `data.dev`, or the `data.dev_fraction` that training holds out.
    Dev,
    /// `data.test`.
    Test,
}

impl EvaluationSplit {
    /// `dev` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Test => "test",
        }
    }
}

/// A model's evaluation on labelled images.
#[non_exhaustive]
pub struct ImageMeasurement {
    /// Every image's prediction.
    pub predictions: Box<dyn Predictions>,
    /// The metrics.
    pub figures: Figures,
    /// What was left out.
    pub skipped: SkipReport,
    /// What the answers take, without decoding.
    pub cost: Cost,
}
