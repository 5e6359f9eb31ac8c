//! AWD-LSTM and its classifier, in this project's own format: transformers has no class for either.

use super::super::TensorRules;
use super::own::{self, own_format};
use crate::awd_lstm::{AwdLstm, AwdLstmClassifierConfig, AwdLstmConfig, AwdLstmForSequenceClassification};

/// The key of the configuration.
const KEY: &str = "awd_lstm";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.embedding", "encoder.embedding")
}

own_format!(AwdLstmConfig, AwdLstm, "cloze-awd-lstm", KEY, rules(), |config, file| {
    own::insert(config, KEY, "ClozeAwdLstm", file);
    file.insert("vocab_size".into(), config.vocab_size.into());
});

own_format!(
    AwdLstmClassifierConfig,
    AwdLstmForSequenceClassification,
    "cloze-awd-lstm-classifier",
    KEY,
    rules(),
    |config, file| own::insert(config, KEY, "ClozeAwdLstmForSequenceClassification", file)
);

#[cfg(test)]
mod tests {
    use super::own::tests::comes_back;
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_saved_model_is_the_model() {
        let config = AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 3, ..AwdLstmConfig::new(23) };
        comes_back(&config);
        let output = Some(crate::blocks::AdaptiveSoftmaxConfig::new(vec![7, 15]));
        comes_back(&AwdLstmConfig { d_embedding: 32, output, ..config.clone() });
        comes_back(&AwdLstmClassifierConfig::new(config, 3));
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let mut json = json!({ "model_type": "cloze-awd-lstm", "awd_lstm": AwdLstmConfig::new(23) });
        let refused = own::tests::refused::<AwdLstmConfig>;
        json["awd_lstm"]["d_hidden"] = 0.into();
        assert!(refused(&json).contains("`d_hidden` is 0, expected at least 1"), "{}", refused(&json));
        json["awd_lstm"] = Value::Null;
        assert!(refused(&json).contains("`awd_lstm` is null, expected the model's configuration"));
    }
}
