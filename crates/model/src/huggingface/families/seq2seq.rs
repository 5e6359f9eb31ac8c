//! The common parts of the published encoder–decoders: BART, and Marian's models, whose classes in transformers are
//! copies of BART's. T5 has the special tokens in common.

use super::super::fields::Fields;
use super::super::generation::GENERATION;
use super::super::{TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use crate::Result;
use crate::blocks::{Activation, NormKind};
use crate::seq2seq::{InitialWeights, SpecialTokens, TransformerConfig};
use serde_json::{Map, Value, json};

/// The defaults of a family's class.
pub(super) struct Defaults {
    pub vocab_size: usize,
    pub pad: usize,
    pub bos: Option<usize>,
    pub eos: usize,
    pub decoder_start: usize,
    pub forced_eos: Option<usize>,
    /// Keys from the time when one class served all models, and the only value that the family's class still computes.
    pub fixed: &'static [(&'static str, bool)],
}

const ACTIVATION: &str = "activation_function";

/// Checks that the model has none of the switches that came with T5: the classes compute nothing else.
pub(super) fn fits(config: &TransformerConfig) -> bool {
    let is_even =
        |n_heads| config.d_head.is_none_or(|d_head| d_head.checked_mul(n_heads) == Some(config.d_model));
    is_even(config.n_heads)
        && is_even(config.decoder_heads())
        && !config.gated
        && config.bias
        && config.scaled_scores
        && config.norm_kind == NormKind::Layer
        && !config.output_dropout
        && !config.trained_padding
        && !config.scaled_output
        && config.output.is_none()
}

/// The key of a field of [`TransformerConfig`] in these files.
pub(super) fn key_of(field: &str) -> &str {
    match field {
        "n_encoder_layers" => "encoder_layers",
        "n_decoder_layers" => "decoder_layers",
        "n_heads" => "encoder_attention_heads",
        "n_decoder_heads" => "decoder_attention_heads",
        "d_ff" => "encoder_ffn_dim",
        "d_decoder_ff" => "decoder_ffn_dim",
        "max_positions" => "max_position_embeddings",
        "tokens.pad" => "pad_token_id",
        "tokens.bos" => "bos_token_id",
        "tokens.eos" => "eos_token_id",
        "tokens.decoder_start" => "decoder_start_token_id",
        other => other,
    }
}

/// Reads what the classes have in common: everything but positions, normalisations and tied embeddings.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) for a value that this crate does not support.
pub(super) fn read(fields: &Fields, defaults: &Defaults) -> Result<TransformerConfig> {
    let size = |key, default| match fields.size(key)?.unwrap_or(default) {
        0 => Err(fields.refuse(key, &0.into(), "at least 1")),
        size => Ok(size),
    };
    let probability = |key, default| {
        let read = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
        Ok(fields.typed(key, "a number, 0 or more and below 1", read)?.unwrap_or(default))
    };
    let flag = |key, expected: bool| match fields.flag(key)?.unwrap_or(expected) == expected {
        true => Ok(()),
        false => {
            Err(fields.refuse(key, &(!expected).into(), &format!("{expected}: there is no other such model")))
        }
    };
    for (key, expected) in defaults.fixed {
        flag(key, *expected)?;
    }
    flag("is_encoder_decoder", true)?;
    flag("tie_encoder_decoder", false)?;
    for key in ["encoder_layerdrop", "decoder_layerdrop"] {
        let found = fields.number(key)?.unwrap_or(0.0);
        if found != 0.0 {
            return Err(fields.refuse(key, &json!(found), "0: no layers are dropped in training"));
        }
    }
    let vocab_size = size("vocab_size", defaults.vocab_size)?;
    let d_model = size("d_model", 1024)?;
    let mut config = TransformerConfig::new(vocab_size, 1, d_model)
        .with_layers(size("encoder_layers", 12)?, size("decoder_layers", 12)?)
        .with_heads(size("encoder_attention_heads", 16)?)
        .with_d_ff(size("encoder_ffn_dim", 4096)?)
        .with_decoder(size("decoder_attention_heads", 16)?, size("decoder_ffn_dim", 4096)?)
        .with_max_positions(size("max_position_embeddings", 1024)?)
        .with_dropout(probability("dropout", 0.1)?)
        .with_inner_dropouts(probability("attention_dropout", 0.0)?, probability("activation_dropout", 0.0)?)
        .with_activation(match fields.text(ACTIVATION)? {
            Some(name) => activation_of(name, ACTIVATION, fields)?,
            None => Activation::Gelu,
        })
        .with_initial(InitialWeights::Normal { std: fields.number("init_std")?.unwrap_or(0.02) });
    config.scaled_embeddings = fields.flag("scale_embedding")?.unwrap_or(false);
    config.tokens = tokens(fields, defaults)?;
    Ok(config)
}

