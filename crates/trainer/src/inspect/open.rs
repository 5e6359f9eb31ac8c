//! Opens a model's folder of any kind.

use super::model::Model;
use super::refuse;
use crate::finetune::{
    AnswerTask, PretrainedTask, TASK_FILE, TagTask, TaskFile, TaskSection, TextTask, ValueLoss,
};
use crate::fit::{check_fit, check_vocabulary};
use crate::translate::first_token;
use crate::translation::{load_vocabularies, read_translation_file};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstmClassifierConfig, AwdLstmConfig};
use cloze_model::bert::MlmHead;
use cloze_model::blocks::{LinearMaps, pack_weights};
use cloze_model::elmo::{ElmoClassifierConfig, ElmoConfig, ElmoTaggerConfig};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{
    Architecture, DecodeOptions, Family, Format, LoadReport, PretrainedFolder, load_published, model_type,
    read_decode_settings,
};
use cloze_model::seq2seq::{
    AnyEncoderDecoderConfig, ConvolutionalEncoderDecoderConfig, EncoderDecoder,
    RecurrentEncoderDecoderConfig, TransformerConfig,
};
use cloze_model::tasks::{
    BertForMaskedLm, DropoutOverrides, RecurrentClassifierConfig, RecurrentTaggerConfig,
};
use cloze_tokenizer::Tokenizer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a model answers.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// Nothing: it has no head.
    Encoder,
    /// A masked piece.
    Masked,
    /// A class of the text.
    Classes(Vec<String>),
    /// Labels of the text, each of which applies or not.
    Labels(Vec<String>),
    /// A number, of which the sigmoid may be meant.
    Number { sigmoid: bool },
    /// A tag of each word.
    Tags(Vec<String>),
    /// A span of the second text, of at most so many tokens.
    Spans { max_answer: usize },
    /// The next piece.
    Writer,
    /// Another text.
    Translator,
}

/// The side that an encoder–decoder writes.
#[derive(Debug)]
pub(super) struct Target {
    pub tokenizer: Arc<Tokenizer>,
    /// The token that begins it.
    pub first: i32,
    /// The most tokens of it that are read.
    pub most: usize,
}

/// A model and its tokenizers.
#[derive(Debug)]
pub(super) struct Opened {
    pub folder: PathBuf,
    /// The family and kind, such as `bert, classification`.
    pub name: String,
    pub kind: Kind,
    pub model: Model,
    /// The same model with gradients; none if its weights are integers.
    pub tracked: Option<Model>,
    pub tokenizer: Tokenizer,
    pub target: Option<Target>,
    /// The most tokens of a text that are read, special ones included.
    pub max_len: usize,
    /// Whether texts are pairs, or single ones; none if either.
    pub pairs: Option<bool>,
}

impl Opened {
    /// # Errors
    /// Those of the folder's files; a model that nothing can be seen of.
    pub fn open(folder: &Path, device: &Device) -> Result<Self> {
        let found = model_type(folder)?;
        let is_of = |types: &[&str]| found.as_deref().is_some_and(|found| types.contains(&found));
        let classes = architectures(folder);
        let ends_with =
            |ends: &[&str]| classes.iter().any(|class| ends.iter().any(|end| class.ends_with(end)));
        let has_task = folder.join(TASK_FILE).exists() || ends_with(&TASKS);
        let is_encoder = ends_with(&["EncoderModel"]);
        let own = RecurrentEncoderDecoderConfig::MODEL_TYPES
            .iter()
            .chain(ConvolutionalEncoderDecoderConfig::MODEL_TYPES)
            .copied()
            .collect::<Vec<_>>();
        if is_of(&own) || is_of(TransformerConfig::MODEL_TYPES) && !has_task && !is_encoder {
            return Self::translator(folder, found.unwrap_or_default(), device);
        }
        let is_recurrent_writer = is_of(AwdLstmConfig::MODEL_TYPES) || is_of(ElmoConfig::MODEL_TYPES);
        if is_of(GptConfig::MODEL_TYPES) && !has_task || is_recurrent_writer {
            return Self::writer(folder, found.unwrap_or_default(), device);
        }
        let is_recurrent =
            |kind: &String| kind.starts_with("cloze-") && kind != Family::CLOZE_BERT.model_type();
        match found.filter(is_recurrent) {
            Some(kind) => Self::recurrent(folder, kind, device),
            None => Self::encoder(folder, has_task, device),
        }
    }

    /// A model, with and without gradients.
    fn of(
        folder: &Path,
        name: String,
        kind: Kind,
        mut model: Model,
        tokenizer: Tokenizer,
        max_len: usize,
    ) -> Self {
        // Parameters are constants with gradients too: they are asked for at embeddings and at attention.
        let has_integers = model.linear_maps_mut().iter().any(|map| map.is_stored());
        let tracked = (!has_integers).then(|| model.clone().train().no_grad());
        pack_weights(&mut model);
        Self {
            folder: folder.into(),
            name,
            kind,
            model,
            tracked,
            tokenizer,
            target: None,
            max_len,
            pairs: None,
        }
    }

