use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRule, TensorRules};
use super::activations::activation_of;
use super::bert;
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, without_switches};
use super::layer_types::{self, FULL, LAYER_TYPES, SLIDING};
use super::rope_parameters::{self, ORIGINAL, PARAMETERS, SCALING, THETA, Table};
use crate::Result;
use crate::bert::{BertConfig, LocalAttention, Pooling};
use crate::blocks::{Activation, NormPlacement, RotaryConfig};
use serde_json::{Map, Value};

pub(super) struct ModernBert;

const FORMAT: EncoderFormat = EncoderFormat {
    n_layers: ("num_hidden_layers", 22),
    d_ff: ("intermediate_size", 1152),
    hidden_dropout: ("embedding_dropout", 0.0),
    attention_dropout: ("attention_dropout", 0.0),
    activation: ("hidden_activation", Activation::Gelu),
    max_positions: ("max_position_embeddings", 8192),
    layer_norm_eps: Some(("norm_eps", 1e-5)),
    vocab_size: 50_368,
    pad_token_id: 50_283,
    token_types: None,
    has_position_type: false,
    attention_output_dropout: false,
    feed_forward_output_dropout: false,
    mlm_activation: Some(Activation::Gelu),
    switch,
    ..bert::FORMAT
};

const GLOBAL: (&str, f64) = ("global_rope_theta", 160_000.0);
const LOCAL: (&str, f64) = ("local_rope_theta", 10_000.0);
const EVERY: (&str, usize) = ("global_attn_every_n_layers", 3);

/// The switches that the class fixes; the others stay as they are.
fn switch(config: BertConfig) -> BertConfig {
    let global = rope_parameters::describable(config.rotary.as_ref(), GLOBAL.1);
    let local = config
        .local
        .clone()
        .unwrap_or(LocalAttention { theta: Some(LOCAL.1), ..LocalAttention::new(64, EVERY.1) });
    let rotary = local.rotary(&global);
    BertConfig {
        absolute_positions: false,
        max_positions: rope_parameters::reach(&global, config.max_positions),
        local: Some(with_rotary(local, rope_parameters::describable(Some(&rotary), LOCAL.1), &global)),
        rotary: Some(global),
        gated: true,
        attention_bias: config.attention_bias,
        feed_forward_bias: config.feed_forward_bias,
        norm: NormPlacement::Pre,
        norm_bias: config.norm_bias,
        first_norm: false,
        attention_dropout_on_output: true,
        feed_forward_dropout: config.feed_forward_dropout,
        head_bias: config.head_bias,
        mlm_bias: config.mlm_bias,
        pooling: Some(match config.pooling {
            Some(Pooling::Mean) => Pooling::Mean,
            _ => Pooling::Cls,
        }),
        ..without_switches(config)
    }
}

/// Local layers with these rotary positions, beside those of the others.
fn with_rotary(local: LocalAttention, rotary: RotaryConfig, global: &RotaryConfig) -> LocalAttention {
    let same = rotary.scaling == global.scaling;
    let theta = Some(rotary.theta).filter(|theta| same && *theta != global.theta);
    LocalAttention { theta, rotary: Some(rotary).filter(|_| !same), ..local }
}

