use crate::ParamInit;
use crate::bert::{BertConfig, Family};
use crate::blocks::Activation;
use crate::tasks::SequenceHead;

/// What stands on the encoder: which of transformers' classes a checkpoint belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// The encoder alone, `BertModel`.
    Encoder,
    /// The heads that BERT and ALBERT are pretrained with, `BertForPreTraining`.
    PreTraining,
    /// `BertForMaskedLM`
    MaskedLm,
    /// `BertForSequenceClassification`, regression too.
    SequenceClassification,
    /// `BertForMultipleChoice`
    MultipleChoice,
    /// `BertForTokenClassification`
    TokenClassification,
    /// `BertForQuestionAnswering`
    QuestionAnswering,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Encoder,
        Self::PreTraining,
        Self::MaskedLm,
        Self::SequenceClassification,
        Self::MultipleChoice,
        Self::TokenClassification,
        Self::QuestionAnswering,
    ];

    /// The name of transformers' class. A family without a class for two pretraining heads has the masked
    /// LM's.
    pub fn name(self, family: Family) -> String {
        let two_heads = matches!(family, Family::Bert | Family::Albert);
        let head = match self {
            Self::Encoder => "Model",
            Self::PreTraining if two_heads => "ForPreTraining",
            Self::PreTraining | Self::MaskedLm => "ForMaskedLM",
            Self::SequenceClassification => "ForSequenceClassification",
            Self::MultipleChoice => "ForMultipleChoice",
            Self::TokenClassification => "ForTokenClassification",
            Self::QuestionAnswering => "ForQuestionAnswering",
        };
        format!("{}{head}", class_prefix(family))
    }

    /// The family and architecture of a class of transformers; none for a class without a counterpart here.
    ///
    /// ELECTRA's discriminator, `ElectraForPreTraining`, is an encoder here.
    pub fn parse(name: &str) -> Option<(Family, Self)> {
        if name == "ElectraForPreTraining" {
            return Some((Family::Electra, Self::Encoder));
        }
        let mut pairs = Family::ALL.into_iter().flat_map(|family| Self::ALL.map(|head| (family, head)));
        // The last one: a name that two have is the masked LM's.
        pairs.rfind(|(family, head)| head.name(*family) == name)
    }

    /// A new head over sequences as the family's class has it, for
    /// [sequence classification](Self::SequenceClassification) and [multiple choice](Self::MultipleChoice).
    pub fn sequence_head(
        self,
        encoder: &BertConfig,
        n_outputs: usize,
        dropout: f64,
        init: &mut ParamInit,
    ) -> SequenceHead {
        let head = SequenceHead::new(encoder.d_model, n_outputs, dropout, init);
        match (encoder.family, self) {
            (Family::Bert | Family::Albert, _) | (Family::Roberta, Self::MultipleChoice) => head,
            (Family::Roberta, _) => head.with_dense(Activation::Tanh, init),
            (Family::DistilBert, _) => head.with_dense(Activation::Relu, init),
            (Family::Electra, _) => head.with_dense(Activation::Gelu, init),
        }
    }

    /// Whether transformers' class has a pooler.
    pub(super) fn has_pooler(self, family: Family) -> bool {
        match (family, self) {
            (Family::DistilBert | Family::Electra, _) => false,
            (_, Self::Encoder | Self::MultipleChoice) => true,
            (Family::Roberta, _) => false,
            (_, Self::PreTraining | Self::SequenceClassification) => true,
            (_, Self::MaskedLm | Self::TokenClassification | Self::QuestionAnswering) => false,
        }
    }

    /// Whether there is a masked-LM head.
    pub(super) fn has_mlm(self) -> bool {
        matches!(self, Self::PreTraining | Self::MaskedLm)
    }
}

/// What the names of a family's classes begin with.
pub(super) fn class_prefix(family: Family) -> &'static str {
    match family {
        Family::Bert => "Bert",
        Family::Roberta => "Roberta",
        Family::DistilBert => "DistilBert",
        Family::Albert => "Albert",
        Family::Electra => "Electra",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for family in Family::ALL {
            for architecture in Architecture::ALL {
                let name = architecture.name(family);
                let (found_family, found) = Architecture::parse(&name).unwrap();
                assert_eq!((found_family, found.name(family)), (family, name));
            }
        }
        assert_eq!(Architecture::MaskedLm.name(Family::DistilBert), "DistilBertForMaskedLM");
        let parsed = Architecture::parse("RobertaForMaskedLM");
        assert_eq!(parsed, Some((Family::Roberta, Architecture::MaskedLm)));
        assert_eq!(
            Architecture::parse("ElectraForPreTraining"),
            Some((Family::Electra, Architecture::Encoder))
        );
        assert_eq!(Architecture::parse("GPT2LMHeadModel"), None);
    }
}
