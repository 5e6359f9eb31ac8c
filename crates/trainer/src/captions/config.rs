//! The configuration of a run on images with captions.

use super::run;
use crate::Result;
use crate::config::validate::{Check, Complaint, at_least, below_one, ensure, share, within};
use crate::config::{ConfigFile, Run, layered};
use crate::engine::origin::{Input, model_files};
use crate::engine::{Outcome, RunOptions};
use crate::images::config::{check_augment, check_steps, of_model};
use crate::images::{ImageDataSection, ImageEval, ImageModelSection, ImageTrain, PretrainedImageModel};
use crate::metrics::progress::RunProgress;
use crate::runs::RunKind;
use crate::translation::VocabularySection;
use crate::translation::validate::vocabulary;
use cloze_data::images::scenes::SceneSplit;
use cloze_data::images::{AugmentConfig, Filter};
use cloze_data::labelled::{LabelledSource, OnBadRow};
use cloze_model::captions::{Looking, RecurrentCaptionConfig, TransformerCaptionConfig};
use cloze_model::gpt::GptConfig;
use cloze_model::seq2seq::SpecialTokens;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configures a run that trains a model to describe images: `task.kind = "captions"`.
pub type CaptionRunConfig = Run<CaptionRun>;

/// The sections of a [`CaptionRunConfig`] besides those common to all runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CaptionRun {
    /// `[task]`: the loss.
    pub task: CaptionTaskSection,
    /// `[model]`: the network, new or a checkpoint's.
    pub model: CaptionModelSection,
    /// `[tokenizer]`: the vocabulary of a new decoder. A checkpoint has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<VocabularySection>,
    /// `[data]`: images with captions, for training and evaluation.
    pub data: CaptionDataSection,
    /// `[augment]`: random changes of images in training. Default none.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// `[train]`: epochs and batches of images.
    pub train: ImageTrain,
    /// `[eval]`: when to evaluate, by which metric, and when to stop.
    #[serde(default)]
    pub eval: CaptionEval,
}

/// `[task]`: the loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum CaptionTaskSection {
    /// The words of a caption, each from the image and the words before it.
    Captions {
        /// The share of the target that is spread over all pieces. Default 0.
        #[serde(default)]
        label_smoothing: f64,
        /// `λ`: the weight of `Σ_i (1 − Σ_t α_ti)²` for soft attention, which has a caption look at each place about once
        /// (Xu et al. 2015, eq. 14). Default 1 for soft attention; none elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        penalty: Option<f64>,
        /// `λ_r`: the weight of the reward for hard attention (Xu et al. 2015, eq. 12). Default 1 for hard attention; none
        /// elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reward: Option<f64>,
        /// `λ_e`: the weight of the entropy of hard attention (Xu et al. 2015, eq. 12). Default 0.01 for hard attention; none
        /// elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entropy: Option<f64>,
        /// The share of captions that see the expectation of all places in place of a drawn one, for hard attention (Xu et
        /// al. 2015, §4.1). Default 0.5 for hard attention; none elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected: Option<f64>,
    },
}

impl CaptionTaskSection {
    /// Its name in configs.
    pub(crate) const KIND: &'static str = "captions";

    pub(super) fn label_smoothing(&self) -> f64 {
        let Self::Captions { label_smoothing, .. } = self;
        *label_smoothing
    }

    pub(super) fn penalty(&self) -> f64 {
        let Self::Captions { penalty, .. } = self;
        penalty.unwrap_or(1.0)
    }

    pub(super) fn reward(&self) -> f64 {
        let Self::Captions { reward, .. } = self;
        reward.unwrap_or(1.0)
    }

    pub(super) fn entropy(&self) -> f64 {
        let Self::Captions { entropy, .. } = self;
        entropy.unwrap_or(0.01)
    }

    pub(super) fn expected(&self) -> f64 {
        let Self::Captions { expected, .. } = self;
        expected.unwrap_or(0.5)
    }
}

