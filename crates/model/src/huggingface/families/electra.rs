use super::super::fields::Fields;
use super::super::{Architecture, TensorRule, TensorRules};
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, Projection};
use super::{bert, roberta};
use crate::bert::BertConfig;
use crate::blocks::Activation;

pub(super) struct Electra;

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("hidden_size", 256),
    n_heads: ("num_attention_heads", 4),
    d_ff: ("intermediate_size", 1024),
    embedding_size: Some(128),
    projection: Projection::ToAnotherWidth,
    mlm_activation: Some(Activation::Gelu),
    has_is_decoder: true,
    has_pruned_heads: true,
    ..bert::FORMAT
};

impl FamilyDefinition for Electra {
    fn name(&self) -> &'static str {
        "ELECTRA"
    }

    fn model_type(&self) -> &'static str {
        "electra"
    }

    fn class_prefix(&self) -> &'static str {
        "Electra"
    }

    fn prefix(&self) -> &'static str {
        "electra."
    }

    /// The class of the discriminator.
    fn pretraining_class(&self) -> Option<Architecture> {
        Some(Architecture::ReplacedTokens)
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        Some(HeadLayer::new(Activation::Gelu))
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::MultipleChoice => Some(("summary_last_dropout", Some(0.1))),
            other => bert::classifier_dropout(other),
        }
    }

    fn is_told_by(&self, fields: &Fields) -> bool {
        fields.value("embedding_size").is_some()
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        bert::encoder().linear("embeddings_project", "embeddings.projection")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            // The generator's class.
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("generator_predictions.dense", "mlm.dense")
                .norm("generator_predictions.LayerNorm", "mlm.norm")
                .with(TensorRule::copy("generator_lm_head.bias", "mlm.bias"))
                .with(TensorRule::tie("generator_lm_head.weight", "embeddings.word_embeddings.weight")),
            Architecture::ReplacedTokens => TensorRules::new()
                .linear("discriminator_predictions.dense", "head.dense")
                .linear("discriminator_predictions.dense_prediction", "head.output"),
            Architecture::SequenceClassification => roberta::first_state(),
            Architecture::MultipleChoice => TensorRules::new()
                .linear("sequence_summary.summary", "head.dense")
                .linear("classifier", "head.output"),
            other => bert::pooled(other),
        }
    }
}
