//! A fine-tuned model's folder: what transformers reads, and beside it which task it is.

use super::config::TaskSection;
use crate::{Result, TrainerError};
use burn::module::Module;
use cloze_data::labelled::LabelSet;
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Architecture, ProblemType, SaveConfig, save_pretrained};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file's name in a model's folder.
pub const TASK_FILE: &str = "task.json";

/// What `config.json` has no place for, as a model's folder keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFile {
    /// The task; its labels are those of `config.json` too.
    pub task: TaskSection,
    /// Tokens of a sequence at most.
    pub max_len: usize,
}

impl TaskFile {
    /// Reads a folder's; none where it has no such file.
    ///
    /// # Errors
    /// [`TrainerError::Io`], and [`TrainerError::BadTaskFile`] for a file that is none.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(TASK_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| TrainerError::BadTaskFile { path, reason: error.to_string() })
    }
}

/// What is saved beside the weights.
pub(super) struct ModelFolder<'a> {
    pub encoder: &'a BertConfig,
    pub tokenizer: &'a Tokenizer,
    pub file: &'a TaskFile,
    pub labels: Option<&'a LabelSet>,
}

impl ModelFolder<'_> {
    pub fn save<M: Module>(&self, model: &M, folder: &Path) -> Result<()> {
        let (architecture, problem) = match self.file.task {
            TaskSection::Classification { .. } => {
                (Architecture::SequenceClassification, Some(ProblemType::SingleLabel))
            }
            TaskSection::Regression { .. } => {
                (Architecture::SequenceClassification, Some(ProblemType::Regression))
            }
            TaskSection::Answers { .. } => (Architecture::QuestionAnswering, None),
            TaskSection::MultipleChoice {} => (Architecture::MultipleChoice, None),
            TaskSection::Tagging(_) => (Architecture::TokenClassification, None),
            TaskSection::Prompt(_) => (Architecture::MaskedLm, None),
        };
        let save = SaveConfig {
            labels: self.labels.map_or_else(Vec::new, |labels| labels.names().to_vec()),
            problem_type: problem,
            ..SaveConfig::new(architecture)
        };
        save_pretrained(folder, model, self.encoder, &save)?;
        self.tokenizer.save(folder)?;
        let path = folder.join(TASK_FILE);
        let text = serde_json::to_string_pretty(self.file).expect("strings and numbers") + "\n";
        std::fs::write(&path, text).map_err(TrainerError::io("write", &path))
    }
}
