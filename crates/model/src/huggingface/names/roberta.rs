use super::{Fragments, Names, bert};

pub(super) const NAMES: Names = Names {
    prefix: "roberta.",
    encoder: bert::ENCODER,
    sequence: FIRST_STATE,
    choice: bert::POOLED,
    mlm: &[
        ("mlm.dense.", "lm_head.dense."),
        ("mlm.norm.", "lm_head.layer_norm."),
        ("mlm.bias", "lm_head.bias"),
    ],
    tied: &[
        ("lm_head.decoder.weight", "embeddings.word_embeddings.weight"),
        ("lm_head.decoder.bias", "lm_head.bias"),
    ],
};

/// The head over the first token's state, ELECTRA's too.
pub(super) const FIRST_STATE: Fragments =
    &[("head.dense.", "classifier.dense."), ("head.output.", "classifier.out_proj.")];
