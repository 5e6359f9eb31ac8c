//! This project's own convolutional encoder–decoders, which transformers has no class for.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use crate::seq2seq::{ConvolutionalEncoderDecoder, ConvolutionalEncoderDecoderConfig, SpecialTokens};
use crate::{ParamInit, Result};
use serde_json::{Map, Value, json};

/// Where the configuration stands.
const KEY: &str = "convolutional";

impl Format for ConvolutionalEncoderDecoderConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-convolutional"];

    fn read(fields: &Fields) -> Result<Self> {
        let Some(config) = fields.nested::<Self>(KEY)? else {
            return Err(fields.refuse(KEY, &Value::Null, "the model's configuration"));
        };
        config.validate().map_err(|error| fields.error(&error.to_string()))?;
        Ok(config)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        let SpecialTokens { pad, bos, eos, decoder_start, .. } = &self.tokens;
        let ids = json!({
            "architectures": ["ClozeConvolutionalEncoderDecoder"],
            "is_encoder_decoder": true,
            "vocab_size": self.vocab_size,
            "pad_token_id": pad,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "decoder_start_token_id": decoder_start,
            KEY: self,
        });
        config.extend(ids.as_object().cloned().unwrap_or_default());
        Ok(())
    }

    /// Tensors are called by their parameters' paths.
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
    use crate::Sequences;
    use crate::huggingface::{FloatType, load_published, model_type, read_published, save_published};
    use crate::seq2seq::{EncoderDecoder, TiedEmbeddings};
    use crate::weights;
    use burn::tensor::Device;

    #[test]
    fn a_saved_model_is_the_model() {
        let device = Device::flex();
        let base = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
        for config in [
            base.clone(),
            base.with_source_vocab(29).with_tied(TiedEmbeddings::None).with_layers(1, 2).with_kernels(2, 5),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let model = Published::init(&config, &mut ParamInit::new(&device, 4));
            save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
            assert_eq!(model_type(folder.path()).unwrap().as_deref(), Some("cloze-convolutional"));
            let (read, loaded, report) = load_published::<ConvolutionalEncoderDecoderConfig>(
                folder.path(),
                &mut ParamInit::new(&device, 5),
            )
            .unwrap();
            assert_eq!(read, config);
            assert!(report.missing.is_empty() && report.unexpected.is_empty());
            assert_eq!(weights::collect(&loaded), weights::collect(&model));
            let source: Sequences = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
            let logits =
                |model: &ConvolutionalEncoderDecoder| model.logits(&source, &source, &device).into_data();
            assert_eq!(logits(&loaded), logits(&model));
        }
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = ConvolutionalEncoderDecoderConfig::new(23, 6, 8);
        let mut json = serde_json::json!({ "model_type": "cloze-convolutional", "convolutional": config });
        let refused = |json: &Value| {
            std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
            read_published::<ConvolutionalEncoderDecoderConfig>(folder.path()).unwrap_err().to_string()
        };
        json["convolutional"]["encoder_kernel"] = 0.into();
        assert!(refused(&json).contains("`encoder_kernel` is 0, expected 1 or more"), "{}", refused(&json));
        json["convolutional"]["tied"] = "some".into();
        assert!(refused(&json).contains("`convolutional`: unknown variant `some`"), "{}", refused(&json));
        json["convolutional"] = Value::Null;
        assert!(refused(&json).contains("`convolutional` is null, expected the model's configuration"));
    }
}