/// The special tokens. As in transformers, [`GENERATION`] takes precedence over `config.json` for those of decoding.
pub(super) fn tokens(fields: &Fields, defaults: &Defaults) -> Result<SpecialTokens> {
    let mut tokens = SpecialTokens::new(
        fields.size("pad_token_id")?.unwrap_or(defaults.pad),
        first_id(fields, "eos_token_id")?.unwrap_or(defaults.eos),
    );
    tokens.bos = fields.size_or("bos_token_id", defaults.bos)?;
    tokens.decoder_start = fields.size("decoder_start_token_id")?.unwrap_or(defaults.decoder_start);
    tokens.forced_bos = fields.size("forced_bos_token_id")?;
    if fields.flag("force_bos_token_to_be_generated")?.unwrap_or(false) {
        // The former name of `forced_bos_token_id`.
        tokens.forced_bos = tokens.forced_bos.or(tokens.bos);
    }
    tokens.forced_eos = match fields.has("forced_eos_token_id") {
        true => first_id(fields, "forced_eos_token_id")?,
        false => defaults.forced_eos,
    };
    tokens.suppressed = suppressed(fields)?;
    let Some(generation) = fields.beside(GENERATION)? else { return Ok(tokens) };
    match generation.size("pad_token_id")? {
        Some(found) if found != tokens.pad => {
            let expected = format!("{}, as in config.json", tokens.pad);
            return Err(generation.refuse("pad_token_id", &found.into(), &expected));
        }
        _ => {}
    }
    tokens.forced_bos = generation.size("forced_bos_token_id")?;
    tokens.forced_eos = first_id(&generation, "forced_eos_token_id")?;
    tokens.suppressed = suppressed(&generation)?;
    Ok(tokens)
}

/// An id, or the first one of a list.
fn first_id(fields: &Fields, key: &str) -> Result<Option<usize>> {
    fields.typed(key, "an id, or a list of ids", |value| {
        let value = match value.as_array() {
            Some(all) => all.first()?,
            None => value,
        };
        usize::try_from(value.as_u64()?).ok()
    })
}

