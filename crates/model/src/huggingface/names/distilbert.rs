use super::{Fragments, Names};

pub(super) const NAMES: Names = Names {
    prefix: "distilbert.",
    encoder: &[
        ("encoder.layers.", "transformer.layer."),
        (".attention.output.", ".attention.out_lin."),
        (".attention.query.", ".attention.q_lin."),
        (".attention.key.", ".attention.k_lin."),
        (".attention.value.", ".attention.v_lin."),
        (".attention_norm.", ".sa_layer_norm."),
        (".feed_forward.up.", ".ffn.lin1."),
        (".feed_forward.down.", ".ffn.lin2."),
        (".feed_forward_norm.", ".output_layer_norm."),
    ],
    sequence: HEAD,
    choice: HEAD,
    mlm: &[
        ("mlm.dense.", "vocab_transform."),
        ("mlm.norm.", "vocab_layer_norm."),
        ("mlm.bias", "vocab_projector.bias"),
    ],
    tied: &[("vocab_projector.weight", "embeddings.word_embeddings.weight")],
};

const HEAD: Fragments = &[("head.dense.", "pre_classifier."), ("head.output.", "classifier.")];
