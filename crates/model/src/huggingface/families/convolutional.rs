//! This project's own convolutional encoder–decoders.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use super::own;
use crate::seq2seq::{ConvolutionalEncoderDecoder, ConvolutionalEncoderDecoderConfig};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

/// The key of the configuration.
const KEY: &str = "convolutional";

impl Format for ConvolutionalEncoderDecoderConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-convolutional"];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, KEY, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::write(self, KEY, "ClozeConvolutionalEncoderDecoder", self.vocab_size, &self.tokens, config);
        Ok(())
    }

    /// Tensors are named by their parameters' paths.
    fn rules(&self) -> TensorRules {
        TensorRules::new()
            .table("source_embedding", "source_embedding")
            .table("target_embedding", "target_embedding")
            .table("source_positions", "source_positions")
            .table("target_positions", "target_positions")
    }
}

impl Published for ConvolutionalEncoderDecoderConfig {
    type Model = ConvolutionalEncoderDecoder;

    fn init(&self, init: &mut ParamInit) -> ConvolutionalEncoderDecoder {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq2seq::TiedEmbeddings;
    use serde_json::json;

    #[test]
    fn a_saved_model_is_the_model() {
        let base = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
        own::tests::is_saved_and_read(&base);
        let other = base.with_source_vocab(29).with_tied(TiedEmbeddings::None);
        own::tests::is_saved_and_read(&other.with_layers(1, 2).with_kernels(2, 5));
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let config = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
        let mut json = json!({ "model_type": "cloze-convolutional", "convolutional": config });
        let refused = own::tests::refused::<ConvolutionalEncoderDecoderConfig>;
        json["convolutional"]["encoder_kernel"] = 0.into();
        assert!(refused(&json).contains("`encoder_kernel` is 0, expected at least 1"), "{}", refused(&json));
        json["convolutional"]["tied"] = "some".into();
        assert!(refused(&json).contains("`convolutional`: unknown variant `some`"), "{}", refused(&json));
        json["convolutional"] = Value::Null;
        assert!(refused(&json).contains("`convolutional` is null, expected the model's configuration"));
    }
}
