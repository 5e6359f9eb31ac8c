//! Keys of `config.json` that GPT-2, Llama and their kin have in common, and fields that their classes fix.

use super::super::fields::Fields;
use super::layer_types;
use crate::gpt::GptConfig;
use crate::{ModelError, Result};
use serde_json::{Map, Value};

/// The error for a field that differs from the class's fixed value.
pub(super) fn only<T: PartialEq + std::fmt::Debug>(
    class: &str,
    key: &'static str,
    found: T,
    expected: T,
) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let expected =
        format!("{expected:?}: transformers has no other {class}, so such a model cannot be saved");
    Err(ModelError::Setting { key, found: format!("{found:?}"), expected })
}

/// Refuses keys that say that layers have a window, which the class does not have. One that hides nothing is none.
pub(super) fn windowless(fields: &Fields, class: &str, n_layers: usize, max_positions: usize) -> Result<()> {
    let full = layer_types::FULL;
    if layer_types::read(fields, n_layers)?.is_some_and(|layers| layers.contains(&true)) {
        let found = fields.value(layer_types::LAYER_TYPES).unwrap_or(&Value::Null);
        let expected = format!("\"{full}\" in every layer: {class} has no window");
        return Err(fields.refuse(layer_types::LAYER_TYPES, found, &expected));
    }
    match fields.size("sliding_window")?.filter(|window| *window < max_positions) {
        Some(window) => {
            Err(fields.refuse("sliding_window", &window.into(), &format!("null: {class} has no window")))
        }
        None => Ok(()),
    }
}

/// The error for a window, which the class does not support.
pub(super) fn no_window(class: &str, window: Option<usize>) -> Result<()> {
    match window {
        None => Ok(()),
        Some(window) => {
            let expected =
                format!("none: transformers' {class} has no window, so such a model cannot be saved");
            Err(ModelError::Setting { key: "window", found: window.to_string(), expected })
        }
    }
}

/// The ids of the pieces that begin and end a text, the first one if several end it. Missing ones are those of
/// `config`.
pub(super) fn read_ends(fields: &Fields, config: GptConfig) -> Result<GptConfig> {
    let id = |key: &str, default: Option<usize>| {
        if !fields.has(key) {
            return Ok(default);
        }
        fields.typed(key, "a whole number, 0 or more, or a list of such", |value| {
            let id = value.as_array().map_or(Some(value), |ids| ids.first());
            usize::try_from(id?.as_u64()?).ok()
        })
    };
    let begin_token_id = id("bos_token_id", config.begin_token_id)?;
    let end_token_id = id("eos_token_id", config.end_token_id)?;
    // Small test models keep the ids of large ones, which are outside their vocabularies.
    let known = |id: Option<usize>| id.filter(|id| *id < config.vocab_size);
    let (begin_token_id, end_token_id) = (known(begin_token_id), known(end_token_id));
    Ok(GptConfig { begin_token_id, end_token_id, ..config })
}

/// Adds these ids to a `config.json`, even if there are none, since a class may have other defaults.
pub(super) fn write_ends(config: &GptConfig, map: &mut Map<String, Value>) {
    map.insert("bos_token_id".into(), config.begin_token_id.into());
    map.insert("eos_token_id".into(), config.end_token_id.into());
}
