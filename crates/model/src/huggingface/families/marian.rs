//! Marian's translation models (Junczys-Dowmunt et al. 2018), such as OPUS-MT's: `MarianMTModel` in transformers.

use super::super::TensorRules;
use super::super::fields::Fields;
use super::super::published::Constant;
use super::seq2seq::{self, Defaults};
use crate::Result;
use crate::blocks::{NormPlacement, SinusoidOrder, SinusoidalPositions};
use crate::seq2seq::{OutputBias, PositionsConfig, TiedEmbeddings, TransformerConfig};
use serde_json::{Map, Value, json};

pub(super) const MODEL_TYPE: &str = "marian";

const POSITIONS: PositionsConfig = PositionsConfig::Sinusoidal { order: SinusoidOrder::SinesFirst };

const DEFAULTS: Defaults = Defaults {
    vocab_size: 58_101,
    pad: 58_100,
    bos: None,
    eos: 0,
    decoder_start: 58_100,
    forced_eos: Some(0),
    fixed: &[
        ("static_position_embeddings", true),
        ("normalize_before", false),
        ("normalize_embedding", false),
        ("add_final_layer_norm", false),
        ("add_bias_logits", false),
    ],
};

/// Checks that transformers' class computes the same as such a model.
pub(super) fn fits(config: &TransformerConfig) -> bool {
    seq2seq::fits(config)
        && config.positions == POSITIONS
        && config.norm == NormPlacement::Post
        && !config.final_norms
        && !config.embedding_norm
        && config.layer_norm_eps == 1e-5
        && config.source_vocab_size.is_none_or(|size| size == config.vocab_size)
}

/// See [`Format::read`](crate::huggingface::Format).
pub(super) fn read(fields: &Fields) -> Result<TransformerConfig> {
    let mut config =
        seq2seq::read(fields, &DEFAULTS)?.with_positions(POSITIONS).with_output_bias(OutputBias::Fixed);
    let shared = fields.flag("share_encoder_decoder_embeddings")?.unwrap_or(true);
    let output = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    let target = match fields.size("decoder_vocab_size")? {
        Some(0) | None => config.vocab_size,
        Some(target) => target,
    };
    // transformers gives the decoder's embeddings the source's number of rows, shared or not.
    if target != config.vocab_size {
        let expected = format!("{}, as `vocab_size`", config.vocab_size);
        return Err(fields.refuse("decoder_vocab_size", &target.into(), &expected));
    }
    config.tied = match (shared, output) {
        (true, true) => TiedEmbeddings::All,
        (true, false) => TiedEmbeddings::SourceTarget,
        (false, true) => TiedEmbeddings::TargetOutput,
        (false, false) => TiedEmbeddings::None,
    };
    Ok(config)
}

/// See [`Format::write`](crate::huggingface::Format).
pub(super) fn write(config: &TransformerConfig, map: &mut Map<String, Value>) {
    map.insert("architectures".into(), json!(["MarianMTModel"]));
    seq2seq::write(config, map);
    map.insert("decoder_vocab_size".into(), config.vocab_size.into());
    map.insert("share_encoder_decoder_embeddings".into(), config.tied.joins_source().into());
    map.insert("static_position_embeddings".into(), true.into());
}

/// See [`Format::rules`](crate::huggingface::Format).
pub(super) fn rules(config: &TransformerConfig) -> TensorRules {
    seq2seq::rules(config)
}

/// The sinusoids, which old files contain.
pub(super) fn constants(config: &TransformerConfig) -> Vec<Constant> {
    let (rows, width) = (config.max_positions, config.d_model);
    let table = |stack| Constant {
        name: format!("model.{stack}.embed_positions.weight"),
        shape: vec![rows, width],
        values: Box::new(move || {
            SinusoidalPositions::new(width).with_order(SinusoidOrder::SinesFirst).values(0..rows)
        }),
    };
    ["encoder", "decoder"].map(table).into()
}
