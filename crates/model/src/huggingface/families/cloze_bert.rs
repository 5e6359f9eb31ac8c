use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRules};
use super::bert;
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, without_switches};
use crate::bert::BertConfig;
use crate::blocks::PositionsConfig;
use crate::{ModelError, Result};
use serde_json::{Map, Value, json};

/// BERT with positions that no class of transformers has. Everything else is BERT's, the names of tensors too.
pub(super) struct ClozeBert;

const FORMAT: EncoderFormat = EncoderFormat { has_position_type: false, switch, ..bert::FORMAT };

/// The key of the kind of positions, a table with its settings. Without it they are BERT's.
const KEY: &str = "positions";

fn switch(config: BertConfig) -> BertConfig {
    let positions = config.positions().unwrap_or(PositionsConfig::Learned { offset: 0 });
    without_switches(config).with_positions(positions)
}

impl FamilyDefinition for ClozeBert {
    fn name(&self) -> &'static str {
        "BERT with other positions"
    }

    fn model_type(&self) -> &'static str {
        "cloze-bert"
    }

    fn class_prefix(&self) -> &'static str {
        "ClozeBert"
    }

    fn prefix(&self) -> &'static str {
        "bert."
    }

    fn pretraining_class(&self) -> Option<Architecture> {
        bert::Bert.pretraining_class()
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        bert::has_pooler(architecture)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        bert::classifier_dropout(architecture)
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let encoder = FORMAT.read(fields)?;
        let Some(positions) = fields.nested(KEY)? else { return Ok(encoder) };
        if let PositionsConfig::Learned { offset: offset @ 1.. } = positions {
            return Err(fields.refuse("positions.offset", &offset.into(), "0"));
        }
        let encoder = encoder.with_positions(positions);
        encoder.validate_positions().map_err(|error| match error {
            ModelError::Setting { key, found, expected } => {
                let setting = key.split_once('.').map_or(key, |(_, setting)| setting);
                fields.error(&format!("`{KEY}.{setting}` is {found}, expected {expected}"))
            }
            other => other,
        })?;
        Ok(encoder)
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        if let Some(positions) = encoder.positions() {
            config.insert(KEY.into(), json!(positions));
        }
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        bert::encoder()
            .table("embeddings.relative_attention_bias", "embeddings.relative_bias.table")
            .table("encoder.layer.*.attention.self.relative_keys", "encoder.layers.*.attention.relative.keys")
            .table(
                "encoder.layer.*.attention.self.relative_values",
                "encoder.layers.*.attention.relative.values",
            )
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        bert::Bert.head_rules(architecture)
    }
}
