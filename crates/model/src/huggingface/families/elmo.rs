//! ELMo, its classifier and its tagger, in this project's own format: transformers has no class for them.

use super::super::TensorRules;
use super::own::{self, own_format};
use crate::elmo::{
    Elmo, ElmoClassifierConfig, ElmoConfig, ElmoForSequenceClassification, ElmoForTokenClassification,
    ElmoTaggerConfig,
};

/// The key of the configuration.
const KEY: &str = "elmo";

/// Tensors are named by their parameters' paths.
fn rules() -> TensorRules {
    TensorRules::new().table("encoder.characters.embedding", "encoder.characters.embedding")
}

own_format!(ElmoConfig, Elmo, "cloze-elmo", KEY, rules(), |config, file| {
    own::insert(config, KEY, "ClozeElmo", file);
    file.insert("vocab_size".into(), config.vocab_size().into());
});

own_format!(
    ElmoClassifierConfig,
    ElmoForSequenceClassification,
    "cloze-elmo-classifier",
    KEY,
    rules(),
    |config, file| own::insert(config, KEY, "ClozeElmoForSequenceClassification", file)
);

own_format!(
    ElmoTaggerConfig,
    ElmoForTokenClassification,
    "cloze-elmo-tagger",
    KEY,
    rules(),
    |config, file| own::insert(config, KEY, "ClozeElmoForTokenClassification", file)
);

#[cfg(test)]
mod tests {
    use super::own::tests::comes_back;
    use super::*;
    use crate::Sequences;
    use crate::elmo::{CharacterEncoderConfig, PieceBytes};
    use burn::tensor::Device;
    use serde_json::{Value, json};

    fn config() -> ElmoConfig {
        let pieces: PieceBytes = [&b"a"[..], b" the", b"\xc3", b"<|endoftext|>"].into_iter().collect();
        let characters = CharacterEncoderConfig {
            d_character: 3,
            filters: vec![[1, 4].into(), [3, 5].into()],
            d_out: 6,
            ..CharacterEncoderConfig::default()
        };
        ElmoConfig { characters, d_hidden: 7, ..ElmoConfig::new(pieces) }
    }

    #[test]
    fn a_saved_model_is_the_model() {
        let device = Device::flex();
        comes_back(&ElmoClassifierConfig::new(config(), 3));
        comes_back(&ElmoTaggerConfig { crf: true, ..ElmoTaggerConfig::new(config(), 4) });
        let models = comes_back(&config());
        // The pieces' bytes are in the folder too.
        let text: Sequences = [&[0, 1, 2, 3][..]].into_iter().collect();
        let [found, expected] = models.map(|model| model.losses(&text, &device).next.into_data());
        assert_eq!(found, expected);
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let mut json = json!({ "model_type": "cloze-elmo", "elmo": config() });
        let refused = own::tests::refused::<ElmoConfig>;
        json["elmo"]["pieces"][0] = "Ā".into();
        let message = refused(&json);
        assert!(message.contains("piece \"Ā\" has a character above U+00FF"), "{message}");
        json["elmo"]["pieces"] = json!(["a"]);
        json["elmo"]["characters"]["filters"] = json!([[1, 0]]);
        assert!(refused(&json).contains("`filters` is 0, expected at least 1"), "{}", refused(&json));
        json["elmo"] = Value::Null;
        assert!(refused(&json).contains("`elmo` is null, expected the model's configuration"));
    }
}
