use super::super::{Architecture, TensorRule, TensorRules};
use super::{EncoderFormat, Family, FamilyDefinition, bert};
use crate::blocks::Activation;

impl Family {
    /// RoBERTa (Liu et al. 2019): positions start at the padding's id plus 1, and there is one segment.
    pub const ROBERTA: Self = Self(&Roberta);
}

struct Roberta;

const FORMAT: EncoderFormat = EncoderFormat {
    vocab_size: 50_265,
    pad_token_id: 1,
    positions_follow_padding: true,
    mlm_activation: Some(Activation::Gelu),
    ..bert::FORMAT
};

impl FamilyDefinition for Roberta {
    fn name(&self) -> &'static str {
        "RoBERTa"
    }

    fn model_type(&self) -> &'static str {
        "roberta"
    }

    fn class_prefix(&self) -> &'static str {
        "Roberta"
    }

    fn prefix(&self) -> &'static str {
        "roberta."
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        matches!(architecture, Architecture::Encoder | Architecture::MultipleChoice)
    }

    fn dense_activation(&self, architecture: Architecture) -> Option<Activation> {
        (architecture != Architecture::MultipleChoice).then_some(Activation::Tanh)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        bert::classifier_dropout(architecture)
    }

    fn format(&self) -> &'static EncoderFormat {
        &FORMAT
    }

    fn encoder_rules(&self) -> TensorRules {
        bert::encoder()
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("lm_head.dense", "mlm.dense")
                .norm("lm_head.layer_norm", "mlm.norm")
                .with(TensorRule::copy("lm_head.bias", "mlm.bias"))
                .with(TensorRule::tie("lm_head.decoder.weight", "embeddings.word_embeddings.weight"))
                .with(TensorRule::tie("lm_head.decoder.bias", "lm_head.bias")),
            Architecture::SequenceClassification => first_state(),
            other => bert::pooled(other),
        }
    }
}

/// The head of classes over the first token's state, also ELECTRA's.
pub(super) fn first_state() -> TensorRules {
    TensorRules::new().linear("classifier.dense", "head.dense").linear("classifier.out_proj", "head.output")
}
