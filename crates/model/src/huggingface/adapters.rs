//! Files of low-rank adapters and the head trained with them, without the backbone.

use super::{read_tensors, write_tensors};
use crate::blocks::LoraConfig;
use crate::weights::{self, NamedTensors};
use crate::{HasBackbone, ModelError, Result};
use safetensors::SafeTensors;
use std::path::Path;

/// The key in a file's metadata that holds the adapters' configuration.
const CONFIG_KEY: &str = "cloze.lora";

/// Whether a parameter of a task model is saved in the adapters' file: adapters are, and everything outside the
/// backbone.
fn is_kept<M: HasBackbone>(path: &str) -> bool {
    path.contains(".lora.") || !M::is_of_backbone(path)
}

/// Saves the adapters and the head of a task model, without the backbone, and the adapters' configuration.
pub fn save_adapters<M: HasBackbone>(path: &Path, model: &M, config: &LoraConfig) -> Result<()> {
    let mut tensors = weights::collect(model);
    tensors.retain(|path, _| is_kept::<M>(path));
    let config = serde_json::to_string(config).expect("a struct of plain values serialises");
    write_tensors(path, &tensors, &[("format", "pt"), (CONFIG_KEY, &config)])
}

/// The configuration of the adapters in a file: [attach](crate::blocks::LoraConfig::attach) adapters with it, then
/// [load](load_adapters) them.
///
/// # Errors
/// A file that cannot be read, is not in the safetensors format, or lacks the configuration.
pub fn read_adapter_config(path: &Path) -> Result<LoraConfig> {
    let bytes = cloze_files::read(path).map_err(ModelError::io("read", path))?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes)
        .map_err(|source| ModelError::Safetensors { path: path.into(), source })?;
    let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(CONFIG_KEY));
    let text = text.ok_or_else(|| {
        ModelError::Config(format!(
            "{}: its header has no `{CONFIG_KEY}`, so it is not a file of adapters",
            path.display()
        ))
    })?;
    let config: LoraConfig = serde_json::from_str(text).map_err(|source| ModelError::Json {
        path: path.into(),
        what: "adapters with their configuration",
        source,
    })?;
    config.validate()?;
    Ok(config)
}

/// Loads saved adapters and a saved head into a task model with the same adapters attached.
///
/// # Errors
/// A file that cannot be read; tensors that are missing, have another shape, or match no parameter of the model.
pub fn load_adapters<M: HasBackbone>(path: &Path, model: M) -> Result<M> {
    let mut found = read_tensors(path)?;
    let (mut tensors, mut missing) = (NamedTensors::new(), Vec::new());
    for (name, expected) in weights::shapes(&model).into_iter().filter(|(name, _)| is_kept::<M>(name)) {
        match found.remove(&name) {
            Some(data) if data.shape().as_slice() == expected => {
                tensors.insert(name, data);
            }
            Some(data) => {
                let found = data.shape().to_vec();
                return Err(ModelError::Shape { path: path.into(), name, expected, found });
            }
            None => missing.push(name),
        }
    }
    let path = || path.to_path_buf();
    if !missing.is_empty() {
        missing.sort();
        let parameter = missing[0].clone();
        return Err(ModelError::MissingTensors {
            path: path(),
            names: missing,
            parameter,
            others: found.into_keys().collect(),
        });
    }
    if !found.is_empty() {
        return Err(ModelError::UnexpectedTensors { path: path(), names: found.into_keys().collect() });
    }
    Ok(weights::replace(model, tensors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::Bert;
    use crate::blocks::lora_tests::{input, model};
    use crate::tasks::BertForSequenceClassification;
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, TensorData};

    #[test]
    fn adapters_are_saved_alone_and_loaded() {
        let device = Device::flex().autodiff();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapters.safetensors");
        let config = LoraConfig { rank: 2, alpha: 3.0, ..LoraConfig::default() };
        let saved = model(&config, 5, &device);
        save_adapters(&path, &saved, &config).unwrap();
        assert_eq!(read_adapter_config(&path).unwrap(), config);
        // Two adapters in each of two layers, and the head.
        assert_eq!(read_tensors(&path).unwrap().len(), 2 * 2 * 2 + 2);

        let other = model(&config, 6, &device);
        let other = BertForSequenceClassification {
            bert: Bert {
                embeddings: saved.bert.embeddings.clone(),
                ..weights::replace(
                    other.bert,
                    weights::collect(&saved.bert)
                        .into_iter()
                        .filter(|(path, _)| !path.contains("lora"))
                        .collect(),
                )
            },
            ..other
        };
        assert_ne!(weights::collect(&other), weights::collect(&saved));
        let loaded = load_adapters(&path, other).unwrap();
        assert_eq!(weights::collect(&loaded), weights::collect(&saved));
        let loss = loaded.forward(input(&device)).sum();
        assert_eq!(GradientsParams::from_grads(loss.backward(), &loaded).len(), 2 * 2 * 2 + 2);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let device = Device::flex();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapters.safetensors");
        let config = LoraConfig { rank: 2, ..LoraConfig::default() };
        save_adapters(&path, &model(&config, 5, &device), &config).unwrap();
        let load =
            |config: LoraConfig| load_adapters(&path, model(&config, 6, &device)).unwrap_err().to_string();
        let message = load(LoraConfig { rank: 3, ..config.clone() });
        assert!(
            message.contains("query.lora.down` has shape [8, 2], the configuration asks for [8, 3]"),
            "{message}"
        );
        let message = load(LoraConfig { targets: vec!["*.query".into()], ..config.clone() });
        assert!(message.contains("4 tensors have no place in the model, the first is `bert.encoder.layers.0.attention.value.lora.down`"), "{message}");
        let message = load(LoraConfig { targets: vec!["*".into()], ..config.clone() });
        assert!(
            message.contains(
                "tensors are missing, the first is `bert.encoder.layers.0.attention.key.lora.down`"
            ),
            "{message}"
        );

        let plain = folder.path().join("plain.safetensors");
        let one = NamedTensors::from([("a".to_string(), TensorData::from([1f32]))]);
        write_tensors(&plain, &one, &[]).unwrap();
        let message = read_adapter_config(&plain).unwrap_err().to_string();
        assert!(
            message.ends_with("its header has no `cloze.lora`, so it is not a file of adapters"),
            "{message}"
        );
    }
}
