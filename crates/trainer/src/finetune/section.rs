//! `[task]` of a config and of a model's folder: what is to be predicted. Embeddings, whose losses have sections too, keep theirs
//! in [`embedding`](super::embedding).

use super::embedding::section::EmbeddingSection;
use crate::config::validate::{Check, below_one, ensure, not_negative};
use cloze_data::labelled::{AnswerConfig, LongSentences, TagScheme, Windows};
use cloze_model::bert::Pooling;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[task]`: what is to be predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum TaskSection {
    /// A class of each text or pair of texts.
    Classification {
        /// The classes, in the order of the head's outputs. Default: the classes of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// The weight of each class in the loss, in the order of the labels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        class_weights: Vec<f32>,
        /// The share of each target that is spread over all classes. Default 0.
        #[serde(default)]
        label_smoothing: f64,
        /// If there are two classes, the one that precision, recall and F1 refer to. Default: the second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        positive: Option<String>,
        /// How the encoder's states are pooled for the head. Default: as the family's own class in transformers does
        /// it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// A number for each text or pair of texts.
    Regression {
        /// As for classification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
        /// What the numbers are trained by, and so what they are. Default `"squared-error"`.
        #[serde(default, skip_serializing_if = "is_default")]
        loss: ValueLoss,
    },
    /// Any number of labels of each text or pair of texts.
    MultiLabel {
        /// The labels, in the order of the head's outputs. Default: those of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// A label is predicted if its probability is above this. Default 0.5.
        #[serde(default = "half")]
        threshold: f64,
        /// As for classification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// The piece of a text that answers a question.
    Answers {
        /// Tokens that a window over a long text shares with the one before. Default 128.
        #[serde(default = "stride")]
        stride: usize,
        /// The most tokens of a question. A longer one is cut at its end. Default 64.
        #[serde(default = "max_question")]
        max_question: usize,
        /// The most tokens of an answer. Default 30.
        #[serde(default = "max_answer")]
        max_answer: usize,
        /// How many first and how many last tokens of a window are tried with each other. Default 20.
        #[serde(default = "n_best")]
        n_best: usize,
        /// No answer is given if the score for none exceeds that of the best answer by more than this (SQuAD 2.0).
        /// Default: 0 if the training data has questions without an answer; otherwise every question is answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        null_threshold: Option<f64>,
    },
    /// The right one of several choices.
    MultipleChoice {},
    /// A tag of each word, by which entities are found.
    Tagging(TaggingSection),
    /// An embedding of each sentence.
    Embedding(EmbeddingSection),
    /// A class of each text or pair of texts, by the word that the masked-LM head puts in a template's mask.
    Prompt(PromptSection),
}

/// What a number for each text or pair of texts is trained by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLoss {
    /// The square of the number's distance from the label.
    #[default]
    SquaredError,
    /// The binary cross-entropy by a label from 0 to 1; the number is the sigmoid of the head's output. So a cross-encoder
    /// learns to rank texts for a query.
    BinaryCrossEntropy,
}

fn is_default(loss: &ValueLoss) -> bool {
    *loss == ValueLoss::default()
}

fn half() -> f64 {
    0.5
}

fn stride() -> usize {
    Windows::default().stride
}

fn max_question() -> usize {
    Windows::default().max_question
}

fn max_answer() -> usize {
    AnswerConfig::default().max_answer
}

fn n_best() -> usize {
    AnswerConfig::default().n_best
}

/// The keys of `[task]` with `kind = "tagging"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TaggingSection {
    /// The scheme that all tags of the data must keep to. Without it they may be of any, and make entities by
    /// the rules of `conlleval` and seqeval. With [`TagScheme::Words`] they are classes of words, such as parts of speech.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<TagScheme>,
    /// The scheme that the model is trained on. Default: BIOES if the training data is in it, otherwise BIO; `"words"` with
    /// classes of words, and only with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict_scheme: Option<TagScheme>,
    /// The tags of `predict_scheme` in the order of the model's outputs; those of the training data's kinds of
    /// entities where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The names of tags that are written as numbers, from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tag_names: Vec<String>,
    /// The weight of each tag in the loss, in the order of the labels. It cannot be combined with a field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_weights: Vec<f32>,
    /// The share of each target that is spread over all tags. Default 0; not with a field.
    #[serde(default)]
    pub label_smoothing: f64,
    /// Whether a conditional random field tags a sentence's words together, and only as the scheme allows.
    /// Default false: each word by itself.
    #[serde(default)]
    pub crf: bool,
    /// What the learning rate is multiplied by for the field's scores, unless `optimizer.groups` has them.
    /// Default 100: they are few, begin at nothing, and are to outgrow differences of logits.
    #[serde(default = "crf_lr_scale")]
    pub crf_lr_scale: f64,
    /// What becomes of sentences of more than `data.max_len` tokens: `"truncate"`, or windows that share so
    /// many tokens. Default `{ windows = { stride = 32 } }`.
    #[serde(default)]
    pub long_sentences: LongSentences,
}

fn crf_lr_scale() -> f64 {
    100.0
}

impl Default for TaggingSection {
    fn default() -> Self {
        Self {
            scheme: None,
            predict_scheme: None,
            labels: Vec::new(),
            tag_names: Vec::new(),
            class_weights: Vec::new(),
            label_smoothing: 0.0,
            crf: false,
            crf_lr_scale: crf_lr_scale(),
            long_sentences: LongSentences::default(),
        }
    }
}

/// `[task] kind = "prompt"`: a text is put into a template, and its class is the one whose word the masked-LM head
/// finds likeliest in the mask's place (Schick & Schütze 2021, §3.1; Gao et al. 2021, §4).
///
/// No parameter is new: without a step of training (`train.epochs = 0`) it is a zero-shot classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PromptSection {
    /// What the model reads: `{text}`, `{mask}` and, of pairs, `{pair}` between words, such as
    /// `"{text} It was {mask}."`. All is one segment. Long texts are cut, the template never.
    pub template: String,
    /// The words of each class, each one piece of the vocabulary where the mask is. A class's score is the mean of
    /// its words' logits, as in PET's code (`_convert_single_mlm_logits_to_cls_logits`).
    pub verbaliser: BTreeMap<String, Vec<String>>,
    /// If there are two classes, the one that precision, recall and F1 refer to. Default: the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive: Option<String>,
}

/// Checks what a cross-entropy is told of smoothing and of classes' weights.
pub(super) fn check_loss(label_smoothing: f64, class_weights: &[f32]) -> Check {
    below_one("task.label_smoothing", label_smoothing)?;
    for weight in class_weights {
        not_negative("task.class_weights", f64::from(*weight))?;
    }
    let counts = class_weights.is_empty() || class_weights.iter().any(|weight| *weight > 0.0);
    ensure(counts, "task.class_weights", format!("{class_weights:?}"), "a number above 0 among them")
}