    fn translator(folder: &Path, family: String, device: &Device) -> Result<Self> {
        let vocabularies = load_vocabularies(folder)?;
        let file = read_translation_file(folder)?;
        let (shape, model) = AnyEncoderDecoderConfig::load(folder, &mut ParamInit::new(device, 0))?;
        for (tokenizer, model) in
            [&vocabularies.source, &vocabularies.target].into_iter().zip(shape.vocab_sizes())
        {
            check_vocabulary(tokenizer, folder, model)?;
        }
        let settings = read_decode_settings(folder, &DecodeOptions::default())?;
        let first = first_token(&shape, &settings, &vocabularies.special);
        let most = model.max_source_tokens().unwrap_or(usize::MAX);
        let max_len = file.map_or(most, |file| file.max_len.min(most));
        let tokenizer = Tokenizer::clone(&vocabularies.source);
        let target = Target { tokenizer: vocabularies.target, first, most };
        let name = format!("{family}, translation");
        let opened = Self::of(folder, name, Kind::Translator, Model::Translator(model), tokenizer, max_len);
        Ok(Self { target: Some(target), pairs: Some(false), ..opened })
    }

    fn writer(folder: &Path, family: String, device: &Device) -> Result<Self> {
        let init = &mut ParamInit::new(device, 0);
        let is_of = |types: &[&str]| types.contains(&family.as_str());
        let (vocab_size, max_len, model) = if is_of(AwdLstmConfig::MODEL_TYPES) {
            let (shape, model, _) = load_published::<AwdLstmConfig>(folder, init)?;
            (shape.vocab_size, usize::MAX, Model::AwdLstmWriter(model))
        } else if is_of(ElmoConfig::MODEL_TYPES) {
            let (_, model, _) = load_published::<ElmoConfig>(folder, init)?;
            (model.encoder.vocab_size(), usize::MAX, Model::ElmoWriter(model))
        } else {
            let (shape, model, _) = load_published::<GptConfig>(folder, init)?;
            (shape.vocab_size, shape.max_positions, Model::Writer(model))
        };
        let tokenizer = whole(Tokenizer::load(folder)?)?;
        check_vocabulary(&tokenizer, folder, vocab_size)?;
        let name = format!("{family}, left to right");
        let opened = Self::of(folder, name, Kind::Writer, model, tokenizer, max_len);
        Ok(Self { pairs: Some(false), ..opened })
    }

    /// A recurrent classifier or tagger.
    fn recurrent(folder: &Path, family: String, device: &Device) -> Result<Self> {
        let tokenizer = whole(Tokenizer::load(folder)?)?;
        let init = &mut ParamInit::new(device, 0);
        let is_of = |types: &[&str]| types.contains(&family.as_str());
        let (vocab_size, n_outputs, model) = if is_of(RecurrentClassifierConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<RecurrentClassifierConfig>(folder, init)?;
            (config.encoder.vocab_size, config.n_outputs, Model::RecurrentTexts(model))
        } else if is_of(RecurrentTaggerConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<RecurrentTaggerConfig>(folder, init)?;
            (config.encoder.vocab_size, config.n_tags, Model::RecurrentTags(model))
        } else if is_of(AwdLstmClassifierConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<AwdLstmClassifierConfig>(folder, init)?;
            (config.encoder.vocab_size, config.n_outputs, Model::AwdLstmTexts(model))
        } else if is_of(ElmoClassifierConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<ElmoClassifierConfig>(folder, init)?;
            (config.encoder.vocab_size(), config.n_outputs, Model::ElmoTexts(model))
        } else if is_of(ElmoTaggerConfig::MODEL_TYPES) {
            let (config, model, _) = load_published::<ElmoTaggerConfig>(folder, init)?;
            (config.encoder.vocab_size(), config.n_tags, Model::ElmoTags(model))
        } else {
            return Err(refuse(format!(
                "{}: nothing inside a model of the kind {family} can be seen; expected a Transformer, an encoder–decoder, \
                 or a recurrent classifier, tagger or language model",
                folder.display()
            )));
        };
        check_vocabulary(&tokenizer, folder, vocab_size)?;
        let bad =
            |reason: &str| TrainerError::BadTaskFile { path: folder.join(TASK_FILE), reason: reason.into() };
        let file: TaskFile =
            TaskFile::read(folder)?.ok_or_else(|| bad("missing; expected the task of a recurrent model"))?;
        let (what, kind, n, pairs) = match file.task {
            TaskSection::Classification { labels, .. } => {
                ("classification", Kind::Classes(labels.clone()), labels.len(), file.pairs)
            }
            TaskSection::MultiLabel { labels, .. } => {
                ("labels", Kind::Labels(labels.clone()), labels.len(), file.pairs)
            }
            TaskSection::Regression { loss, .. } => {
                ("a number", Kind::Number { sigmoid: loss == ValueLoss::BinaryCrossEntropy }, 1, file.pairs)
            }
            TaskSection::Tagging(section) => {
                ("tags", Kind::Tags(section.labels.clone()), section.labels.len(), Some(false))
            }
            _ => {
                return Err(bad("another task; expected classification, multi-label, regression or tagging"));
            }
        };
        if n != n_outputs {
            return Err(bad(&format!("a task of {n} outputs; expected {n_outputs}, the model's")));
        }
        let opened = Self::of(folder, format!("{family}, {what}"), kind, model, tokenizer, file.max_len);
        Ok(Self { pairs, ..opened })
    }

