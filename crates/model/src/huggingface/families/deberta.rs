use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use super::bert;
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, Projection, without_switches};
use super::encoder_keys::{CONVOLUTION_GROUPS, KERNEL};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, DisentangledConfig, ResidualConvolutionConfig};
use serde_json::{Map, Value};

pub(super) struct DebertaV2;

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("hidden_size", 1536),
    n_layers: ("num_hidden_layers", 24),
    n_heads: ("num_attention_heads", 24),
    d_ff: ("intermediate_size", 6144),
    layer_norm_eps: Some(("layer_norm_eps", 1e-7)),
    vocab_size: 128_100,
    token_types: Some((0, 0)),
    has_position_type: false,
    projection: Projection::ToAnotherWidth,
    switch,
    ..bert::FORMAT
};

fn switch(config: BertConfig) -> BertConfig {
    BertConfig {
        absolute_positions: config.absolute_positions,
        disentangled: config.disentangled,
        convolution: config.convolution,
        project_before_norm: config.d_embedding.is_some(),
        ..without_switches(config)
    }
}

/// The key of [`ResidualConvolutionConfig::activation`].
const CONVOLUTION_ACTIVATION: &str = "conv_act";

/// The terms of the scores by their names in `pos_att_type`.
const TERMS: [&str; 2] = ["c2p", "p2c"];

impl FamilyDefinition for DebertaV2 {
    fn name(&self) -> &'static str {
        "DeBERTa v2"
    }

    fn model_type(&self) -> &'static str {
        "deberta-v2"
    }

    fn class_prefix(&self) -> &'static str {
        "DebertaV2"
    }

    fn prefix(&self) -> &'static str {
        "deberta."
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    /// The class's own pooler, whose dropout is 0.
    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        Some(HeadLayer { has_dropout_before: false, ..HeadLayer::new(Activation::Gelu) })
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                Some(("cls_dropout", None))
            }
            _ => None,
        }
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    /// Those of DeBERTa v3.
    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        BertConfig {
            absolute_positions: false,
            disentangled: Some(sizes.disentangled.unwrap_or(DisentangledConfig::v3())),
            n_token_types: 0,
            ..sizes
        }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let encoder = FORMAT.read(fields)?;
        let d_model = encoder.d_model;
        for (key, expected, why) in [
            ("pooler_hidden_size", d_model, "`hidden_size`: a pooler of another width is not supported"),
            (
                "attention_head_size",
                d_model / encoder.n_heads,
                "`hidden_size` divided by `num_attention_heads`: other heads are not supported",
            ),
        ] {
            if let Some(found) = fields.size(key)?.filter(|found| *found != expected) {
                return Err(fields.refuse(key, &found.into(), why));
            }
        }
        if let Some(p) = fields.number("pooler_dropout")?.filter(|p| *p != 0.0) {
            return Err(fields.refuse(
                "pooler_dropout",
                &p.into(),
                "0: dropout before the pooler is not supported",
            ));
        }
        if let Some(name) = fields.text("pooler_hidden_act")?.filter(|name| *name != "gelu") {
            return Err(fields.refuse("pooler_hidden_act", &name.into(), "\"gelu\""));
        }
        // Both ways to call the masked-LM head's tensors are read, and they compute the same.
        fields.flag("legacy")?;
        let d_embedding = match fields.size("embedding_size")? {
            Some(0) => return Err(fields.refuse("embedding_size", &0.into(), "at least 1")),
            found => found,
        };
        Ok(FORMAT.switched(BertConfig {
            absolute_positions: fields.flag("position_biased_input")?.unwrap_or(true),
            disentangled: disentangled(fields, encoder.max_positions)?,
            convolution: convolution(fields)?,
            d_embedding,
            ..encoder
        }))
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        set("position_biased_input", encoder.absolute_positions.into());
        set("relative_attention", encoder.disentangled.is_some().into());
        if let Some(terms) = encoder.disentangled {
            let there = [terms.content_to_position, terms.position_to_content];
            let named = TERMS.iter().zip(there).filter(|(_, there)| *there).map(|(name, _)| *name);
            set("pos_att_type", named.collect::<Vec<_>>().into());
            set("position_buckets", terms.n_buckets.map_or((-1).into(), Value::from));
            set("max_relative_positions", terms.max_distance.into());
            set("share_att_key", terms.share_maps.into());
            set("norm_rel_ebd", if terms.norm { "layer_norm" } else { "none" }.into());
        }
        if let Some(d_embedding) = encoder.d_embedding {
            set("embedding_size", d_embedding.into());
        }
        if let Some(convolution) = encoder.convolution {
            set(KERNEL, convolution.kernel.into());
            set(CONVOLUTION_GROUPS, convolution.n_groups.into());
            set(CONVOLUTION_ACTIVATION, activation_name(convolution.activation).into());
        }
        set("pooler_hidden_size", encoder.d_model.into());
        set("pooler_hidden_act", "gelu".into());
        set("pooler_dropout", 0.into());
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        const LAYER: &str = "encoder.layer.*.";
        let layer = TensorRules::new()
            .linear("attention.self.query_proj", "attention.query")
            .linear("attention.self.key_proj", "attention.key")
            .linear("attention.self.value_proj", "attention.value")
            .linear("attention.self.pos_key_proj", "attention.disentangled.key")
            .linear("attention.self.pos_query_proj", "attention.disentangled.query")
            .linear("attention.output.dense", "attention.output")
            .norm("attention.output.LayerNorm", "attention_norm")
            .linear("intermediate.dense", "feed_forward.up")
            .linear("output.dense", "feed_forward.down")
            .norm("output.LayerNorm", "feed_forward_norm");
        bert::embeddings()
            .linear("embeddings.embed_proj", "embeddings.projection")
            .with(TensorRule::copy("encoder.conv.conv.weight", "encoder.layers.0.convolution.weight"))
            .with(TensorRule::copy("encoder.conv.conv.bias", "encoder.layers.0.convolution.bias"))
            .norm("encoder.conv.LayerNorm", "encoder.layers.0.convolution.norm")
            .table("encoder.rel_embeddings", "embeddings.distances.table")
            .norm("encoder.LayerNorm", "embeddings.distances.norm")
            .and(layer.within(LAYER, "encoder.layers.*."))
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => {
                // The published weights call the head so, and transformers does where `legacy` is false.
                let published = [
                    ("dense.weight", "transform.dense.weight"),
                    ("dense.bias", "transform.dense.bias"),
                    ("LayerNorm.weight", "transform.LayerNorm.weight"),
                    ("LayerNorm.bias", "transform.LayerNorm.bias"),
                    ("bias", "bias"),
                ];
                published.into_iter().fold(bert::masked_lm(), |rules, (name, own)| {
                    let name = format!("lm_predictions.lm_head.{name}");
                    rules.with(TensorRule::tie(&name, &format!("cls.predictions.{own}")))
                })
            }
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                TensorRules::new().linear("pooler.dense", "head.dense").linear("classifier", "head.output")
            }
            other => bert::pooled(other),
        }
    }
}