/// `[model]`: the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CaptionModelSection {
    /// A new decoder on an encoder.
    Captioner(NewCaptioner),
    /// A checkpoint to fine-tune.
    Pretrained(PretrainedCaptioner),
}

/// A new decoder on an image encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NewCaptioner {
    /// `[model.encoder]`: what makes states of images, as `[model]` of a classifier: new, or a checkpoint's.
    pub encoder: ImageModelSection,
    /// `[model.decoder]`: what writes captions.
    pub decoder: CaptionDecoderSection,
}

/// `[model.decoder]`: what writes captions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum CaptionDecoderSection {
    /// The LSTM of "Show, Attend and Tell" (Xu et al. 2015).
    Recurrent {
        /// Width of the embeddings.
        d_embedding: usize,
        /// Width of the LSTM's state.
        d_model: usize,
        /// Width in which state and place are compared. Default `d_model`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        d_attention: Option<usize>,
        /// How it looks at the image: `"soft"`, at all places by weights; `"hard"`, at one place that is drawn; or `"none"`.
        /// Default `"soft"`.
        #[serde(default)]
        attention: Looking,
        /// Whether the state decides how much of the image is let through (Xu et al. 2015, §4.2.1). Default: for soft
        /// attention.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gate: Option<bool>,
        /// Whether sines and cosines of a place's column and row are added to its state. A ViT has positions of its own, a
        /// residual network knows of the borders alone. Default false.
        #[serde(default)]
        positions: bool,
        /// Whether what the output layer sees passes a `tanh`, as in the authors' code. Default false, as in the paper: with it,
        /// models learn much more slowly.
        #[serde(default)]
        output_tanh: bool,
        /// Dropout of the embeddings and of what the output layer sees. Default 0.
        #[serde(default)]
        dropout: f64,
    },
    /// A Transformer with attention to the image: the decoder of transformers' `VisionEncoderDecoderModel` with GPT-2.
    Transformer {
        /// Layers.
        n_layers: usize,
        /// Width of the hidden states.
        d_model: usize,
        /// Attention heads; divides `d_model`.
        n_heads: usize,
        /// Inner width of the feed-forward. Default `4 · d_model`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        d_ff: Option<usize>,
        /// Whether sines and cosines of a place's column and row are added to its state. A ViT has positions of its own, a
        /// residual network knows of the borders alone. Default false.
        #[serde(default)]
        positions: bool,
        /// Dropout of the embeddings, of each sublayer's output, and of the attention probabilities. Default 0.
        #[serde(default)]
        dropout: f64,
    },
}

impl CaptionDecoderSection {
    /// The decoder for a vocabulary, on states of `d_image` features, for captions of at most `max_len` tokens.
    pub(super) fn config(
        &self,
        vocab_size: usize,
        tokens: &SpecialTokens,
        d_image: usize,
        max_len: usize,
    ) -> cloze_model::captions::AnyCaptionDecoderConfig {
        match *self {
            Self::Recurrent {
                d_embedding,
                d_model,
                d_attention,
                attention,
                gate,
                positions,
                output_tanh,
                dropout,
            } => RecurrentCaptionConfig::new(vocab_size, d_image, d_embedding, d_model)
                .with_d_attention(d_attention.unwrap_or(d_model))
                .with_looking(attention)
                .with_gate(gate.unwrap_or(attention == Looking::Soft))
                .with_positions(positions)
                .with_output_tanh(output_tanh)
                .with_dropout(dropout)
                .into(),
            Self::Transformer { n_layers, d_model, n_heads, d_ff, positions, dropout } => {
                let mut gpt = GptConfig::gpt2(vocab_size, n_layers, d_model);
                (gpt.n_heads, gpt.n_kv_heads) = (n_heads, n_heads);
                gpt.d_head = d_model / n_heads.max(1);
                gpt.d_ff = d_ff.unwrap_or(d_model.saturating_mul(4));
                gpt.max_positions = max_len;
                (gpt.begin_token_id, gpt.end_token_id) = (Some(tokens.decoder_start), Some(tokens.eos));
                (gpt.embedding_dropout, gpt.hidden_dropout, gpt.attention_dropout) =
                    (dropout, dropout, dropout);
                TransformerCaptionConfig::new(gpt, d_image).with_image_positions(positions).into()
            }
        }
    }

