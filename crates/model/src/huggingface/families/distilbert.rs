use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::bert;
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::EncoderFormat;
use crate::bert::BertConfig;
use crate::blocks::Activation;
use serde_json::{Map, Value};

pub(super) struct DistilBert;

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("dim", 768),
    n_layers: ("n_layers", 6),
    n_heads: ("n_heads", 12),
    d_ff: ("hidden_dim", 3072),
    hidden_dropout: ("dropout", 0.1),
    attention_dropout: ("attention_dropout", 0.1),
    activation: ("activation", Activation::Gelu),
    layer_norm_eps: None,
    token_types: None,
    has_position_type: false,
    attention_output_dropout: false,
    has_pruned_heads: true,
    ..bert::FORMAT
};

impl FamilyDefinition for DistilBert {
    fn name(&self) -> &'static str {
        "DistilBERT"
    }

    fn model_type(&self) -> &'static str {
        "distilbert"
    }

    fn class_prefix(&self) -> &'static str {
        "DistilBert"
    }

    fn prefix(&self) -> &'static str {
        "distilbert."
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        Some(HeadLayer { has_dropout_before: false, ..HeadLayer::new(Activation::Relu) })
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                Some(("seq_classif_dropout", Some(0.2)))
            }
            Architecture::QuestionAnswering => Some(("qa_dropout", Some(0.1))),
            _ => None,
        }
    }

    fn is_told_by(&self, fields: &Fields) -> bool {
        fields.value("dim").is_some() && fields.value("n_layers").is_some()
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        config.insert("sinusoidal_pos_embds".into(), false.into());
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        bert::embeddings()
            .linear("transformer.layer.*.attention.q_lin", "encoder.layers.*.attention.query")
            .linear("transformer.layer.*.attention.k_lin", "encoder.layers.*.attention.key")
            .linear("transformer.layer.*.attention.v_lin", "encoder.layers.*.attention.value")
            .linear("transformer.layer.*.attention.out_lin", "encoder.layers.*.attention.output")
            .norm("transformer.layer.*.sa_layer_norm", "encoder.layers.*.attention_norm")
            .linear("transformer.layer.*.ffn.lin1", "encoder.layers.*.feed_forward.up")
            .linear("transformer.layer.*.ffn.lin2", "encoder.layers.*.feed_forward.down")
            .norm("transformer.layer.*.output_layer_norm", "encoder.layers.*.feed_forward_norm")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("vocab_transform", "mlm.dense")
                .norm("vocab_layer_norm", "mlm.norm")
                .with(TensorRule::copy("vocab_projector.bias", "mlm.bias"))
                .with(TensorRule::tie("vocab_projector.weight", "embeddings.word_embeddings.weight")),
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                TensorRules::new().linear("pre_classifier", "head.dense").linear("classifier", "head.output")
            }
            other => bert::pooled(other),
        }
    }
}
