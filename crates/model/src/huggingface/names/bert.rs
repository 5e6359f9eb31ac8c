use super::{Fragments, Names};

pub(super) const NAMES: Names = Names {
    prefix: "bert.",
    encoder: ENCODER,
    sequence: POOLED,
    choice: POOLED,
    mlm: &[
        ("mlm.dense.", "cls.predictions.transform.dense."),
        ("mlm.norm.", "cls.predictions.transform.LayerNorm."),
        ("mlm.bias", "cls.predictions.bias"),
        ("next_sentence.classifier.", "cls.seq_relationship."),
    ],
    tied: &[
        ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
};

/// RoBERTa and ELECTRA have taken these over.
pub(super) const ENCODER: Fragments = &[
    ("encoder.layers.", "encoder.layer."),
    (".attention.output.", ".attention.output.dense."),
    (".attention.query.", ".attention.self.query."),
    (".attention.key.", ".attention.self.key."),
    (".attention.value.", ".attention.self.value."),
    (".attention_norm.", ".attention.output.LayerNorm."),
    (".feed_forward.up.", ".intermediate.dense."),
    (".feed_forward.down.", ".output.dense."),
    (".feed_forward_norm.", ".output.LayerNorm."),
    // ELECTRA alone has a projection.
    ("embeddings.projection.", "embeddings_project."),
];

/// The head over a pooler's output.
pub(super) const POOLED: Fragments = &[("head.output.", "classifier.")];

#[cfg(test)]
mod tests {
    use super::super::{Architecture, to_file};
    use crate::bert::Family;

    #[test]
    fn names_are_transformers() {
        let name = |path| to_file(Family::Bert, Architecture::PreTraining, path).0;
        assert_eq!(name("mlm.norm.gamma"), "cls.predictions.transform.LayerNorm.weight");
        assert_eq!(
            name("bert.encoder.layers.3.attention.output.weight"),
            "bert.encoder.layer.3.attention.output.dense.weight"
        );
        assert_eq!(
            name("bert.encoder.layers.0.feed_forward_norm.beta"),
            "bert.encoder.layer.0.output.LayerNorm.bias"
        );
    }
}
