//! Folders of this project's own models, which transformers has no class for.

use super::super::fields::Fields;
use crate::Result;
use crate::seq2seq::SpecialTokens;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Reads a configuration that stands whole below `key`.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) if it is missing, or has a value that `validate` refuses.
pub(super) fn read<C: DeserializeOwned>(
    fields: &Fields,
    key: &str,
    validate: impl Fn(&C) -> Result<()>,
) -> Result<C> {
    let Some(config) = fields.nested(key)? else {
        return Err(fields.refuse(key, &Value::Null, "the model's configuration"));
    };
    validate(&config).map_err(|error| fields.error(&error.to_string()))?;
    Ok(config)
}

/// Adds a configuration below `key`, and the name of its class.
pub(super) fn insert(config: &impl Serialize, key: &str, class: &str, file: &mut Map<String, Value>) {
    file.insert("architectures".into(), vec![class].into());
    file.insert(key.into(), serde_json::to_value(config).expect("plain values serialise"));
}

/// Adds an encoder–decoder's configuration below `key`, and what other programs look for beside it.
pub(super) fn write(
    config: &impl Serialize,
    key: &str,
    class: &str,
    vocab_size: usize,
    tokens: &SpecialTokens,
    file: &mut Map<String, Value>,
) {
    let SpecialTokens { pad, bos, eos, decoder_start, .. } = tokens;
    let entries = json!({
        "architectures": [class],
        "is_encoder_decoder": true,
        "vocab_size": vocab_size,
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "decoder_start_token_id": decoder_start,
        key: config,
    });
    file.extend(entries.as_object().cloned().unwrap_or_default());
}

/// Makes a config with `validate` and `init` a format of this project's own: its model, its `model_type`, the key that it stands
/// below, the rules of its tensors, and what writes the rest of `config.json`, `|config, file|`.
macro_rules! own_format {
    ($config:ident, $model:ident, $model_type:literal, $key:expr, $rules:expr, $write:expr) => {
        impl crate::huggingface::Format for $config {
            const MODEL_TYPES: &'static [&'static str] = &[$model_type];

            fn read(fields: &crate::huggingface::fields::Fields) -> crate::Result<Self> {
                crate::huggingface::families::own::read(fields, $key, Self::validate)
            }

            fn write(&self, file: &mut serde_json::Map<String, serde_json::Value>) -> crate::Result<()> {
                self.validate()?;
                let write: fn(&Self, &mut serde_json::Map<String, serde_json::Value>) = $write;
                write(self, file);
                Ok(())
            }

            fn rules(&self) -> crate::huggingface::TensorRules {
                $rules
            }
        }

        impl crate::huggingface::Published for $config {
            type Model = $model;

            fn init(&self, init: &mut crate::ParamInit) -> $model {
                self.init(init)
            }
        }
    };
}
pub(super) use own_format;

#[cfg(test)]
pub(super) mod tests {
    use crate::huggingface::{
        FloatType, Published, load_published, model_type, read_published, save_published,
    };
    use crate::seq2seq::EncoderDecoder;
    use crate::{ParamInit, Sequences, weights};
    use burn::tensor::Device;
    use serde_json::Value;
    use std::path::Path;

    /// A model comes back from its folder with the same configuration and parameters: what was read, and what was saved.
    pub fn comes_back<C: Published + PartialEq + std::fmt::Debug>(config: &C) -> [C::Model; 2] {
        let (device, folder) = (Device::flex(), tempfile::tempdir().unwrap());
        let model = config.init(&mut ParamInit::new(&device, 4));
        save_published(folder.path(), &model, config, FloatType::F32).unwrap();
        let saved_as = model_type(folder.path()).unwrap();
        assert!(saved_as.as_deref().is_some_and(|found| C::MODEL_TYPES.contains(&found)), "{saved_as:?}");
        let (read, loaded, report) =
            load_published::<C>(folder.path(), &mut ParamInit::new(&device, 5)).unwrap();
        assert_eq!(&read, config);
        assert!(report.missing.is_empty() && report.unexpected.is_empty());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));
        sizes_are_checked::<C>(folder.path());
        [loaded, model]
    }

    /// A folder whose configuration asks for far more than its tensors are is refused before anything is allocated.
    pub fn sizes_are_checked<C: Published>(folder: &Path) {
        let path = folder.join("config.json");
        let config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for size in [100_000_000_u64, 1 << 31, 1 << 62, u64::MAX] {
            let mut changed = 0;
            // Each number in turn.
            loop {
                let (mut config, mut left) = (config.clone(), changed);
                if !set_number(&mut config, &mut left, size) {
                    break;
                }
                std::fs::write(&path, config.to_string()).unwrap();
                // What is not a size, such as the reach of a window, may be as large.
                let _ = load_published::<C>(folder, &mut ParamInit::new(&Device::flex(), 5));
                changed += 1;
            }
            assert!(changed > 0, "{config}");
        }
    }

    /// Sets the whole number that `skipped` others stand before.
    fn set_number(value: &mut Value, skipped: &mut usize, number: u64) -> bool {
        match value {
            Value::Number(found) if found.is_u64() && *skipped == 0 => {
                *value = number.into();
                true
            }
            Value::Number(found) if found.is_u64() => {
                *skipped -= 1;
                false
            }
            Value::Array(values) => values.iter_mut().any(|value| set_number(value, skipped, number)),
            Value::Object(map) => map.values_mut().any(|value| set_number(value, skipped, number)),
            _ => false,
        }
    }

    /// A model comes back from its folder with the same configuration, parameters and logits.
    pub fn is_saved_and_read<C>(config: &C)
    where
        C: Published<Model: EncoderDecoder> + PartialEq + std::fmt::Debug,
    {
        let (device, [loaded, model]) = (Device::flex(), comes_back(config));
        let source: Sequences = [&[5, 6, 2][..], &[7, 2]].into_iter().collect();
        let logits = |model: &C::Model| model.logits(&source, &source, &device).into_data();
        assert_eq!(logits(&loaded), logits(&model));
    }

    /// What reading a `config.json` is refused with.
    pub fn refused<C: Published + std::fmt::Debug>(json: &Value) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
        read_published::<C>(folder.path()).unwrap_err().to_string()
    }
}