/// The convolution of the embeddings; none without a kernel.
fn convolution(fields: &Fields) -> Result<Option<ResidualConvolutionConfig>> {
    let n_groups = fields.size(CONVOLUTION_GROUPS)?.unwrap_or(1);
    let activation = fields.text(CONVOLUTION_ACTIVATION)?;
    let Some(kernel) = fields.size(KERNEL)?.filter(|kernel| *kernel > 0) else { return Ok(None) };
    let activation = match activation {
        Some(name) => activation_of(name, CONVOLUTION_ACTIVATION, fields)?,
        None => Activation::Tanh,
    };
    Ok(Some(ResidualConvolutionConfig { kernel, n_groups, activation }))
}

/// The terms of the scores by distance; none without `relative_attention`.
fn disentangled(fields: &Fields, max_positions: usize) -> Result<Option<DisentangledConfig>> {
    let terms = |value: &Value| -> Option<Vec<String>> {
        let names = match value {
            Value::String(names) => names.split('|').map(|name| name.trim().to_lowercase()).collect(),
            Value::Array(names) => {
                names.iter().map(|name| name.as_str().map(str::to_string)).collect::<Option<Vec<_>>>()?
            }
            _ => return None,
        };
        names.iter().all(|name| TERMS.contains(&name.as_str())).then_some(names)
    };
    let expected = "a list of \"c2p\" and \"p2c\"";
    let terms = fields.typed("pos_att_type", expected, terms)?.unwrap_or_default();
    if !fields.flag("relative_attention")?.unwrap_or(false) {
        // The class divides the scores by a number of terms that are not there.
        return match fields.value("pos_att_type") {
            Some(found) if !terms.is_empty() => {
                Err(fields.refuse("pos_att_type", found, "none, as `relative_attention` is not true"))
            }
            _ => Ok(None),
        };
    }
    let [content_to_position, position_to_content] = TERMS.map(|term| terms.iter().any(|name| name == term));
    if terms.is_empty() {
        let found = fields.value("pos_att_type").cloned().unwrap_or_default();
        return Err(fields.refuse("pos_att_type", &found, expected));
    }
    // Numbers below 1 stand for none.
    let size = |key| -> Result<Option<usize>> {
        let found = fields.typed(key, "a whole number", Value::as_i64)?;
        Ok(found.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0))
    };
    let norm = match fields.text("norm_rel_ebd")?.map(str::to_lowercase).as_deref() {
        None | Some("none") => false,
        Some("layer_norm") => true,
        Some(other) => {
            return Err(fields.refuse("norm_rel_ebd", &other.into(), "\"none\" or \"layer_norm\""));
        }
    };
    Ok(Some(DisentangledConfig {
        n_buckets: size("position_buckets")?,
        max_distance: size("max_relative_positions")?.unwrap_or(max_positions),
        content_to_position,
        position_to_content,
        share_maps: fields.flag("share_att_key")?.unwrap_or(false),
        norm,
    }))
}
