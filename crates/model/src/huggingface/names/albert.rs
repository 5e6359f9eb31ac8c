use super::{Names, bert};

pub(super) const NAMES: Names = Names {
    prefix: "albert.",
    encoder: &[
        ("embeddings.projection.", "encoder.embedding_hidden_mapping_in."),
        ("encoder.layers.", "encoder.albert_layer_groups.0.albert_layers."),
        (".attention.output.", ".attention.dense."),
        (".attention_norm.", ".attention.LayerNorm."),
        (".feed_forward.up.", ".ffn."),
        (".feed_forward.down.", ".ffn_output."),
        (".feed_forward_norm.", ".full_layer_layer_norm."),
        ("pooler.dense.", "pooler."),
    ],
    sequence: bert::POOLED,
    choice: bert::POOLED,
    mlm: &[
        ("mlm.dense.", "predictions.dense."),
        ("mlm.norm.", "predictions.LayerNorm."),
        ("mlm.bias", "predictions.bias"),
        ("next_sentence.classifier.", "sop_classifier.classifier."),
    ],
    tied: &[
        ("predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ],
};
