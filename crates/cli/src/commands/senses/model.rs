//! The model that computes word vectors.

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use cloze_trainer::TrainerError;
use cloze_trainer::senses::{SenseModel, SenseVectors, TargetEmbedder};
use cloze_trainer::token_vectors::{Layers, TokenEmbedConfig};

use crate::compute::Compute;
use crate::failure::by_option;
use crate::model::{self, OtherModel};

/// Compute options.
#[derive(clap::Args)]
pub struct ComputeArgs {
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = TokenEmbedConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    #[command(flatten)]
    pub compute: Compute,
}

impl ComputeArgs {
    /// Loads a model by its folder or name; returns its identity too.
    pub fn load(&self, name: &str, layers: Layers) -> Result<(TargetEmbedder, SenseModel)> {
        self.load_as(name, layers, &OtherModel::default(), None)
    }

    fn load_as(
        &self,
        name: &str,
        layers: Layers,
        other: &OtherModel,
        expected: Option<&str>,
    ) -> Result<(TargetEmbedder, SenseModel)> {
        let device = self.compute.open()?;
        let folder = model::folder(name)?;
        let config = TokenEmbedConfig {
            layers,
            batch_tokens: self.batch_tokens,
            int8: self.compute.int8,
            ..TokenEmbedConfig::default()
        };
        let embedder = TargetEmbedder::load(&folder, config, &device).map_err(by_option)?;
        let model = SenseModel {
            name: model::lasting_name(name),
            hash: other.hash(&folder, expected)?,
            layers: embedder.layers().to_string(),
            width: embedder.width(),
        };
        Ok((embedder, model))
    }

    /// Loads the model that made the sense vectors, or the given one, which must be the same.
    pub fn of_senses(
        &self,
        senses: &SenseVectors,
        name: Option<&str>,
        other: &OtherModel,
    ) -> Result<TargetEmbedder> {
        let layers = senses.model.layers.parse::<Layers>().map_err(anyhow::Error::msg);
        let layers =
            layers.with_context(|| format!("the sense vectors' layers are {:?}", senses.model.layers))?;
        let name = name.unwrap_or(&senses.model.name);
        let (embedder, model) = self.load_as(name, layers, other, Some(&senses.model.hash))?;
        senses.check_model(&model).map_err(|error| match error {
            TrainerError::OtherSenseModel { part: "hash", .. } => OtherModel::hint(error, &model.hash),
            error => error.into(),
        })?;
        Ok(embedder)
    }
}
