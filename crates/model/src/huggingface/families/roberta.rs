use super::super::{Architecture, TensorRule, TensorRules};
use super::bert;
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, FirstPosition};
use crate::bert::BertConfig;
use crate::blocks::Activation;

pub(super) const ROBERTA: Roberta = Roberta {
    name: "RoBERTa",
    model_type: "roberta",
    class_prefix: "Roberta",
    format: EncoderFormat { vocab_size: 50_265, ..FORMAT },
    ..ROBERTA_LIKE
};

pub(super) const XLM_ROBERTA: Roberta =
    Roberta { name: "XLM-RoBERTa", model_type: "xlm-roberta", class_prefix: "XLMRoberta", ..ROBERTA_LIKE };

pub(super) const CAMEMBERT: Roberta =
    Roberta { name: "CamemBERT", model_type: "camembert", class_prefix: "Camembert", ..ROBERTA_LIKE };

/// Its class reads neither `is_decoder` nor `pruned_heads`.
pub(super) const IBERT: Roberta = Roberta {
    name: "I-BERT",
    model_type: "ibert",
    class_prefix: "IBert",
    prefix: "ibert.",
    format: EncoderFormat { has_is_decoder: false, has_pruned_heads: false, ..FORMAT },
};

const ROBERTA_LIKE: Roberta =
    Roberta { name: "", model_type: "", class_prefix: "", prefix: "roberta.", format: FORMAT };

/// A family whose classes in transformers differ from RoBERTa's in name alone.
pub(super) struct Roberta {
    name: &'static str,
    model_type: &'static str,
    class_prefix: &'static str,
    prefix: &'static str,
    format: EncoderFormat,
}

const FORMAT: EncoderFormat = EncoderFormat {
    pad_token_id: 1,
    first_position: FirstPosition::AfterPadding,
    mlm_activation: Some(Activation::Gelu),
    has_is_decoder: true,
    has_pruned_heads: true,
    ..bert::FORMAT
};

impl FamilyDefinition for Roberta {
    fn name(&self) -> &'static str {
        self.name
    }

    fn model_type(&self) -> &'static str {
        self.model_type
    }

    fn class_prefix(&self) -> &'static str {
        self.class_prefix
    }

    fn prefix(&self) -> &'static str {
        self.prefix
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        matches!(architecture, Architecture::Encoder | Architecture::MultipleChoice)
    }

    fn head_layer(&self, architecture: Architecture) -> Option<HeadLayer> {
        (architecture != Architecture::MultipleChoice).then(|| HeadLayer::new(Activation::Tanh))
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        bert::classifier_dropout(architecture)
    }

    fn format(&self) -> &EncoderFormat {
        &self.format
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        bert::encoder()
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => lm_head(),
            Architecture::SequenceClassification => first_state(),
            other => bert::pooled(other),
        }
    }
}

/// The head of classes over the first token's state, also ELECTRA's.
pub(super) fn first_state() -> TensorRules {
    TensorRules::new().linear("classifier.dense", "head.dense").linear("classifier.out_proj", "head.output")
}

/// The masked-LM head, also MPNet's.
pub(super) fn lm_head() -> TensorRules {
    TensorRules::new()
        .linear("lm_head.dense", "mlm.dense")
        .norm("lm_head.layer_norm", "mlm.norm")
        .with(TensorRule::copy("lm_head.bias", "mlm.bias"))
        .with(TensorRule::tie("lm_head.decoder.weight", "embeddings.word_embeddings.weight"))
        .with(TensorRule::tie("lm_head.decoder.bias", "lm_head.bias"))
}
