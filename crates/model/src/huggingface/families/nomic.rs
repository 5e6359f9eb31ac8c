use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, without_switches};
use super::{bert, rope_parameters};
use crate::Result;
use crate::bert::BertConfig;
use crate::blocks::{Activation, RotaryConfig};
use serde_json::{Map, Value};

pub(super) struct NomicBert;

/// The keys of transformers' class.
const FORMAT: EncoderFormat = EncoderFormat {
    hidden_dropout: ("hidden_dropout_prob", 0.0),
    attention_dropout: ("attention_probs_dropout_prob", 0.0),
    activation: ("hidden_act", Activation::Silu),
    max_positions: ("max_position_embeddings", 2048),
    vocab_size: 30_528,
    has_position_type: false,
    switch,
    ..bert::FORMAT
};

/// The keys of the published folders, which are those of GPT-2 and of the authors' class (`modeling_hf_nomic_bert.py`).
const PUBLISHED: EncoderFormat = EncoderFormat {
    d_model: ("n_embd", 768),
    n_layers: ("n_layer", 12),
    n_heads: ("n_head", 12),
    d_ff: (D_FF, 0),
    hidden_dropout: ("resid_pdrop", 0.1),
    attention_dropout: ("attn_pdrop", 0.1),
    max_positions: ("n_positions", 1024),
    layer_norm_eps: Some(("layer_norm_epsilon", 1e-5)),
    vocab_size: 50_257,
    ..FORMAT
};

const D_FF: &str = "n_inner";
/// The authors' class rounds the width of its gated networks up to a multiple of it.
const WIDTHS: usize = 256;
/// The base of the angles in transformers' class, and in the published models.
const THETA: f64 = 1000.0;
/// The gated networks by the names in `activation_function`.
const GATES: [(Activation, &str); 2] = [(Activation::Silu, "swiglu"), (Activation::Gelu, "geglu")];

fn switch(config: BertConfig) -> BertConfig {
    // One key says it of the maps up, of the masked-LM head's layer and of its output.
    let up_bias = config.feed_forward_up_bias.unwrap_or(config.feed_forward_bias);
    let head_bias = config.head_bias || up_bias;
    let rotary = rope_parameters::describable(config.rotary.as_ref(), THETA);
    BertConfig {
        absolute_positions: false,
        max_positions: rope_parameters::reach(&rotary, config.max_positions),
        rotary: Some(rotary),
        gated: true,
        attention_bias: config.attention_bias,
        feed_forward_bias: config.feed_forward_bias,
        feed_forward_up_bias: config.feed_forward_up_bias.filter(|bias| *bias != config.feed_forward_bias),
        head_bias,
        mlm_bias: head_bias,
        ..without_switches(config)
    }
}

/// Whether a file has the keys of the published folders alone.
fn is_published(fields: &Fields) -> bool {
    fields.has("n_embd") && !fields.has("hidden_size")
}

