use super::{Names, bert, roberta};

pub(super) const NAMES: Names = Names {
    prefix: "electra.",
    encoder: bert::ENCODER,
    sequence: roberta::FIRST_STATE,
    choice: &[("head.dense.", "sequence_summary.summary."), ("head.output.", "classifier.")],
    // The generator's.
    mlm: &[
        ("mlm.dense.", "generator_predictions.dense."),
        ("mlm.norm.", "generator_predictions.LayerNorm."),
        ("mlm.bias", "generator_lm_head.bias"),
    ],
    tied: &[("generator_lm_head.weight", "embeddings.word_embeddings.weight")],
};