/// The pieces that are never written, whatever comes before: `suppress_tokens`, and those of `bad_words_ids` that are one
/// piece. What else is said of decoding is in [`DecodeSettings`](crate::generate::DecodeSettings).
fn suppressed(fields: &Fields) -> Result<Vec<usize>> {
    let list = |value: &Value| -> Option<Vec<usize>> {
        value.as_array()?.iter().map(|id| usize::try_from(id.as_u64()?).ok()).collect()
    };
    let words = fields.typed("bad_words_ids", "a list of lists of ids", |value| {
        value.as_array()?.iter().map(list).collect::<Option<Vec<_>>>()
    })?;
    let pieces = fields.typed("suppress_tokens", "a list of ids", list)?;
    let words = words.into_iter().flatten().filter(|word| word.len() == 1).flatten();
    let mut all: Vec<usize> = words.chain(pieces.into_iter().flatten()).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Adds what the classes have in common to a `config.json`.
pub(super) fn write(config: &TransformerConfig, map: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("is_encoder_decoder", true.into());
    set("vocab_size", config.source_vocabulary().into());
    set("d_model", config.d_model.into());
    set("encoder_layers", config.n_encoder_layers.into());
    set("decoder_layers", config.n_decoder_layers.into());
    set("num_hidden_layers", config.n_encoder_layers.into());
    let sizes = [(config.n_heads, config.d_ff), (config.decoder_heads(), config.decoder_ff())];
    for (stack, (n_heads, d_ff)) in ["encoder", "decoder"].into_iter().zip(sizes) {
        set(&format!("{stack}_attention_heads"), n_heads.into());
        set(&format!("{stack}_ffn_dim"), d_ff.into());
        set(&format!("{stack}_layerdrop"), 0.0.into());
    }
    set("max_position_embeddings", config.max_positions.into());
    set("dropout", config.dropout.into());
    set("attention_dropout", config.attention_dropout.into());
    set("activation_dropout", config.activation_dropout.into());
    set(ACTIVATION, activation_name(config.activation).into());
    set("scale_embedding", config.scaled_embeddings.into());
    set("tie_word_embeddings", config.tied.joins_output().into());
    if let InitialWeights::Normal { std } = config.initial {
        set("init_std", std.into());
    }
    map.extend(token_keys(&config.tokens));
}

/// `generation_config.json`: the settings of decoding in transformers.
pub(super) fn generation(config: &TransformerConfig) -> Map<String, Value> {
    token_keys(&config.tokens)
}

pub(super) fn token_keys(tokens: &SpecialTokens) -> Map<String, Value> {
    let SpecialTokens { pad, bos, eos, decoder_start, forced_bos, forced_eos, suppressed } = tokens;
    let words: Vec<[usize; 1]> = suppressed.iter().map(|id| [*id]).collect();
    let words = if words.is_empty() { Value::Null } else { json!(words) };
    let keys = [
        ("pad_token_id", json!(pad)),
        ("bos_token_id", json!(bos)),
        ("eos_token_id", json!(eos)),
        ("decoder_start_token_id", json!(decoder_start)),
        ("forced_bos_token_id", json!(forced_bos)),
        ("forced_eos_token_id", json!(forced_eos)),
        ("bad_words_ids", words),
    ];
    keys.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// The rules of the layers, of the embeddings and of the output layer.
pub(super) fn rules(config: &TransformerConfig) -> TensorRules {
    let mut rules = TensorRules::new();
    for stack in ["encoder", "decoder"] {
        let (tensor, parameter) = (format!("model.{stack}.layers.*"), format!("{stack}.layers.*"));
        let mut blocks = vec![("self_attn", "attention")];
        if stack == "decoder" {
            blocks.push(("encoder_attn", "cross_attention"));
        }
        for (found, block) in blocks {
            let maps = [("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "output")];
            for (name, map) in maps {
                rules =
                    rules.linear(&format!("{tensor}.{found}.{name}"), &format!("{parameter}.{block}.{map}"));
            }
            rules = rules.norm(&format!("{tensor}.{found}_layer_norm"), &format!("{parameter}.{block}_norm"));
        }
        rules = rules
            .linear(&format!("{tensor}.fc1"), &format!("{parameter}.feed_forward.up"))
            .linear(&format!("{tensor}.fc2"), &format!("{parameter}.feed_forward.down"))
            .norm(&format!("{tensor}.final_layer_norm"), &format!("{parameter}.feed_forward_norm"))
            .norm(&format!("model.{stack}.layernorm_embedding"), &format!("{stack}_input.norm"))
            .table(&format!("model.{stack}.embed_positions"), &format!("{stack}_input.positions.table"));
    }
    let [shared, source, target] =
        ["model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens"]
            .map(|name| name.to_string());
    let table = if config.tied.joins_source() { &shared } else { &target };
    let weight = |name: &str| format!("{name}.weight");
    rules = rules.table(table, "target_embeddings").table(&source, "source_embeddings");
    if config.tied.joins_source() {
        rules = rules
            .with(TensorRule::tie(&weight(&source), &weight(&shared)))
            .with(TensorRule::tie(&weight(&target), &weight(&shared)));
    }
    rules = match config.tied.joins_output() {
        true => rules.with(TensorRule::tie("lm_head.weight", &weight(table))),
        // transformers 5 ties nothing where it does not tie the output projection.
        false => rules.with(TensorRule::transpose("lm_head.weight", "output.weight")).saving_copies(),
    };
    rules
        .with(TensorRule::copy("final_logits_bias", "output_bias"))
        .with_optional_prefixes(["module.", "model."])
}
