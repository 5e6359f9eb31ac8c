use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::bert;
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, Projection};
use super::encoder_keys::{GROUPS, INNER_LAYERS};
use crate::Result;
use crate::bert::{BertConfig, LayerGroups};
use crate::blocks::Activation;
use serde_json::{Map, Value};

pub(super) struct Albert;

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
        let groups = LayerGroups {
            n_groups: fields.size(GROUPS)?.unwrap_or(1),
            n_inner_layers: fields.size(INNER_LAYERS)?.unwrap_or(1),
        };
        let layer_groups = Some(groups).filter(|groups| *groups != LayerGroups::ONE);
        Ok(BertConfig { layer_groups, ..FORMAT.read(fields)? })
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        let groups = encoder.layer_groups.unwrap_or(LayerGroups::ONE);
        config.insert(GROUPS.into(), groups.n_groups.into());
        config.insert(INNER_LAYERS.into(), groups.n_inner_layers.into());
    }

    fn encoder_rules(&self, encoder: &BertConfig) -> TensorRules {
        let LayerGroups { n_groups, n_inner_layers } = encoder.layer_groups.unwrap_or(LayerGroups::ONE);
        let layer = TensorRules::new()
            .linear("attention.query", "attention.query")
            .linear("attention.key", "attention.key")
            .linear("attention.value", "attention.value")
            .linear("attention.dense", "attention.output")
            .norm("attention.LayerNorm", "attention_norm")
            .linear("ffn", "feed_forward.up")
            .linear("ffn_output", "feed_forward.down")
            .norm("full_layer_layer_norm", "feed_forward_norm");
        // Each layer's place in the file, and its number in the model; `*` is the same part in both.
        let places: Vec<(String, String)> = match (n_groups, n_inner_layers) {
            (1, _) => vec![("0.albert_layers.*".into(), "*".into())],
            (_, 1) => vec![("*.albert_layers.0".into(), "*".into())],
            _ => (0..n_groups * n_inner_layers)
                .map(|number| {
                    let (group, inner) = (number / n_inner_layers, number % n_inner_layers);
                    (format!("{group}.albert_layers.{inner}"), number.to_string())
                })
                .collect(),
        };
        let layers = places.into_iter().map(|(place, number)| {
            let tensors = format!("encoder.albert_layer_groups.{place}.");
            layer.clone().within(&tensors, &format!("encoder.layers.{number}."))
        });
        let layers = layers.fold(TensorRules::new(), TensorRules::and);
        bert::embeddings()
            .linear("encoder.embedding_hidden_mapping_in", "embeddings.projection")
            .and(layers)
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