    /// How it looks at the image, if it is recurrent.
    pub(super) fn looking(&self) -> Option<Looking> {
        match self {
            Self::Recurrent { attention, .. } => Some(*attention),
            Self::Transformer { .. } => None,
        }
    }
}

/// A checkpoint to fine-tune, with its vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PretrainedCaptioner {
    /// The checkpoint: a folder of `cloze train`, or of transformers' `VisionEncoderDecoderModel` with a ViT and a GPT-2,
    /// relative to the current directory; `cloze` also takes a name on the hub.
    pub path: PathBuf,
    /// Patterns for the paths of frozen parameters: `["encoder.*"]` trains the decoder alone. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freeze: Vec<String>,
}

/// `[data]`: images with captions, and how they become a model's input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CaptionDataSection {
    /// `[data.source]`: where they are.
    pub source: CaptionSource,
    /// Captions of each image in an epoch, drawn at random; an image with fewer has all. Default 1.
    #[serde(default = "one")]
    pub captions_per_image: usize,
    /// Maximum tokens of a caption, with those that begin and end it. Longer ones are an error. Default 64.
    #[serde(default = "max_len")]
    pub max_len: usize,
    /// Height and width of the model's input, in pixels: images are resized to it. Default the checkpoint's; required
    /// for a new encoder.
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

fn one() -> usize {
    1
}

fn max_len() -> usize {
    64
}

impl CaptionDataSection {
    /// The settings of images alone.
    pub(super) fn images(&self) -> ImageDataSection {
        ImageDataSection {
            size: self.size,
            filter: self.filter,
            mean: self.mean,
            std: self.std,
            on_bad_image: self.on_bad_image,
            ..ImageDataSection::new(LabelledSource::default())
        }
    }
}

/// `[data.source]`: where images with captions are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "there is one source, and no list")]
pub enum CaptionSource {
    /// Tables with the columns `image`, a path or bytes, and `caption`, a text or a list of texts.
    Tables {
        /// The training data.
        train: LabelledSource,
        /// Files for evaluation during training, which select the best model, read like the training data. Default none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        dev: Vec<String>,
        /// The fraction of the training images held out for evaluation during training, instead of files. Default none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dev_fraction: Option<f64>,
        /// Files for evaluating the result, read like the training data. Default none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        test: Vec<String>,
    },
    /// Drawn scenes, of which everything is known (`cloze_data::images::scenes`).
    Scenes {
        /// The number of scenes for training, at most 20,000. Default 20,000.
        #[serde(default = "train_scenes")]
        train: usize,
        /// The number of scenes for evaluation during training, at most 1,000. Default 1,000.
        #[serde(default = "dev_scenes")]
        dev: usize,
        /// The number of scenes for evaluating the result, at most 1,000. Default 1,000.
        #[serde(default = "dev_scenes")]
        test: usize,
    },
}

fn train_scenes() -> usize {
    SceneSplit::Train.n_scenes() as usize
}

fn dev_scenes() -> usize {
    SceneSplit::Dev.n_scenes() as usize
}

/// `[eval]`: when to evaluate, by which metric, and when to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CaptionEval {
    /// Evaluations per epoch, the last one at its end. Default 1.
    pub per_epoch: u64,
    /// The metric that decides which model is best: `right`, of scenes, `cider`, `bleu_4`, `rouge_l` or `loss`. Default
    /// `right` of scenes, else `cider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Number of evaluations in a row without a better metric, or an equal metric and a lower loss, after which training
    /// stops. Default none: training never stops early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u64>,
    /// Images per evaluation batch. Default 64.
    pub batch_size: usize,
    /// The beams with which captions are written in evaluations; 1 is greedy. Default 1.
    pub beams: usize,
}

