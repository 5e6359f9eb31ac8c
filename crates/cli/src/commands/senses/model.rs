//! The model that gives words their vectors.

use anyhow::{Context, Result};
use clap::builder::RangedU64ValueParser;
use cloze_search::ModelIdentity;
use cloze_trainer::senses::{SenseModel, SenseVectors, TargetEmbedder};
use cloze_trainer::token_vectors::{Layers, TokenEmbedConfig};

use crate::compute::Compute;
use crate::model;

/// How the model computes.
#[derive(clap::Args)]
pub struct ComputeArgs {
    /// Tokens that are worked on at a time.
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
    /// Loads a model by its folder or name, and says what it is.
    pub fn load(&self, name: &str, layers: Layers) -> Result<(TargetEmbedder, SenseModel)> {
        let device = self.compute.open()?;
        let folder = model::folder(name)?;
        let config = TokenEmbedConfig {
            layers,
            batch_tokens: self.batch_tokens,
            int8: self.compute.int8,
            ..TokenEmbedConfig::default()
        };
        let embedder = TargetEmbedder::load(&folder, config, &device)?;
        let model = SenseModel {
            name: name.to_owned(),
            hash: ModelIdentity::hash_of(&folder)?,
            layers: embedder.layers().to_string(),
            width: embedder.width(),
        };
        Ok((embedder, model))
    }

    /// Loads the model that made sense vectors, or the one given instead, which must be the same.
    pub fn of_senses(&self, senses: &SenseVectors, name: Option<&str>) -> Result<TargetEmbedder> {
        let layers = senses.model.layers.parse::<Layers>().map_err(anyhow::Error::msg);
        let layers =
            layers.with_context(|| format!("the sense vectors' layers are {:?}", senses.model.layers))?;
        let (embedder, model) = self.load(name.unwrap_or(&senses.model.name), layers)?;
        senses.check_model(&model)?;
        Ok(embedder)
    }
}
