use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::definition::{AuthorsNames, FamilyDefinition};
use super::encoder_format::{EncoderFormat, without_switches};
use super::{bert, rope_parameters};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, RotaryConfig, RotaryScaling};
use serde_json::{Map, Value};

pub(super) struct Gte;

const FORMAT: EncoderFormat = EncoderFormat {
    attention_dropout: ("attention_probs_dropout_prob", 0.0),
    max_positions: ("max_position_embeddings", 8192),
    vocab_size: 250_048,
    pad_token_id: 1,
    token_types: Some((1, 0)),
    has_position_type: false,
    mlm_activation: Some(Activation::Gelu),
    switch,
    ..bert::FORMAT
};

/// The same keys with the defaults of the authors' class.
const NEW: EncoderFormat = EncoderFormat {
    max_positions: ("max_position_embeddings", 2048),
    vocab_size: 30_528,
    pad_token_id: 0,
    ..FORMAT
};

/// The authors' name of the family, in `model_type`.
const NEW_TYPE: &str = "new";
/// The base of the angles in transformers' class.
const THETA: f64 = 160_000.0;

fn switch(config: BertConfig) -> BertConfig {
    let rotary = rope_parameters::describable(config.rotary.as_ref(), THETA);
    BertConfig {
        absolute_positions: false,
        max_positions: rope_parameters::reach(&rotary, config.max_positions),
        rotary: Some(rotary),
        gated: true,
        feed_forward_up_bias: Some(false),
        feed_forward_dropout: config.hidden_dropout,
        ..without_switches(config)
    }
}

impl FamilyDefinition for Gte {
    fn name(&self) -> &'static str {
        "GTE"
    }

    fn model_type(&self) -> &'static str {
        "gte"
    }

    fn authors_names(&self) -> Option<AuthorsNames> {
        Some(AuthorsNames { model_type: NEW_TYPE, class_prefix: "New", prefix: "new." })
    }

    fn class_prefix(&self) -> &'static str {
        "Gte"
    }

    fn prefix(&self) -> &'static str {
        "gte."
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        use Architecture::{Encoder, MultipleChoice, SequenceClassification};
        matches!(architecture, Encoder | SequenceClassification | MultipleChoice)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        bert::classifier_dropout(architecture)
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        match fields.text("model_type")? {
            Some(NEW_TYPE) => read_new(fields),
            _ => {
                let encoder = FORMAT.read(fields)?;
                let rotary = rope_parameters::read(fields, THETA, encoder.max_positions)?;
                Ok(switch(BertConfig { rotary: Some(rotary), ..encoder }))
            }
        }
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        rope_parameters::write(encoder, FORMAT.max_positions.0, config);
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        let maps = |kind: &str| ["query", "key", "value"].map(|map| format!("attention.{map}.{kind}"));
        let split = |tensor: &str, parameters: &[String]| {
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            TensorRule::split(tensor, 0, &parameters)
        };
        let up_and_gate = ["up", "gate"].map(|map| format!("feed_forward.{map}.weight"));
        let layer = TensorRules::new()
            .with(split("attention.qkv_proj.weight", &maps("weight")).transposed())
            .with(split("attention.qkv_proj.bias", &maps("bias")))
            .linear("attention.o_proj", "attention.output")
            .norm("attn_ln", "attention_norm")
            .with(split("mlp.up_gate_proj.weight", &up_and_gate).transposed())
            .linear("mlp.down_proj", "feed_forward.down")
            .norm("mlp_ln", "feed_forward_norm");
        bert::embeddings()
            .and(layer.within("encoder.layer.*.", "encoder.layers.*."))
            .linear("pooler.dense", "pooler.dense")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("lm_head.dense", "mlm.dense")
                .norm("lm_head.norm", "mlm.norm")
                .with(TensorRule::copy("lm_head.decoder.bias", "mlm.bias"))
                .with(TensorRule::tie("lm_head.decoder.weight", "embeddings.word_embeddings.weight")),
            other => bert::pooled(other),
        }
    }
}

/// The encoder of a folder of the authors' class. How it packs tokens and computes attention changes no result, so these
/// keys are not read.
fn read_new(fields: &Fields) -> Result<BertConfig> {
    for (key, only) in
        [("position_embedding_type", "rope"), ("layer_norm_type", "layer_norm"), ("hidden_act", "gelu")]
    {
        if let Some(found) = fields.text(key)?.filter(|found| *found != only) {
            return Err(fields.refuse(key, &found.into(), &format!("\"{only}\"")));
        }
    }
    fields.fixed("pack_qkv", true)?;
    fields.fixed("logn_attention_scale", false)?;
    let positive = |value: &Value| value.as_f64().filter(|theta| *theta > 0.0);
    let theta = fields.typed("rope_theta", "a number above 0", positive)?.unwrap_or(10_000.0);
    let encoder = NEW.read(fields)?;
    // `read` of the folder's configuration says what is wrong with the number of heads.
    let d_k = encoder.d_model / encoder.n_heads;
    let rotary = match ntk_factor(fields)? {
        Some(factor) => ntk(theta, factor, d_k),
        None => RotaryConfig { theta, ..RotaryConfig::default() },
    };
    Ok(BertConfig { rotary: Some(rotary), ..encoder })
}

/// The factor of the scaling called `ntk`; none without a scaling.
fn ntk_factor(fields: &Fields) -> Result<Option<f64>> {
    let Some(table) = fields.typed("rope_scaling", "a table", Value::as_object)? else { return Ok(None) };
    let refuse = |key: &str, expected: &str| {
        let found = table.get(key).unwrap_or(&Value::Null);
        Err(fields.refuse(&format!("rope_scaling.{key}"), found, expected))
    };
    if table.get("type").and_then(Value::as_str) != Some("ntk") {
        return refuse("type", "\"ntk\"");
    }
    if table.get("mixed_b").is_some_and(|found| !found.is_null()) {
        return refuse("mixed_b", "none: mixed scaling is not supported");
    }
    // The class scales nothing for a factor up to 1.
    match table.get("factor").and_then(Value::as_f64).filter(|factor| *factor >= 1.0) {
        Some(factor) => Ok(Some(factor).filter(|factor| *factor > 1.0)),
        None => refuse("factor", "a number, 1 or more"),
    }
}

/// Fixed NTK scaling by `s`, whatever the sequence's length: the base `θ · s`, and all angles divided by `s^(2/d)`, which
/// is a linear scaling.
fn ntk(theta: f64, s: f64, d_k: usize) -> RotaryConfig {
    let scaling = RotaryScaling::Linear { factor: s.powf(2.0 / d_k.max(1) as f64) };
    RotaryConfig { theta: theta * s, scaling: Some(scaling), ..RotaryConfig::default() }
}
