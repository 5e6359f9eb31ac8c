/// The head on the encoder: which kind of class in transformers a checkpoint belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// The encoder alone, `BertModel`.
    Encoder,
    /// The heads that BERT and ALBERT are pretrained with, `BertForPreTraining`.
    PreTraining,
    /// The discriminator of replaced tokens, `ElectraForPreTraining`
    ReplacedTokens,
    /// `BertForMaskedLM`
    MaskedLm,
    /// `BertForSequenceClassification`, also for regression
    SequenceClassification,
    /// `BertForMultipleChoice`
    MultipleChoice,
    /// `BertForTokenClassification`
    TokenClassification,
    /// `BertForQuestionAnswering`
    QuestionAnswering,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 8] = [
        Self::Encoder,
        Self::PreTraining,
        Self::ReplacedTokens,
        Self::MaskedLm,
        Self::SequenceClassification,
        Self::MultipleChoice,
        Self::TokenClassification,
        Self::QuestionAnswering,
    ];

    /// The end of the names of its classes.
    pub(super) fn class_suffix(self) -> &'static str {
        match self {
            Self::Encoder => "Model",
            // A family has the one or the other.
            Self::PreTraining | Self::ReplacedTokens => "ForPreTraining",
            Self::MaskedLm => "ForMaskedLM",
            Self::SequenceClassification => "ForSequenceClassification",
            Self::MultipleChoice => "ForMultipleChoice",
            Self::TokenClassification => "ForTokenClassification",
            Self::QuestionAnswering => "ForQuestionAnswering",
        }
    }

    /// Whether there is a masked-LM head.
    pub(super) fn has_mlm(self) -> bool {
        matches!(self, Self::PreTraining | Self::MaskedLm)
    }
}
