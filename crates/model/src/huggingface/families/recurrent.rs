//! This project's own recurrent encoder–decoders.

use super::super::TensorRules;
use super::own::{self, own_format};
use crate::seq2seq::{RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig};

/// The key of the configuration.
const KEY: &str = "recurrent";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new()
        .table("source_embedding", "source_embedding")
        .table("target_embedding", "target_embedding")
}

own_format!(
    RecurrentEncoderDecoderConfig,
    RecurrentEncoderDecoder,
    "cloze-recurrent",
    KEY,
    rules(),
    |config, file| own::write(
        config,
        KEY,
        "ClozeRecurrentEncoderDecoder",
        config.vocab_size,
        &config.tokens,
        file
    )
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recurrent::Cell;
    use crate::seq2seq::{TiedEmbeddings, Wiring};
    use serde_json::{Value, json};

    #[test]
    fn a_saved_model_is_the_model() {
        let base = RecurrentEncoderDecoderConfig::new(23, 6, 8);
        own::tests::is_saved_and_read(&base);
        own::tests::is_saved_and_read(&RecurrentEncoderDecoderConfig {
            cell: Cell::Gru,
            wiring: Wiring::None,
            tied: TiedEmbeddings::None,
            source_vocab_size: Some(29),
            n_encoder_layers: 2,
            ..base
        });
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let config = RecurrentEncoderDecoderConfig::new(23, 6, 8);
        let mut json = json!({ "model_type": "cloze-recurrent", "recurrent": config });
        let refused = own::tests::refused::<RecurrentEncoderDecoderConfig>;
        json["recurrent"]["d_model"] = 7.into();
        assert!(refused(&json).contains("`d_model` is 7, expected an even number"), "{}", refused(&json));
        json["recurrent"]["cell"] = "elman".into();
        assert!(refused(&json).contains("`recurrent`: unknown variant `elman`"), "{}", refused(&json));
        json["recurrent"] = Value::Null;
        assert!(refused(&json).contains("`recurrent` is null, expected the model's configuration"));
    }
}