impl Default for CaptionEval {
    fn default() -> Self {
        Self { per_epoch: 1, metric: None, patience: None, batch_size: 64, beams: 1 }
    }
}

impl CaptionEval {
    /// As that of a run on images.
    pub(super) fn images(&self) -> ImageEval {
        ImageEval {
            per_epoch: self.per_epoch,
            metric: self.metric.clone(),
            patience: self.patience,
            batch_size: self.batch_size,
        }
    }
}

impl RunKind for CaptionRun {
    const FREE_KEYS: &'static [&'static str] = &[
        "run.name",
        "train.workers",
        "train.prefetch",
        "train.recompute",
        "eval.batch_size",
        "checkpoint.",
        "log.",
        "data.source.test",
    ];

    fn is_of(file: &ConfigFile) -> bool {
        file.kind_of("task") == Some(CaptionTaskSection::KIND)
    }

    fn read(file: &ConfigFile, sets: &[String]) -> Result<Run<Self>> {
        layered::read(file, sets, |config: &mut Run<Self>| validate(config))
    }

    fn checkpoint_mut(&mut self) -> Option<&mut PathBuf> {
        match &mut self.model {
            CaptionModelSection::Pretrained(model) => Some(&mut model.path),
            CaptionModelSection::Captioner(NewCaptioner {
                encoder: ImageModelSection::Pretrained(PretrainedImageModel { path, .. }),
                ..
            }) => Some(path),
            CaptionModelSection::Captioner(_) => None,
        }
    }

    /// Models' and tokenizers' files. Images, of which there may be millions, are known by the checkpoint's hash of them.
    fn inputs(&self) -> Result<Vec<Input>> {
        let model = match &self.model {
            CaptionModelSection::Pretrained(model) => Some(&model.path),
            CaptionModelSection::Captioner(model) => model.encoder.as_pretrained().map(|model| &model.path),
        };
        let tokenizer = self.tokenizer.as_ref().and_then(VocabularySection::path);
        let mut paths = Vec::new();
        for folder in model.into_iter().chain(tokenizer) {
            paths.extend(model_files(folder)?);
        }
        Input::of(paths)
    }

    fn train(run: &Run<Self>, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
        run::train_captions(run, options, progress)
    }
}

