//! The classes of transformers: an architecture in a family.

use super::{Architecture, Family};
use crate::ParamInit;
use crate::bert::BertConfig;
use crate::blocks::LayerNorm;
use crate::tasks::{HeadTransform, SequenceHead};

impl Architecture {
    /// The name of the class in transformers. A family without a class for both pretraining heads has its masked LM's, one
    /// without a discriminator its bare encoder's.
    pub fn name(self, family: Family) -> String {
        family.class_name(self)
    }

    /// The family and architecture of a class in transformers; none if this crate has no counterpart.
    pub fn parse(name: &str) -> Option<(Family, Self)> {
        Family::ALL.iter().find_map(|family| Some((*family, family.architecture(name)?)))
    }

    /// A new head over sequences as in the class of `family`, for [sequence
    /// classification](Self::SequenceClassification) and [multiple choice](Self::MultipleChoice).
    pub fn sequence_head(
        self,
        family: Family,
        encoder: &BertConfig,
        n_outputs: usize,
        dropout: f64,
        init: &mut ParamInit,
    ) -> SequenceHead {
        let mut head = SequenceHead::new(encoder.d_model, n_outputs, dropout, init);
        if !family.head_output_bias(self) {
            head.output.bias = None;
        }
        let Some(layer) = family.head_layer(self) else { return head };
        let mut head = head.with_dense(layer.activation, init);
        if !layer.has_dropout_before {
            head.dense_dropout = 0.0;
        }
        if let Some(dense) = head.dense.as_mut().filter(|_| !encoder.head_bias) {
            dense.bias = None;
        }
        head.norm = layer.is_normalised.then(|| {
            LayerNorm::new(encoder.d_model, encoder.layer_norm_eps, init).with_bias(encoder.norm_bias)
        });
        head
    }

    /// What the class of `family` does to a state before the output layer, for [tokens](Self::TokenClassification) and
    /// [answers](Self::QuestionAnswering); none if there is nothing, as in most families.
    pub fn head_transform(
        self,
        family: Family,
        encoder: &BertConfig,
        init: &mut ParamInit,
    ) -> Option<HeadTransform> {
        let is_of_states = matches!(self, Self::TokenClassification | Self::QuestionAnswering);
        (is_of_states && family.transforms_states()).then(|| HeadTransform::new(encoder, init))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &family in Family::ALL {
            for architecture in Architecture::ALL.into_iter().filter(|one| family.has_class(*one)) {
                let name = architecture.name(family);
                let (found_family, found) = Architecture::parse(&name).unwrap();
                assert_eq!((found_family, found.name(family)), (family, name));
            }
        }
        assert_eq!(Architecture::MaskedLm.name(Family::DISTILBERT), "DistilBertForMaskedLM");
        let parsed = Architecture::parse("RobertaForMaskedLM");
        assert_eq!(parsed, Some((Family::ROBERTA, Architecture::MaskedLm)));
        assert_eq!(
            Architecture::parse("ElectraForPreTraining"),
            Some((Family::ELECTRA, Architecture::ReplacedTokens))
        );
        for none in ["GPT2LMHeadModel", "RobertaForPreTraining", "Bert", ""] {
            assert_eq!(Architecture::parse(none), None, "{none}");
        }
    }
}
