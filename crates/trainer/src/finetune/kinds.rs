//! The kinds of tasks in configs: the only place that distinguishes them.

use super::answers::AnswerKind;
use super::choices::ChoiceKind;
use super::embedding::kind::EmbeddingKind;
use super::kind::{TaskKind, TaskSettings};
use super::prompt::PromptKind;
use super::section::TaskSection;
use super::tags::TagKind;
use super::texts::TextKind;

impl TaskSettings for TaskSection {
    /// A table without a kind is one too: it gets an error that names the key.
    fn is_of(kind: &str) -> bool {
        kind.is_empty() || Self::KINDS.contains(&kind)
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
