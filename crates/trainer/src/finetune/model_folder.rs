//! A fine-tuned model's folder: transformers' files, and a file that names its task.

use super::cross_encoder;
use super::section::{TaggingSection, TaskSection, ValueLoss};
use super::task::Task;
use crate::{Result, TrainerError};
use cloze_data::labelled::{AnswerConfig, LabelSet, LongSentences, TagScheme, Windows};
use cloze_model::HasBackbone;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{
    Architecture, Family, PretrainedConfig, ProblemType, SaveConfig, save_pretrained,
};
use cloze_tokenizer::Tokenizer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name in a model's folder.
pub const TASK_FILE: &str = "task.json";

/// `task.json`: what `config.json` cannot hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFile<S = TaskSection> {
    /// The task; its labels are also in `config.json`.
    pub task: S,
    /// Maximum tokens of a sequence.
    pub max_len: usize,
    /// Whether inputs are pairs of texts or single texts, if known and the task allows both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<bool>,
}

impl<S> TaskFile<S> {
    /// The file of a task's models.
    pub fn of<T: Task<Section = S>>(task: &T, max_len: usize) -> Self {
        Self { task: task.section(), max_len, pairs: task.pairs() }
    }

    /// Reads the file of a folder; `None` if it has none.
    ///
    /// # Errors
    /// [`TrainerError::Io`], and [`TrainerError::BadTaskFile`] for a malformed file.
    pub fn read(folder: &Path) -> Result<Option<Self>>
    where
        S: DeserializeOwned,
    {
        let path = folder.join(TASK_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
        serde_json::from_str(&text)
            .map(Some)
            // serde's words for one of a list of names.
            .map_err(|error| error.to_string().replace("variant identifier", "the name of a kind"))
            .map_err(|reason| TrainerError::BadTaskFile { path, reason })
    }

    /// Writes the file into a folder.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn write(&self, folder: &Path) -> Result<()>
    where
        S: Serialize,
    {
        let path = folder.join(TASK_FILE);
        let text = serde_json::to_string_pretty(self).expect("strings and numbers") + "\n";
        std::fs::write(&path, text).map_err(TrainerError::io("write", &path))
    }
}

impl TaskFile {
    /// The task of a folder: that of its file, else of its [other files](Self::of_config).
    ///
    /// # Errors
    /// Those of [`read`](Self::read) and [`of_config`](Self::of_config).
    pub fn of_folder(folder: &Path, config: &PretrainedConfig, tokenizer: &Tokenizer) -> Result<Self> {
        match Self::read(folder)? {
            Some(file) => Ok(file),
            None => Self::of_config(folder, config, tokenizer),
        }
    }