    fn encoder(folder: &Path, has_task: bool, device: &Device) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let pretrained = PretrainedFolder::open(folder)?;
        let config = &pretrained.config;
        let family = config.family.to_string();
        let of_tokenizer =
            tokenizer.config().model_max_length.or(tokenizer.truncation().map(|cut| cut.max_length));
        let max_len = of_tokenizer.unwrap_or(usize::MAX).min(config.encoder.max_positions);
        let file = has_task.then(|| TaskFile::of_folder(folder, config, &tokenizer)).transpose()?;
        let is_masked = matches!(config.architecture, Architecture::MaskedLm | Architecture::PreTraining);
        let init = &mut ParamInit::new(device, 0);
        let dropout = DropoutOverrides::default();
        let mut pairs = file.as_ref().and_then(|file| file.pairs);
        let max_len = file.as_ref().map_or(max_len, |file| file.max_len.min(max_len));
        let (what, kind, encoder, model) = match file.map(|file| file.task) {
            Some(
                section @ (TaskSection::Classification { .. }
                | TaskSection::MultiLabel { .. }
                | TaskSection::Regression { .. }),
            ) => {
                let task = TextTask::saved(&section, pairs)?;
                let (encoder, model, report) = task.model(pretrained, &dropout, init)?;
                check_head(folder, report)?;
                let (what, kind) = match section {
                    TaskSection::Classification { labels, .. } => ("classification", Kind::Classes(labels)),
                    TaskSection::MultiLabel { labels, .. } => ("labels", Kind::Labels(labels)),
                    TaskSection::Regression { loss, .. } => {
                        ("a number", Kind::Number { sigmoid: loss == ValueLoss::BinaryCrossEntropy })
                    }
                    _ => unreachable!("one of these"),
                };
                (what, kind, encoder, Model::Texts(model))
            }
            Some(TaskSection::Tagging(section)) => {
                pairs = Some(false);
                let task = TagTask::spelt_out(&section)?;
                let (encoder, model, report) = task.model(pretrained, &dropout, init)?;
                check_head(folder, report)?;
                ("tags", Kind::Tags(section.labels), encoder, Model::Tags(model))
            }
            Some(section @ TaskSection::Answers { max_answer, .. }) => {
                pairs = Some(true);
                let task = AnswerTask::of_saved(&section, None)?;
                let (encoder, model, report) = task.model(pretrained, &dropout, init)?;
                check_head(folder, report)?;
                ("answers", Kind::Spans { max_answer }, encoder, Model::Spans(model))
            }
            Some(TaskSection::Prompt(_)) => masked(folder, pretrained, init)?,
            None if is_masked => masked(folder, pretrained, init)?,
            _ => {
                let (encoder, model, _) = pretrained.load_encoder(init)?;
                ("encoder", Kind::Encoder, encoder, Model::Encoder(model))
            }
        };
        check_fit(&tokenizer, &encoder, folder, pairs == Some(true))?;
        if model.bert().is_some_and(|bert| !bert.can_be_recorded()) {
            return Err(refuse(format!(
                "{}: the model computes in integers alone, and nothing inside it can be seen; expected the model that it \
                 was made of",
                folder.display()
            )));
        }
        let name = format!("{family}, {what}");
        let opened = Self::of(folder, name, kind, model, whole(tokenizer)?, max_len);
        Ok(Self { pairs, ..opened })
    }
}

type WithHead = (&'static str, Kind, cloze_model::bert::BertConfig, Model);

fn masked(folder: &Path, pretrained: PretrainedFolder, init: &mut ParamInit) -> Result<WithHead> {
    let config = pretrained.encoder(Architecture::MaskedLm);
    let mut init = init.deferred();
    let model =
        BertForMaskedLm { bert: config.init_encoder(&mut init), mlm: MlmHead::new(&config, &mut init) };
    let (model, report) = pretrained.load_into(model, Architecture::MaskedLm, &["mlm.*"])?;
    match report.missing.into_iter().next() {
        Some(missing) => Err(TrainerError::NoMlmHead { folder: folder.into(), missing }),
        None => Ok(("masked pieces", Kind::Masked, config, Model::Masked(model))),
    }
}

/// The ends of the names of classes with a task.
const TASKS: [&str; 4] =
    ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"];

/// The classes that the weights were saved from; none if the file does not say.
fn architectures(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let names = config["architectures"].as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn check_head(folder: &Path, report: LoadReport) -> Result<()> {
    match report.missing.into_iter().next() {
        Some(missing) => Err(TrainerError::NoTaskHead { folder: folder.into(), missing }),
        None => Ok(()),
    }
}

/// A tokenizer that neither cuts nor pads.
fn whole(mut tokenizer: Tokenizer) -> Result<Tokenizer> {
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    tokenizer.set_keep_overflow(false);
    Ok(tokenizer)
}