fn validate(config: &Run<CaptionRun>) -> Check {
    let CaptionRun { task, model, tokenizer, data, augment, train, eval } = &config.kind;
    below_one("task.label_smoothing", task.label_smoothing())?;
    at_least(1, "data.captions_per_image", data.captions_per_image)?;
    within(3..=100_000, "data.max_len", data.max_len)?;
    let looking = match model {
        CaptionModelSection::Captioner(new) => {
            ensure(
                tokenizer.is_some(),
                "tokenizer",
                "absent",
                "where the vocabulary of the new decoder comes from",
            )?;
            let d_image = match &new.encoder {
                ImageModelSection::Pretrained(section) => {
                    let unread = section.freeze_layers.is_some()
                        || section.lora.is_some()
                        || section.layer_decay.is_some();
                    let key = "model.encoder";
                    ensure(
                        !unread,
                        key,
                        "with `freeze_layers`, `lora` or `layer_decay`",
                        "none of them: `freeze = [\"encoder.*\"]` trains the decoder alone",
                    )?;
                    if let Some(pooling) = section.pooling {
                        let expected = "it to be absent: captions look at all places";
                        let found = format!("{pooling:?}").to_lowercase();
                        ensure(false, "model.encoder.pooling", found, expected)?;
                    }
                    // Known when it is read.
                    16
                }
                encoder => {
                    ensure(
                        data.size.is_some(),
                        "data.size",
                        "absent",
                        "height and width of the model's input: `[64, 64]`",
                    )?;
                    encoder.check(data.size.unwrap_or_default())?
                }
            };
            let tokens = SpecialTokens::new(0, 2);
            let decoder = new.decoder.config(64, &tokens, d_image, data.max_len);
            decoder.validate().map_err(|error| within_section("model.decoder", of_model(error)))?;
            new.decoder.looking()
        }
        CaptionModelSection::Pretrained(_) => {
            let found = "there";
            ensure(
                tokenizer.is_none(),
                "tokenizer",
                found,
                "it to be absent: the checkpoint has a vocabulary",
            )?;
            None
        }
    };
    let is_new = matches!(model, CaptionModelSection::Captioner(_));
    let CaptionTaskSection::Captions { penalty, reward, entropy, expected, .. } = task;
    for (key, value, of) in [
        ("task.penalty", penalty, Looking::Soft),
        ("task.reward", reward, Looking::Hard),
        ("task.entropy", entropy, Looking::Hard),
        ("task.expected", expected, Looking::Hard),
    ] {
        let Some(value) = *value else { continue };
        ensure(
            !is_new || looking == Some(of),
            key,
            value,
            format!("it to be absent: `model.decoder.attention` is not {of:?}").to_lowercase(),
        )?;
        ensure(value >= 0.0 && value.is_finite(), key, value, "a number, 0 or more")?;
    }
    share("task.expected", expected.unwrap_or(0.5))?;
    if let Some(section) = tokenizer {
        vocabulary("tokenizer.vocab_size", section)?;
    }
    check_source(&data.source, augment)?;
    for value in data.std.into_iter().flatten() {
        ensure(value.is_finite() && value > 0.0, "data.std", value, "numbers above 0")?;
    }
    if let Some([height, width]) = data.size {
        ensure(height > 0 && width > 0, "data.size", format!("{height} × {width}"), "at least 1 × 1")?;
    }
    within(1..=1000, "eval.beams", eval.beams)?;
    let is_measured = match &data.source {
        CaptionSource::Tables { dev, dev_fraction, .. } => !dev.is_empty() || dev_fraction.is_some(),
        CaptionSource::Scenes { dev, .. } => *dev > 0,
    };
    check_steps(is_measured, train, &eval.images(), &config.common)
}

/// A complaint about a setting of `[model]`, which stands in another section.
fn within_section(section: &str, complaint: Complaint) -> Complaint {
    let key = match complaint.key.strip_prefix("model.") {
        Some(rest) => format!("{section}.{rest}"),
        None => complaint.key,
    };
    Complaint { key, ..complaint }
}

fn check_source(source: &CaptionSource, augment: &AugmentConfig) -> Check {
    check_augment(augment)?;
    match source {
        CaptionSource::Tables { train, dev, dev_fraction, .. } => {
            ensure(!train.files.is_empty(), "data.source.train.files", "[]", "files")?;
            if let Some(fraction) = *dev_fraction {
                let key = "data.source.dev_fraction";
                ensure(fraction > 0.0 && fraction < 1.0, key, fraction, "a number between 0 and 1")?;
                ensure(dev.is_empty(), key, fraction, "it to be absent: `data.source.dev` names files")?;
            }
        }
        CaptionSource::Scenes { train, dev, test } => {
            within(1..=SceneSplit::Train.n_scenes() as usize, "data.source.train", *train)?;
            within(0..=SceneSplit::Dev.n_scenes() as usize, "data.source.dev", *dev)?;
            within(0..=SceneSplit::Test.n_scenes() as usize, "data.source.test", *test)?;
            ensure(
                augment.flip == 0.0,
                "augment.flip",
                augment.flip,
                "0: in a mirrored scene \"to the left\" is false",
            )?;
        }
    }
    Ok(())
}
