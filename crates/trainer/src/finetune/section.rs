//! `[task]` of a config and of a model folder: what is predicted. Embeddings, whose losses have sections too,
//! have theirs in [`embedding`](super::embedding).

use super::embedding::section::EmbeddingSection;
use crate::config::validate::{Check, below_one, ensure, not_negative};
use cloze_data::labelled::{AnswerConfig, LongSentences, TagScheme, Windows};
use cloze_model::bert::Pooling;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `[task]`: what is predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum TaskSection {
    /// A class for each text or pair of texts.
    Classification {
        /// The classes, in the order of the head's outputs. Default: the classes of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// The weight of each class in the loss, in the order of the labels. Default 1 each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        class_weights: Vec<f32>,
        /// The fraction of each target spread over all classes. Default 0.
        #[serde(default)]
        label_smoothing: f64,
        /// If there are two classes, the one that precision, recall and F1 refer to. Default: the second.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        positive: Option<String>,
        /// How the encoder's states are pooled for the head. Default: as in the family's own transformers
        /// class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// A number for each text or pair of texts.
    Regression {
        /// How the encoder's states are pooled for the head. Default: as in the family's own transformers
        /// class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
        /// The training loss, which determines the kind of number. Default `"squared-error"`.
        #[serde(default, skip_serializing_if = "is_default")]
        loss: ValueLoss,
    },
    /// Any number of labels for each text or pair of texts.
    MultiLabel {
        /// The labels, in the order of the head's outputs. Default: those of the training data.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        labels: Vec<String>,
        /// The probability, the sigmoid of an output, above which a label is predicted. Default 0.5.
        #[serde(default = "half")]
        threshold: f64,
        /// How the encoder's states are pooled for the head. Default: as in the family's own transformers
        /// class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pooling: Option<Pooling>,
    },
    /// The span of a text that answers a question.
    Answers {
        /// Tokens shared by consecutive windows of a long text. Default 128.
        #[serde(default = "stride")]
        stride: usize,
        /// Maximum tokens of a question; longer ones are truncated. Default 64.
        #[serde(default = "max_question")]
        max_question: usize,
        /// Maximum tokens of an answer. Default 30.
        #[serde(default = "max_answer")]
        max_answer: usize,
        /// Number of best first and last tokens of a window to combine. Default 20.
        #[serde(default = "n_best")]
        n_best: usize,
        /// No answer is predicted if its score exceeds that of the best answer by more than this (SQuAD 2.0).
        /// Default: 0 if the training data has unanswerable questions; otherwise every question is answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        null_threshold: Option<f64>,
    },
    /// The right one of several choices.
    MultipleChoice {},
    /// A tag for each word, from which entities are derived.
    Tagging(TaggingSection),
    /// An embedding of each sentence.
    Embedding(EmbeddingSection),
    /// A class for each text or pair of texts, from the masked-LM head's word for a template's mask.
    Prompt(PromptSection),
}

impl TaskSection {
    /// All names in configs.
    pub(crate) const KINDS: [&str; 8] = [
        "classification",
        "regression",
        "multi-label",
        "answers",
        "multiple-choice",
        "tagging",
        "embedding",
        "prompt",
    ];
}

/// The training loss of a number for each text or pair of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLoss {
    /// The squared difference from the label.
    #[default]
    SquaredError,
    /// The binary cross-entropy with a label from 0 to 1; the number is the sigmoid of the head's output. Of
    /// pairs, it trains a cross-encoder for ranking (Nogueira & Cho 2019).
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

/// A tag for each word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TaggingSection {
    /// The scheme that all tags of the data must follow. With `"words"` tags are word classes, such as parts
    /// of speech. Default any: entities then follow the rules of `conlleval` and seqeval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<TagScheme>,
    /// The scheme that the model is trained on; `"words"` for word classes, and only for them. Default:
    /// `"bioes"` if the training data uses it, else `"bio"`; `"words"` for word classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict_scheme: Option<TagScheme>,
    /// The tags of `predict_scheme` in the order of the model's outputs. Default: those of the entity types in
    /// the training data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The names of tags that the data gives as numbers, from 0. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tag_names: Vec<String>,
    /// The weight of each tag in the loss, in the order of the labels. Cannot be combined with a CRF. Default
    /// 1 each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_weights: Vec<f32>,
    /// The fraction of each target spread over all tags. Cannot be combined with a CRF. Default 0.
    #[serde(default)]
    pub label_smoothing: f64,
    /// Whether a conditional random field (CRF) tags a sentence's words jointly, within the scheme's rules.
    /// Default false: each word independently.
    #[serde(default)]
    pub crf: bool,
    /// Factor on the learning rate of the CRF's scores, unless `optimizer.groups` sets it. Default 100: the
    /// scores are few, start at zero, and must outgrow differences of logits.
    #[serde(default = "crf_lr_scale")]
    pub crf_lr_scale: f64,
    /// How to handle sentences of more than `data.max_len` tokens. Default `{ windows = { stride = 32 } }`.
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

/// A text is put into a template, and its class is the one whose word the masked-LM
/// head finds most likely for the mask (Schick & Schütze 2021, §3.1; Gao et al. 2021, §4).
///
/// No parameters are new: without training (`train.epochs = 0`) it is a zero-shot classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PromptSection {
    /// The model's input: `{text}`, `{mask}` and, for pairs, `{pair}` between words, such as `"{text} It was
    /// {mask}."`. It is a single segment. Long texts are truncated, the template never.
    pub template: String,
    /// The words of each class, each a single piece of the vocabulary in the mask's position. A class's score
    /// is the mean of its words' logits, as in PET's code (`_convert_single_mlm_logits_to_cls_logits`).
    pub verbaliser: BTreeMap<String, Vec<String>>,
    /// If there are two classes, the one that precision, recall and F1 refer to. Default: the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive: Option<String>,
}

/// Checks label smoothing and class weights of a cross-entropy.
pub(super) fn check_loss(label_smoothing: f64, class_weights: &[f32]) -> Check {
    below_one("task.label_smoothing", label_smoothing)?;
    for weight in class_weights {
        not_negative("task.class_weights", f64::from(*weight))?;
    }
    let counts = class_weights.is_empty() || class_weights.iter().any(|weight| *weight > 0.0);
    ensure(counts, "task.class_weights", format!("{class_weights:?}"), "at least one number above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_are_named() {
        let error = serde_json::from_str::<TaskSection>(r#"{"kind": "another"}"#).unwrap_err().to_string();
        let named = TaskSection::KINDS.map(|kind| format!("`{kind}`")).join(", ");
        assert!(error.contains(&format!("expected one of {named}")), "{error}");
    }
}
