//! AWD-LSTM and its classifier, in this project's own format: transformers has no class for either.

use super::super::fields::Fields;
use super::super::{Format, Published, TensorRules};
use super::own;
use crate::awd_lstm::{AwdLstm, AwdLstmClassifierConfig, AwdLstmConfig, AwdLstmForSequenceClassification};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

/// The key of the configuration.
const KEY: &str = "awd_lstm";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.embedding", "encoder.embedding")
}

impl Format for AwdLstmConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-awd-lstm"];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, KEY, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(self, KEY, "ClozeAwdLstm", config);
        config.insert("vocab_size".into(), self.vocab_size.into());
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules()
    }
}

impl Published for AwdLstmConfig {
    type Model = AwdLstm;

    fn init(&self, init: &mut ParamInit) -> AwdLstm {
        self.init(init)
    }
}

impl Format for AwdLstmClassifierConfig {
    const MODEL_TYPES: &'static [&'static str] = &["cloze-awd-lstm-classifier"];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, KEY, Self::validate)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(self, KEY, "ClozeAwdLstmForSequenceClassification", config);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules()
    }
}

impl Published for AwdLstmClassifierConfig {
    type Model = AwdLstmForSequenceClassification;

    fn init(&self, init: &mut ParamInit) -> AwdLstmForSequenceClassification {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::own::tests::comes_back;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_saved_model_is_the_model() {
        let config = AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 3, ..AwdLstmConfig::new(23) };
        comes_back(&config);
        comes_back(&AwdLstmClassifierConfig::new(config, 3));
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let mut json = json!({ "model_type": "cloze-awd-lstm", "awd_lstm": AwdLstmConfig::new(23) });
        let refused = own::tests::refused::<AwdLstmConfig>;
        json["awd_lstm"]["d_hidden"] = 0.into();
        assert!(refused(&json).contains("`d_hidden` is 0, expected from 1"), "{}", refused(&json));
        json["awd_lstm"] = Value::Null;
        assert!(refused(&json).contains("`awd_lstm` is null, expected the model's configuration"));
    }
}
