use super::super::{Architecture, TensorRule, TensorRules};
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, FirstPosition, Projection, without_switches};
use crate::bert::BertConfig;
use crate::blocks::Activation;

pub(super) struct Bert;

/// The encoder that the other families are variants of.
pub(super) const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("hidden_size", 768),
    n_layers: ("num_hidden_layers", 12),
    n_heads: ("num_attention_heads", 12),
    d_ff: ("intermediate_size", 3072),
    hidden_dropout: ("hidden_dropout_prob", 0.1),
    attention_dropout: ("attention_probs_dropout_prob", 0.1),
    activation: ("hidden_act", Activation::Gelu),
    activation_is_flag: false,
    max_positions: ("max_position_embeddings", 512),
    layer_norm_eps: Some(("layer_norm_eps", 1e-12)),
    vocab_size: 30_522,
    pad_token_id: 0,
    embedding_size: None,
    token_types: Some((2, 1)),
    token_types_key: "type_vocab_size",
    has_position_type: true,
    has_is_decoder: false,
    has_pruned_heads: false,
    projection: Projection::Never,
    first_position: FirstPosition::Zero,
    share_layers: false,
    attention_output_dropout: true,
    feed_forward_output_dropout: true,
    mlm_activation: None,
    switch: without_switches,
};

/// That of the class itself.
const OWN: EncoderFormat = EncoderFormat { has_is_decoder: true, has_pruned_heads: true, ..FORMAT };

impl FamilyDefinition for Bert {
    fn name(&self) -> &'static str {
        "BERT"
    }

    fn model_type(&self) -> &'static str {
        "bert"
    }

    fn class_prefix(&self) -> &'static str {
        "Bert"
    }

    fn prefix(&self) -> &'static str {
        "bert."
    }

    fn pretraining_class(&self) -> Option<Architecture> {
        Some(Architecture::PreTraining)
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        has_pooler(architecture)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        classifier_dropout(architecture)
    }

    fn format(&self) -> &EncoderFormat {
        &OWN
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        encoder()
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => {
                masked_lm().linear("cls.seq_relationship", "next_sentence.classifier")
            }
            other => pooled(other),
        }
    }
}

/// ALBERT uses it, too.
pub(super) fn has_pooler(architecture: Architecture) -> bool {
    match architecture {
        Architecture::Encoder
        | Architecture::PreTraining
        | Architecture::ReplacedTokens
        | Architecture::SequenceClassification
        | Architecture::MultipleChoice => true,
        Architecture::MaskedLm | Architecture::TokenClassification | Architecture::QuestionAnswering => false,
    }
}

/// RoBERTa uses it, too.
pub(super) fn classifier_dropout(architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
    match architecture {
        Architecture::SequenceClassification
        | Architecture::MultipleChoice
        | Architecture::TokenClassification => Some(("classifier_dropout", None)),
        _ => None,
    }
}

/// The embeddings, which have the same names in all families.
pub(super) fn embeddings() -> TensorRules {
    TensorRules::new()
        .table("embeddings.word_embeddings", "embeddings.tokens")
        .table("embeddings.token_type_embeddings", "embeddings.token_types")
        .table("embeddings.position_embeddings", "embeddings.positions.table")
        .norm("embeddings.LayerNorm", "embeddings.norm")
}

/// The encoder, also of RoBERTa and ELECTRA.
pub(super) fn encoder() -> TensorRules {
    embeddings()
        .linear("encoder.layer.*.attention.self.query", "encoder.layers.*.attention.query")
        .linear("encoder.layer.*.attention.self.key", "encoder.layers.*.attention.key")
        .linear("encoder.layer.*.attention.self.value", "encoder.layers.*.attention.value")
        .linear("encoder.layer.*.attention.output.dense", "encoder.layers.*.attention.output")
        .norm("encoder.layer.*.attention.output.LayerNorm", "encoder.layers.*.attention_norm")
        .linear("encoder.layer.*.intermediate.dense", "encoder.layers.*.feed_forward.up")
        .linear("encoder.layer.*.output.dense", "encoder.layers.*.feed_forward.down")
        .norm("encoder.layer.*.output.LayerNorm", "encoder.layers.*.feed_forward_norm")
        .linear("pooler.dense", "pooler.dense")
}

/// The masked-LM head, also DeBERTa's.
pub(super) fn masked_lm() -> TensorRules {
    TensorRules::new()
        .linear("cls.predictions.transform.dense", "mlm.dense")
        .norm("cls.predictions.transform.LayerNorm", "mlm.norm")
        .with(TensorRule::copy("cls.predictions.bias", "mlm.bias"))
        .with(TensorRule::tie("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"))
        .with(TensorRule::tie("cls.predictions.decoder.bias", "cls.predictions.bias"))
}

/// The heads of classes over the pooler's output, and those with the same names in all families.
pub(super) fn pooled(architecture: Architecture) -> TensorRules {
    match architecture {
        Architecture::SequenceClassification | Architecture::MultipleChoice => {
            TensorRules::new().linear("classifier", "head.output")
        }
        Architecture::TokenClassification => TensorRules::new().linear("classifier", "output"),
        Architecture::QuestionAnswering => TensorRules::new().linear("qa_outputs", "output"),
        Architecture::Encoder
        | Architecture::PreTraining
        | Architecture::ReplacedTokens
        | Architecture::MaskedLm => TensorRules::new(),
    }
}
