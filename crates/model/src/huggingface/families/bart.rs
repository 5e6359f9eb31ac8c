//! BART (Lewis et al. 2020): `BartForConditionalGeneration` of transformers.

use super::super::TensorRules;
use super::super::fields::Fields;
use super::seq2seq::{self, Defaults};
use crate::Result;
use crate::blocks::NormPlacement;
use crate::seq2seq::{OutputBias, PositionsConfig, TiedEmbeddings, TransformerConfig};
use serde_json::{Map, Value, json};

pub(super) const MODEL_TYPE: &str = "bart";

/// Two rows of the position table belong to no token, as in fairseq, where they were the padding's.
const POSITIONS: PositionsConfig = PositionsConfig::Learned { offset: 2 };

const DEFAULTS: Defaults = Defaults {
    vocab_size: 50_265,
    pad: 1,
    bos: Some(0),
    eos: 2,
    decoder_start: 2,
    forced_eos: Some(2),
    fixed: &[
        ("static_position_embeddings", false),
        ("normalize_before", false),
        ("normalize_embedding", true),
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
        && config.embedding_norm
        && config.layer_norm_eps == 1e-5
        && config.tied.joins_source()
}

/// See [`Format::read`](crate::huggingface::Format).
pub(super) fn read(fields: &Fields) -> Result<TransformerConfig> {
    let mut config =
        seq2seq::read(fields, &DEFAULTS)?.with_positions(POSITIONS).with_output_bias(OutputBias::Fixed);
    config.embedding_norm = true;
    config.tied = match fields.flag("tie_word_embeddings")?.unwrap_or(true) {
        true => TiedEmbeddings::All,
        false => TiedEmbeddings::SourceTarget,
    };
    Ok(config)
}

/// See [`Format::write`](crate::huggingface::Format).
pub(super) fn write(config: &TransformerConfig, map: &mut Map<String, Value>) {
    map.insert("architectures".into(), json!(["BartForConditionalGeneration"]));
    seq2seq::write(config, map);
}

/// See [`Format::rules`](crate::huggingface::Format).
pub(super) fn rules(config: &TransformerConfig) -> TensorRules {
    seq2seq::rules(config)
}