/// The rotary positions of the layers that see everything, and of the local ones.
///
/// The old keys give both the same scaling.
fn read_rotary(fields: &Fields, max_positions: usize) -> Result<[RotaryConfig; 2]> {
    let theta = |(key, default): (&str, f64)| {
        Ok::<_, crate::ModelError>(match fields.has(key) {
            // Null stands for the same as in the other layers.
            true if key == LOCAL.0 && fields.value(key).is_none() => None,
            _ => Some(rope_parameters::read_theta(fields, key)?.unwrap_or(default)),
        })
    };
    let (global, local) = (theta(GLOBAL)?.unwrap_or(GLOBAL.1), theta(LOCAL)?);
    if let Some(found) = rope_parameters::read_theta(fields, THETA)?.filter(|found| *found != global) {
        // In transformers 4 it is the same key, and transformers 5 does not read it.
        let expected = format!("{global} as in `{}`, or none", GLOBAL.0);
        return Err(fields.refuse(THETA, &found.into(), &expected));
    }
    let (tables, scaling) = (Table::of(fields, PARAMETERS)?, Table::of(fields, SCALING)?);
    if let Some(key) = tables.keys().find(|key| ![FULL, SLIDING].contains(key)) {
        let expected = format!("none: there is a table for `{FULL}` and one for `{SLIDING}`");
        return Err(tables.refuse(key, &expected));
    }
    // Here transformers 5 keeps its default, and transformers 4 follows it.
    if scaling.value("rope_type").is_none() && scaling.value("type").is_some_and(|kind| kind != "default") {
        return Err(scaling.refuse("type", "none: the key is `rope_type`"));
    }
    let of = |key: &str, theta: f64| {
        let mut table = tables.within(key)?;
        table.extend(&scaling);
        // Of layers with tables of their own, transformers 5 reads neither of these.
        if table.value("truncate").is_some_and(|value| value == &Value::Bool(false)) {
            return Err(table.refuse("truncate", "true"));
        }
        if let Some(found) = fields.value(ORIGINAL).filter(|found| table.value(ORIGINAL) != Some(found)) {
            let expected = "none: it belongs into the tables of rotary positions";
            return Err(fields.refuse(ORIGINAL, found, expected));
        }
        table.read(theta, max_positions)
    };
    let global = of(FULL, global)?;
    let local = of(SLIDING, local.unwrap_or(global.theta))?;
    // Both kinds of layers see the same number of positions.
    let dynamic = |rotary: &RotaryConfig| rope_parameters::reach(rotary, max_positions);
    if dynamic(&global) < dynamic(&local) {
        let found = "a dynamic scaling of local layers alone";
        let expected = format!("a factor for `{FULL}` that is as large");
        return Err(fields.error(&format!("`{PARAMETERS}` has {found}, expected {expected}")));
    }
    Ok([global, local])
}

/// Which layers are local, by `layer_types` or else by the number of layers from one that sees everything to the next.
fn read_layers(fields: &Fields, n_layers: usize, window: usize) -> Result<LocalAttention> {
    let every = fields.positive(EVERY.0, EVERY.1)?;
    let regular = LocalAttention::new(window, every);
    let Some(is_local) = layer_types::read(fields, n_layers)? else { return Ok(regular) };
    let fits = |every: usize| is_local.iter().enumerate().all(|(i, local)| *local == (i % every != 0));
    Ok(match [every].into_iter().chain(1..=n_layers).find(|every| fits(*every)) {
        Some(every) => LocalAttention { global_every: every, ..regular },
        None => LocalAttention { layers: Some(is_local), ..regular },
    })
}

