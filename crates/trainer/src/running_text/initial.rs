//! A run's initial weights: random, or a checkpoint's.

use crate::config::OutputSection;
use crate::{Result, TrainerError};
use cloze_model::huggingface::{LoadReport, Published, check_floats, check_published, load_published_as};
use cloze_model::{ModelError, ParamInit};
use std::path::Path;

/// A model before its first step.
#[derive(Debug)]
pub(crate) struct InitialModel<C: Published> {
    pub config: C,
    pub model: C::Model,
    /// The checkpoint's unused tensors.
    pub report: LoadReport,
}

impl<C: Published> InitialModel<C> {
    /// A model with random weights.
    pub fn new(config: C, init: &mut ParamInit) -> Self {
        let model = config.init(init);
        Self { config, model, report: LoadReport::default() }
    }

    /// A model with the weights of a checkpoint folder.
    ///
    /// # Errors
    /// A missing or damaged file in the folder.
    pub fn load(config: C, folder: &Path, init: &mut ParamInit) -> Result<Self> {
        check_floats(folder)?;
        let (model, report) = load_published_as(&config, folder, init)?;
        Ok(Self { config, model, report })
    }
}

/// Rejects a model that could not be saved at the end of its run, naming the key to change.
pub(crate) fn check<C: Published>(config: &C) -> Result<()> {
    check_published(config).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            let key = if key == "embedding_dropout" { "hidden_dropout" } else { key };
            TrainerError::Setting { key: format!("model.{key}"), found, expected }
        }
        other => other.into(),
    })
}

/// Rejects more drawn pieces than a vocabulary has for them.
pub(crate) fn check_sampled(output: &OutputSection, vocab_size: usize) -> Result<()> {
    let Some(sampled) = output.sampled() else { return Ok(()) };
    sampled.validate(vocab_size).map_err(|error| match error {
        ModelError::Setting { key, found, expected } => {
            TrainerError::Setting { key: format!("model.{key}"), found, expected }
        }
        other => other.into(),
    })
}