    /// Infers the task of a folder saved by transformers from its other files: `architectures`, `problem_type`
    /// and `id2label`, and the tokenizer's maximum length. Texts with answers are split as in transformers'
    /// examples, in windows of at most 384 tokens.
    ///
    /// # Errors
    /// [`TrainerError::BadTaskFile`] for a model whose task cannot be determined.
    pub fn of_config(folder: &Path, config: &PretrainedConfig, tokenizer: &Tokenizer) -> Result<Self> {
        let task = of_config(config)
            .map_err(|reason| TrainerError::BadTaskFile { path: folder.join("config.json"), reason })?;
        let of_tokenizer =
            tokenizer.config().model_max_length.or(tokenizer.truncation().map(|cut| cut.max_length));
        let mut max_len = of_tokenizer.unwrap_or(usize::MAX).min(config.encoder.max_positions);
        let task = match task {
            TaskSection::Regression { pooling, .. } => {
                TaskSection::Regression { pooling, loss: cross_encoder::loss_of(folder)? }
            }
            TaskSection::Answers { max_answer, n_best, null_threshold, .. } => {
                max_len = max_len.min(Windows::default().max_len);
                // Of 384 these are the 128 and 64 of BERT, and shorter sequences have room for them too.
                let (stride, max_question) = (max_len / 3, max_len / 6);
                TaskSection::Answers { stride, max_question, max_answer, n_best, null_threshold }
            }
            TaskSection::Tagging(section) => {
                let long_sentences = LongSentences::Windows { stride: max_len / 4 };
                TaskSection::Tagging(TaggingSection { long_sentences, ..section })
            }
            other => other,
        };
        Ok(Self { task, max_len, pairs: None })
    }
}

/// The task of a model without a `task.json`, or why it cannot be determined.
fn of_config(config: &PretrainedConfig) -> std::result::Result<TaskSection, String> {
    let mut names: Vec<(&String, usize)> = config.labels.iter().zip(0..).collect();
    names.sort();
    if let Some([(name, first), (_, second)]) = names.array_windows().find(|[(a, _), (b, _)]| a == b) {
        return Err(format!(
            "`id2label` has the name `{name}` for {first} and {second}; give each its own name there, and in `label2id`"
        ));
    }
    match (config.architecture, config.problem_type) {
        (Architecture::SequenceClassification, Some(ProblemType::MultiLabel)) => {
            Ok(TaskSection::MultiLabel { labels: config.labels.clone(), threshold: 0.5, pooling: None })
        }
        (Architecture::SequenceClassification, problem) => match (problem, config.labels.len()) {
            // As transformers decides where the file does not.
            (Some(ProblemType::Regression) | None, 1) => {
                Ok(TaskSection::Regression { pooling: None, loss: ValueLoss::default() })
            }
            (Some(ProblemType::Regression), n) => Err(format!("a regression of {n} numbers; expected one")),
            (Some(ProblemType::SingleLabel), 1) => Err(
                "one class with `problem_type` = \"single_label_classification\", whose probability is always 1; remove \
                 `problem_type` for the sigmoid of its number"
                    .into(),
            ),
            (_, _) => Ok(TaskSection::Classification {
                labels: config.labels.clone(),
                class_weights: Vec::new(),
                label_smoothing: 0.0,
                positive: None,
                pooling: None,
            }),
        },
        (Architecture::TokenClassification, _) => {
            let labels = config.labels.clone();
            // One tag says nothing of what may follow which. Labels that are no tags of entities are classes of words.
            let scheme = match TagScheme::detect(labels.iter().map(std::slice::from_ref)) {
                Ok(TagScheme::Bioes) => TagScheme::Bioes,
                Ok(_) => TagScheme::Bio,
                Err(_) => TagScheme::Words,
            };
            let words = (scheme == TagScheme::Words).then_some(scheme);
            let section = TaggingSection {
                labels,
                scheme: words,
                predict_scheme: Some(scheme),
                ..TaggingSection::default()
            };
            Ok(TaskSection::Tagging(section))
        }
        (Architecture::QuestionAnswering, _) => {
            let Windows { stride, max_question, .. } = Windows::default();
            let AnswerConfig { n_best, max_answer, null_threshold } = AnswerConfig::default();
            Ok(TaskSection::Answers { stride, max_question, max_answer, n_best, null_threshold })
        }
        (Architecture::MultipleChoice, _) => Ok(TaskSection::MultipleChoice {}),
        _ => Err(match config.architectures.iter().find(|name| reads_with_decoder(name)) {
            Some(name) => format!(
                "{name} reads texts with an encoder and a decoder, which is not supported; expected a class of an \
                 encoder or of a left-to-right model"
            ),
            None => format!(
                "cannot determine the task from `architectures` ({}); expected a fine-tuned model",
                config.architectures.join(", ")
            ),
        }),
    }
}

/// Whether a class of transformers is a head on an encoder–decoder.
fn reads_with_decoder(name: &str) -> bool {
    let families = ["T5", "MT5", "Bart", "MBart"];
    let heads = ["ForSequenceClassification", "ForQuestionAnswering"];
    let of = |family: &str| name.strip_prefix(family).is_some_and(|head| heads.contains(&head));
    families.into_iter().any(of)
}

/// Everything saved besides the weights.
pub(super) struct ModelFolder<'a, S> {
    pub family: Family,
    pub encoder: BertConfig,
    pub languages: Vec<String>,
    pub tokenizer: &'a Tokenizer,
    pub file: TaskFile<S>,
    /// The transformers class that reads it.
    pub saved_as: (Architecture, Option<ProblemType>),
    pub labels: Option<&'a LabelSet>,
}

impl<S: Serialize> ModelFolder<'_, S> {
    /// Checks that a model of this encoder can be saved this way, before it is trained.
    ///
    /// # Errors
    /// Those of [`SaveConfig::check`].
    pub fn check(&self) -> Result<()> {
        Ok(self.config().check(&self.encoder)?)
    }

    pub fn save<M: HasBackbone>(&self, model: &M, folder: &Path) -> Result<()> {
        save_pretrained(folder, model, &self.encoder, &self.config())?;
        self.tokenizer.save(folder)?;
        self.file.write(folder)
    }

    /// The configuration to save.
    fn config(&self) -> SaveConfig {
        let (architecture, problem) = self.saved_as;
        let labels = match (self.labels, problem) {
            (Some(labels), _) => labels.names().to_vec(),
            // Where no label is named transformers takes two outputs for granted; it names a number so.
            (None, Some(ProblemType::Regression)) => vec!["LABEL_0".into()],
            (None, _) => Vec::new(),
        };
        SaveConfig::new(architecture)
            .with_family(self.family)
            .with_labels(labels)
            .with_languages(self.languages.clone())
            .with_problem_type(problem)
    }
}
