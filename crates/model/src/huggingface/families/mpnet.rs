use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRules};
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, FirstPosition, without_switches};
use super::encoder_keys::IS_DECODER;
use super::{bert, roberta};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, RelativeBiasConfig};
use serde_json::{Map, Value};

pub(super) struct MpNet;

const FORMAT: EncoderFormat = EncoderFormat {
    vocab_size: 30_527,
    pad_token_id: PADDING,
    token_types: None,
    has_position_type: false,
    first_position: FirstPosition::AfterPadding,
    mlm_activation: Some(Activation::Gelu),
    switch,
    ..bert::FORMAT
};

/// The id that the class takes for padding, whatever its configuration says.
const PADDING: usize = 1;
/// The key of the number of buckets. The class always computes as many as its default, and 128 is fixed in it.
const BUCKETS: &str = "relative_attention_num_buckets";
const BIAS: RelativeBiasConfig = RelativeBiasConfig { n_buckets: 32, max_distance: 128 };

fn switch(config: BertConfig) -> BertConfig {
    let position_offset = PADDING + 1;
    BertConfig {
        pad_token_id: PADDING,
        position_offset,
        relative_bias: Some(BIAS),
        ..without_switches(config)
    }
}

impl FamilyDefinition for MpNet {
    fn name(&self) -> &'static str {
        "MPNet"
    }

    fn model_type(&self) -> &'static str {
        "mpnet"
    }

    fn class_prefix(&self) -> &'static str {
        "MPNet"
    }

    fn prefix(&self) -> &'static str {
        "mpnet."
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        matches!(architecture, Architecture::Encoder | Architecture::MultipleChoice)
    }

    fn head_layer(&self, architecture: Architecture) -> Option<HeadLayer> {
        (architecture != Architecture::MultipleChoice).then(|| HeadLayer::new(Activation::Tanh))
    }

    /// All heads have the encoder's dropout.
    fn head_dropout(&self, _: Architecture) -> Option<(&'static str, Option<f64>)> {
        None
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        for (key, expected, why) in [
            (BUCKETS, BIAS.n_buckets, "32, as many as transformers' class computes"),
            ("pad_token_id", PADDING, "1, which transformers' class takes for padding in any case"),
        ] {
            if let Some(found) = fields.size(key)?.filter(|found| *found != expected) {
                return Err(fields.refuse(key, &found.into(), why));
            }
        }
        // Transformers 4 computes from left to right then, transformers 5 in both directions.
        fields.fixed(IS_DECODER, false)?;
        FORMAT.read(fields)
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        config.insert(BUCKETS.into(), BIAS.n_buckets.into());
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        const LAYER: &str = "encoder.layer.*.";
        let layer = TensorRules::new()
            .linear("attention.attn.q", "attention.query")
            .linear("attention.attn.k", "attention.key")
            .linear("attention.attn.v", "attention.value")
            .linear("attention.attn.o", "attention.output")
            .norm("attention.LayerNorm", "attention_norm")
            .linear("intermediate.dense", "feed_forward.up")
            .linear("output.dense", "feed_forward.down")
            .norm("output.LayerNorm", "feed_forward_norm");
        bert::embeddings()
            .table("encoder.relative_attention_bias", "embeddings.relative_bias.table")
            .and(layer.within(LAYER, "encoder.layers.*."))
            .linear("pooler.dense", "pooler.dense")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => roberta::lm_head(),
            Architecture::SequenceClassification => roberta::first_state(),
            other => bert::pooled(other),
        }
    }
}
