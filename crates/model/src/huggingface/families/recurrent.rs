//! This project's own recurrent encoder–decoders, which have no class in transformers.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use crate::seq2seq::{RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig, SpecialTokens};
use crate::{ParamInit, Result};
use serde_json::{Map, Value, json};

/// The key of the configuration.
const KEY: &str = "recurrent";

impl Format for RecurrentEncoderDecoderConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-recurrent"];

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
            "architectures": ["ClozeRecurrentEncoderDecoder"],
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

    /// Tensors are named by their parameters' paths.
    fn rules(&self) -> TensorRules {
        TensorRules::new()
            .table("source_embedding", "source_embedding")
            .table("target_embedding", "target_embedding")
    }
}

impl Published for RecurrentEncoderDecoderConfig {
    type Model = RecurrentEncoderDecoder;

    fn init(&self, init: &mut ParamInit) -> RecurrentEncoderDecoder {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sequences;
    use crate::huggingface::{FloatType, load_published, model_type, read_published, save_published};
    use crate::recurrent::Cell;
    use crate::seq2seq::{EncoderDecoder, TiedEmbeddings, Wiring};
    use crate::weights;
    use burn::tensor::Device;

    #[test]
    fn a_saved_model_is_the_model() {
        let device = Device::flex();
        let base = RecurrentEncoderDecoderConfig::new(23, 6, 8);
        for config in [
            base.clone(),
            RecurrentEncoderDecoderConfig {
                cell: Cell::Gru,
                wiring: Wiring::None,
                tied: TiedEmbeddings::None,
                source_vocab_size: Some(29),
                n_encoder_layers: 2,
                ..base
            },
        ] {
            let folder = tempfile::tempdir().unwrap();
            let model = Published::init(&config, &mut ParamInit::new(&device, 4));
            save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
            assert_eq!(model_type(folder.path()).unwrap().as_deref(), Some("cloze-recurrent"));
            let (read, loaded, report) = load_published::<RecurrentEncoderDecoderConfig>(
                folder.path(),
                &mut ParamInit::new(&device, 5),
            )
            .unwrap();
            assert_eq!(read, config);
            assert!(report.missing.is_empty() && report.unexpected.is_empty());
            assert_eq!(weights::collect(&loaded), weights::collect(&model));
            let source: Sequences = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
            let logits =
                |model: &RecurrentEncoderDecoder| model.logits(&source, &source, &device).into_data();
            assert_eq!(logits(&loaded), logits(&model));
        }
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = RecurrentEncoderDecoderConfig::new(23, 6, 8);
        let mut json = serde_json::json!({ "model_type": "cloze-recurrent", "recurrent": config });
        let refused = |json: &Value| {
            std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
            read_published::<RecurrentEncoderDecoderConfig>(folder.path()).unwrap_err().to_string()
        };
        json["recurrent"]["d_model"] = 7.into();
        assert!(refused(&json).contains("`d_model` is 7, expected an even number"), "{}", refused(&json));
        json["recurrent"]["cell"] = "elman".into();
        assert!(refused(&json).contains("`recurrent`: unknown variant `elman`"), "{}", refused(&json));
        json["recurrent"] = Value::Null;
        assert!(refused(&json).contains("`recurrent` is null, expected the model's configuration"));
    }
}