impl FamilyDefinition for ModernBert {
    fn name(&self) -> &'static str {
        "ModernBERT"
    }

    fn model_type(&self) -> &'static str {
        "modernbert"
    }

    fn class_prefix(&self) -> &'static str {
        "ModernBert"
    }

    fn prefix(&self) -> &'static str {
        "model."
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        let layer = HeadLayer::new(Activation::Gelu);
        Some(HeadLayer { has_dropout_before: false, is_normalised: true, ..layer })
    }

    fn transforms_states(&self) -> bool {
        true
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::Encoder
            | Architecture::PreTraining
            | Architecture::ReplacedTokens
            | Architecture::MaskedLm => None,
            _ => Some(("classifier_dropout", Some(0.0))),
        }
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn with_defaults(&self, sizes: BertConfig) -> BertConfig {
        BertConfig {
            attention_bias: false,
            feed_forward_bias: false,
            norm_bias: false,
            head_bias: false,
            ..sizes
        }
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let flag = |key, default| Ok(fields.flag(key)?.unwrap_or(default));
        let encoder = FORMAT.read(fields)?;
        let [global, local] = read_rotary(fields, encoder.max_positions)?;
        let window = fields.size("local_attention")?.unwrap_or(128) / 2;
        let layers = read_layers(fields, encoder.n_layers, window)?;
        let pooling = match fields.text("classifier_pooling")? {
            None | Some("cls") => Pooling::Cls,
            Some("mean") => Pooling::Mean,
            Some(other) => {
                return Err(fields.refuse("classifier_pooling", &other.into(), "\"cls\" or \"mean\""));
            }
        };
        if let Some(name) = fields.text("classifier_activation")?
            && activation_of(name, "classifier_activation", fields)? != Activation::Gelu
        {
            return Err(fields.refuse("classifier_activation", &name.into(), "\"gelu\""));
        }
        let probability = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
        let dropout = fields.typed("mlp_dropout", "a number, 0 or more and below 1", probability)?;
        Ok(BertConfig {
            max_positions: rope_parameters::reach(&global, encoder.max_positions),
            local: Some(with_rotary(layers, local, &global)),
            rotary: Some(global),
            attention_bias: flag("attention_bias", false)?,
            feed_forward_bias: flag("mlp_bias", false)?,
            norm_bias: flag("norm_bias", false)?,
            head_bias: flag("classifier_bias", false)?,
            mlm_bias: flag("decoder_bias", true)?,
            feed_forward_dropout: dropout.unwrap_or(0.0),
            pooling: Some(pooling),
            ..encoder
        })
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        if let (Some(global), Some(local)) = (&encoder.rotary, &encoder.local) {
            let rotary = local.rotary(global);
            // Only transformers 5 has layers with scalings of their own or in any order: transformers 4 fails on `null`
            // instead of computing others.
            let thetas = match local.rotary {
                None => [global.theta.into(), rotary.theta.into()],
                Some(_) => [Value::Null, Value::Null],
            };
            let [global_theta, local_theta] = thetas;
            set(FORMAT.max_positions.0, rope_parameters::max_positions(global, encoder.max_positions).into());
            set(GLOBAL.0, global_theta);
            set("local_attention", (2 * local.window).into());
            match &local.layers {
                None => set(EVERY.0, local.global_every.into()),
                Some(layers) => {
                    set(EVERY.0, Value::Null);
                    set(LAYER_TYPES, layer_types::names(layers).into());
                }
            }
            set(LOCAL.0, local_theta);
            match (&local.rotary, rope_parameters::scaling(global)) {
                (Some(_), _) => {
                    let tables = [(FULL, global), (SLIDING, &rotary)];
                    let tables = tables.map(|(key, of)| (key.to_string(), rope_parameters::table(of).into()));
                    set(PARAMETERS, Value::Object(tables.into_iter().collect()));
                }
                (None, Some(scaling)) => {
                    set(SCALING, scaling.into());
                    rope_parameters::write_original(global, config);
                }
                (None, None) => (),
            }
        }
        let mut set = |key: &str, value: Value| _ = config.insert(key.to_string(), value);
        set("attention_bias", encoder.attention_bias.into());
        set("mlp_bias", encoder.feed_forward_bias.into());
        set("mlp_dropout", encoder.feed_forward_dropout.into());
        set("norm_bias", encoder.norm_bias.into());
        set("decoder_bias", encoder.mlm_bias.into());
        set("classifier_bias", encoder.head_bias.into());
        set("classifier_activation", "gelu".into());
        let pooling = if encoder.pooling == Some(Pooling::Mean) { "mean" } else { "cls" };
        set("classifier_pooling", pooling.into());
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        let maps = |kind: &str| {
            ["query", "key", "value"].map(|map| format!("encoder.layers.*.attention.{map}.{kind}"))
        };
        let gated =
            |kind: &str| ["gate", "up"].map(|map| format!("encoder.layers.*.feed_forward.{map}.{kind}"));
        let split = |tensor: &str, parameters: &[String]| {
            let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
            TensorRule::split(tensor, 0, &parameters)
        };
        TensorRules::new()
            .table("embeddings.tok_embeddings", "embeddings.tokens")
            .norm("embeddings.norm", "embeddings.norm")
            .norm("layers.*.attn_norm", "encoder.layers.*.attention_norm")
            .with(split("layers.*.attn.Wqkv.weight", &maps("weight")).transposed())
            .with(split("layers.*.attn.Wqkv.bias", &maps("bias")))
            .linear("layers.*.attn.Wo", "encoder.layers.*.attention.output")
            .norm("layers.*.mlp_norm", "encoder.layers.*.feed_forward_norm")
            .with(split("layers.*.mlp.Wi.weight", &gated("weight")).transposed())
            .with(split("layers.*.mlp.Wi.bias", &gated("bias")))
            .linear("layers.*.mlp.Wo", "encoder.layers.*.feed_forward.down")
            .norm("final_norm", "encoder.final_norm")
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        let head = |dense: &str, norm: &str, output: &str| {
            TensorRules::new()
                .linear("head.dense", dense)
                .norm("head.norm", norm)
                .linear("classifier", output)
        };
        match architecture {
            Architecture::PreTraining | Architecture::MaskedLm => TensorRules::new()
                .linear("head.dense", "mlm.dense")
                .norm("head.norm", "mlm.norm")
                .with(TensorRule::copy("decoder.bias", "mlm.bias"))
                .with(TensorRule::tie("decoder.weight", "embeddings.tok_embeddings.weight")),
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                head("head.dense", "head.norm", "head.output")
            }
            Architecture::TokenClassification | Architecture::QuestionAnswering => {
                head("transform.dense", "transform.norm", "output")
            }
            Architecture::Encoder | Architecture::ReplacedTokens => TensorRules::new(),
        }
    }
}
