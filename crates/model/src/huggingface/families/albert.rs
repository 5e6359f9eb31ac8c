use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::encoder_format::Projection;
use super::{EncoderFormat, Family, FamilyDefinition, bert};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::Activation;
use serde_json::{Map, Value};

impl Family {
    /// ALBERT (Lan et al. 2020): one layer applied many times, and narrow embeddings.
    pub const ALBERT: Self = Self(&Albert);
}

struct Albert;

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("hidden_size", 4096),
    n_heads: ("num_attention_heads", 64),
    d_ff: ("intermediate_size", 16_384),
    hidden_dropout: ("hidden_dropout_prob", 0.0),
    attention_dropout: ("attention_probs_dropout_prob", 0.0),
    activation: ("hidden_act", Activation::GeluTanh),
    vocab_size: 30_000,
    embedding_size: Some(128),
    projection: Projection::Always,
    share_layers: true,
    feed_forward_output_dropout: false,
    ..bert::FORMAT
};

/// The numbers of layer groups and of layers in each. This crate builds one of each.
const GROUPS: [&str; 2] = ["num_hidden_groups", "inner_group_num"];

impl FamilyDefinition for Albert {
    fn name(&self) -> &'static str {
        "ALBERT"
    }

    fn model_type(&self) -> &'static str {
        "albert"
    }

    fn class_prefix(&self) -> &'static str {
        "Albert"
    }

    fn prefix(&self) -> &'static str {
        "albert."
    }

    fn pretraining_class(&self) -> Option<Architecture> {
        Some(Architecture::PreTraining)
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        bert::has_pooler(architecture)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::SequenceClassification
            | Architecture::MultipleChoice
            | Architecture::TokenClassification => Some(("classifier_dropout_prob", Some(0.1))),
            _ => None,
        }
    }

    fn is_told_by(&self, fields: &Fields) -> bool {
        fields.value("embedding_size").is_some() && fields.value("num_hidden_groups").is_some()
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        for key in GROUPS {
            let n = fields.size(key)?.unwrap_or(1);
            if n != 1 {
                return Err(fields.refuse(key, &n.into(), "1: all layers share one set of parameters"));
            }
        }
        FORMAT.read(fields)
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        config.extend(GROUPS.map(|key| (key.to_string(), 1.into())));
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        const LAYER: &str = "encoder.albert_layer_groups.0.albert_layers.*.";
        let layer = TensorRules::new()
            .linear("attention.query", "attention.query")
            .linear("attention.key", "attention.key")
            .linear("attention.value", "attention.value")
            .linear("attention.dense", "attention.output")
            .norm("attention.LayerNorm", "attention_norm")
            .linear("ffn", "feed_forward.up")
            .linear("ffn_output", "feed_forward.down")
            .norm("full_layer_layer_norm", "feed_forward_norm");
        bert::embeddings()
            .linear("encoder.embedding_hidden_mapping_in", "embeddings.projection")
            .and(layer.within(LAYER, "encoder.layers.*."))
            .linear("pooler", "pooler.dense")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("predictions.dense", "mlm.dense")
                .norm("predictions.LayerNorm", "mlm.norm")
                .with(TensorRule::copy("predictions.bias", "mlm.bias"))
                .linear("sop_classifier.classifier", "next_sentence.classifier")
                .with(TensorRule::tie("predictions.decoder.weight", "embeddings.word_embeddings.weight"))
                .with(TensorRule::tie("predictions.decoder.bias", "predictions.bias")),
            other => bert::pooled(other),
        }
    }
}
