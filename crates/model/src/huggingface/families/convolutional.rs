//! This project's own convolutional encoder–decoders.

use super::super::TensorRules;
use super::own::{self, own_format};
use crate::seq2seq::{ConvolutionalEncoderDecoder, ConvolutionalEncoderDecoderConfig};

/// The key of the configuration.
const KEY: &str = "convolutional";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new()
        .table("source_embedding", "source_embedding")
        .table("target_embedding", "target_embedding")
        .table("source_positions", "source_positions")
        .table("target_positions", "target_positions")
}

own_format!(
    ConvolutionalEncoderDecoderConfig,
    ConvolutionalEncoderDecoder,
    "cloze-convolutional",
    KEY,
    rules(),
    |config, file| own::write(
        config,
        KEY,
        "ClozeConvolutionalEncoderDecoder",
        config.vocab_size,
        &config.tokens,
        file
    )
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq2seq::TiedEmbeddings;
    use serde_json::{Value, json};

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
