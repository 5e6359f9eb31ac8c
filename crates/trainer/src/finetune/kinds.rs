//! The kinds of tasks that a config can name: the one place that tells them apart.

use super::answers::AnswerKind;
use super::choices::ChoiceKind;
use super::embedding::kind::EmbeddingKind;
use super::kind::{TaskKind, TaskSettings};
use super::prompt::PromptKind;
use super::section::TaskSection;
use super::tags::TagKind;
use super::texts::TextKind;

impl TaskSettings for TaskSection {
    /// All: what is none of these is told with their names.
    fn is_of(_: &str) -> bool {
        true
    }

    fn kind(&self) -> Box<dyn TaskKind + '_> {
        match self {
            Self::Classification { .. } | Self::Regression { .. } | Self::MultiLabel { .. } => {
                Box::new(TextKind(self))
            }
            Self::Answers { .. } => Box::new(AnswerKind(self)),
            Self::MultipleChoice {} => Box::new(ChoiceKind),
            Self::Tagging(section) => Box::new(TagKind(section)),
            Self::Embedding(section) => Box::new(EmbeddingKind(section)),
            Self::Prompt(section) => Box::new(PromptKind(section)),
        }
    }
}