impl FamilyDefinition for NomicBert {
    fn name(&self) -> &'static str {
        "NomicBERT"
    }

    fn model_type(&self) -> &'static str {
        "nomic_bert"
    }

    fn class_prefix(&self) -> &'static str {
        "NomicBert"
    }

    fn prefix(&self) -> &'static str {
        "nomic_bert."
    }

    /// The authors' class `NomicBertForPreTraining` has the masked-LM head alone.
    fn pretraining_class(&self) -> Option<Architecture> {
        Some(Architecture::MaskedLm)
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

    fn format_of(&self, fields: &Fields) -> &EncoderFormat {
        if is_published(fields) { &PUBLISHED } else { &FORMAT }
    }

    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        BertConfig { attention_bias: false, feed_forward_bias: false, head_bias: false, ..sizes }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        for key in
            ["prenorm", "parallel_block", "use_rms_norm", "causal", "rotary_emb_interleaved", "norm_mlp"]
        {
            fields.fixed(key, false)?;
        }
        for (key, expected) in [
            ("num_experts", "0: mixtures of experts are not supported"),
            ("moe_every_n_layers", "0: mixtures of experts are not supported"),
        ] {
            if let Some(found) = fields.size(key)?.filter(|found| *found > 0) {
                return Err(fields.refuse(key, &found.into(), expected));
            }
        }
        if let Some(found) = fields.value("rotary_scaling_factor") {
            let expected = "null: angles that depend on a batch's longest sequence are not supported";
            return Err(fields.refuse("rotary_scaling_factor", found, expected));
        }
        let published = is_published(fields);
        let (d_model, n_heads) = match published {
            true => (PUBLISHED.d_model, PUBLISHED.n_heads),
            false => (FORMAT.d_model, FORMAT.n_heads),
        };
        let number =
            |(key, default): (&str, usize)| Ok::<_, crate::ModelError>(fields.size(key)?.unwrap_or(default));
        if let (Some(found), Some(d_head)) =
            (fields.size("head_dim")?, number(d_model)?.checked_div(number(n_heads)?))
            && found != d_head
        {
            let expected = format!("{d_head}, or none: heads share the width of the model");
            return Err(fields.refuse("head_dim", &found.into(), &expected));
        }
        let rotated = fields.number("rotary_emb_fraction")?.unwrap_or(if published { 0.0 } else { 1.0 });
        if rotated != 1.0 {
            let expected = "1: rotary positions of all features";
            return Err(fields.refuse("rotary_emb_fraction", &rotated.into(), expected));
        }
        let biased = |key| Ok(fields.flag(key)?.unwrap_or(published));
        let mut encoder = match published {
            true => read_published(fields)?,
            false => {
                let encoder = FORMAT.read(fields)?;
                let rotary = rope_parameters::read(fields, THETA, encoder.max_positions)?;
                BertConfig { rotary: Some(rotary), ..encoder }
            }
        };
        encoder.attention_bias = biased("qkv_proj_bias")?;
        encoder.feed_forward_bias = biased("mlp_fc2_bias")?;
        encoder.feed_forward_up_bias = Some(biased("mlp_fc1_bias")?);
        encoder.head_bias = fields.flag("mlp_fc1_bias")?.unwrap_or(true);
        Ok(switch(encoder))
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        let rotary = encoder.rotary.clone().unwrap_or_default();
        rope_parameters::write(encoder, FORMAT.max_positions.0, config);
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        set("qkv_proj_bias", encoder.attention_bias.into());
        set("mlp_fc2_bias", encoder.feed_forward_bias.into());
        let up_bias = encoder.feed_forward_up_bias.unwrap_or(encoder.feed_forward_bias);
        // Transformers' class has biases in the masked-LM head alone, which no key of the authors' says.
        if up_bias != encoder.head_bias {
            return;
        }
        set("mlp_fc1_bias", up_bias.into());
        // What reads the published folders reads these keys.
        let Some((_, gate)) = GATES.iter().find(|(activation, _)| *activation == encoder.activation) else {
            return;
        };
        if rotary.scaling.is_none() && encoder.d_ff.is_multiple_of(WIDTHS) {
            set("n_embd", encoder.d_model.into());
            set("n_layer", encoder.n_layers.into());
            set("n_head", encoder.n_heads.into());
            set(D_FF, encoder.d_ff.into());
            set("n_positions", encoder.max_positions.into());
            set("activation_function", (*gate).into());
            set("resid_pdrop", encoder.hidden_dropout.into());
            set("embd_pdrop", encoder.hidden_dropout.into());
            set("attn_pdrop", encoder.attention_dropout.into());
            set("layer_norm_epsilon", encoder.layer_norm_eps.into());
            set("rotary_emb_base", rotary.theta.into());
            set("rotary_emb_fraction", 1.0.into());
        }
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        let maps = |kind: &str| ["query", "key", "value"].map(|map| format!("attention.{map}.{kind}"));
        let split = |tensor: &str, parameters: &[String]| {
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            TensorRule::split(tensor, 0, &parameters)
        };
        let layer = TensorRules::new()
            .with(split("attn.Wqkv.weight", &maps("weight")).transposed())
            .with(split("attn.Wqkv.bias", &maps("bias")))
            .linear("attn.out_proj", "attention.output")
            .norm("norm1", "attention_norm")
            .linear("mlp.fc11", "feed_forward.up")
            .linear("mlp.fc12", "feed_forward.gate")
            .linear("mlp.fc2", "feed_forward.down")
            .norm("norm2", "feed_forward_norm");
        TensorRules::new()
            .table("embeddings.word_embeddings", "embeddings.tokens")
            .table("embeddings.token_type_embeddings", "embeddings.token_types")
            .norm("emb_ln", "embeddings.norm")
            .and(layer.within("encoder.layers.*.", "encoder.layers.*."))
            .linear("pooler.dense", "pooler.dense")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("cls.predictions.transform.dense", "mlm.dense")
                .norm("cls.predictions.transform.layer_norm", "mlm.norm")
                .with(TensorRule::copy("cls.predictions.bias", "mlm.bias"))
                .with(TensorRule::tie("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"))
                .with(TensorRule::tie("cls.predictions.decoder.bias", "cls.predictions.bias")),
            other => bert::pooled(other),
        }
    }
}

/// The sizes in a file with the published folders' keys.
fn read_published(fields: &Fields) -> Result<BertConfig> {
    let name = fields.text("activation_function")?.unwrap_or("gelu_new");
    let Some((activation, _)) = GATES.iter().find(|(_, known)| *known == name) else {
        let expected = "\"swiglu\" or \"geglu\": networks without a gate are not supported";
        return Err(fields.refuse("activation_function", &name.into(), expected));
    };
    let positive = |value: &Value| value.as_f64().filter(|theta| *theta > 0.0);
    let theta = fields.typed("rotary_emb_base", "a number above 0", positive)?.unwrap_or(10_000.0);
    let d_model = fields.size("n_embd")?.unwrap_or(PUBLISHED.d_model.1);
    let d_ff = fields.size(D_FF)?.unwrap_or(d_model.saturating_mul(8) / 3);
    let format = EncoderFormat { d_ff: (D_FF, d_ff), ..PUBLISHED };
    let encoder = format.read(fields)?;
    let rows = fields.size("pad_vocab_size_multiple")?.filter(|rows| *rows > 0).unwrap_or(1);
    let rounded = |size: usize, to: usize| size.checked_next_multiple_of(to).unwrap_or(size);
    Ok(BertConfig {
        activation: *activation,
        vocab_size: rounded(encoder.vocab_size, rows),
        d_ff: rounded(encoder.d_ff, WIDTHS),
        rotary: Some(RotaryConfig { theta, ..RotaryConfig::default() }),
        ..encoder
    })
}
