//! Asking a T5, from its folder to texts, against transformers: `tests/fixtures/t5_translation/export.py`.

use crate::golden::fixture;
use burn::tensor::Device;
use cloze_data::Sentinels;
use cloze_model::generate::{BeamSearch, Search};
use cloze_tokenizer::Tokenizer;
use cloze_trainer::embed::{EmbedConfig, Embedder};
use cloze_trainer::translate::{TranslateConfig, Translator};
use serde_json::Value;

fn expected() -> Value {
    let text = std::fs::read_to_string(fixture("t5_translation").join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn the_tokenizer_of_a_t5_gives_transformers_ids() {
    let tokenizer = Tokenizer::load(fixture("t5_translation")).unwrap();
    let expected = expected();
    for (text, ids) in texts(&expected["texts"]).into_iter().zip(expected["ids"].as_array().unwrap()) {
        let found = tokenizer.encode_ids(text, true).unwrap();
        let ids: Vec<u64> = ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        assert_eq!(found.into_iter().map(u64::from).collect::<Vec<_>>(), ids, "{text}");
    }
    assert_eq!(Sentinels::find(&tokenizer).len(), 4);
}

#[test]
fn what_a_t5_writes_is_what_transformers_does() {
    let expected = expected();
    let max_new = expected["max_new"].as_u64().unwrap() as usize;
    for (name, search) in [("greedy", Search::Greedy), ("beam", Search::Beam(BeamSearch::new(3)))] {
        let mut config = TranslateConfig::default();
        (config.search, config.decoding.settings.max_new) = (Some(search), Some(max_new));
        let translator = Translator::load(&fixture("t5_translation"), config, &Device::flex()).unwrap();
        assert_eq!(translator.max_len(), 64, "`n_positions`");
        let sources: Vec<_> = texts(&expected["texts"]).into_iter().map(Into::into).collect();
        let found = translator.translate(&sources, &[]).unwrap();
        let found: Vec<String> = found.map(|found| found.unwrap().remove(0).text).collect();
        assert_eq!(found, texts(&expected[name]), "{name}");
    }
}

#[test]
fn the_encoder_of_a_t5_embeds_as_transformers_does() {
    let expected = expected();
    let folder = fixture("t5_translation");
    let embedder = Embedder::load(&folder, EmbedConfig::default(), &Device::flex()).unwrap();
    let found = embedder.embed(&texts(&expected["texts"])).unwrap().values;
    let means = expected["means"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    let means: Vec<f64> = means.map(|value| value.as_f64().unwrap()).collect();
    assert_eq!(found.len(), means.len());
    for (found, expected) in found.into_iter().zip(means) {
        assert!((f64::from(found) - expected).abs() < 1e-4, "{found} is not {expected}");
    }
}
