//! What is trained to translate.

use std::path::PathBuf;

use crate::step;

/// A row of the benchmark.
#[derive(Debug)]
pub struct Model {
    pub name: &'static str,
    /// The config's name in `configs/`.
    pub config: &'static str,
    /// Over the config's settings.
    pub sets: &'static [&'static str],
    /// The language of the translations, as the ending of the test's file.
    pub target: &'static str,
    /// Whether the peer has the same network, and how many times its training's rate ours is to be.
    pub peer: Option<f64>,
    /// Whether the peer's network is trained to its end, too.
    pub is_trained_by_both: bool,
}

impl Model {
    const fn new(name: &'static str, config: &'static str) -> Self {
        Self { name, config, sets: &[], target: "de", peer: None, is_trained_by_both: false }
    }

    /// With the same network in PyTorch.
    const fn beside(self, floor: f64) -> Self {
        Self { peer: Some(floor), ..self }
    }

    /// And that one trained for as many steps.
    const fn trained_by_both(self) -> Self {
        Self { is_trained_by_both: true, ..self }
    }

    /// Its config.
    pub fn path(&self) -> PathBuf {
        step::root().join("configs").join(self.config).with_extension("toml")
    }
}

/// From the first to the last station of the road.
pub const MODELS: &[Model] = &[
    Model::new("RNN", "multi30k-rnn").beside(2.0),
    Model::new("RNN with attention", "multi30k-rnn-attention").beside(2.0),
    Model::new("Convolutional", "multi30k-convolutional"),
    Model::new("Transformer", "multi30k-transformer").beside(1.5).trained_by_both(),
    Model { target: "fr", ..Model::new("Transformer, en→fr", "multi30k-enfr-transformer") },
];

/// The model that is used to time decoding.
pub const TRANSFORMER: &Model = &MODELS[3];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_its_config() {
        for model in MODELS {
            assert!(model.path().is_file(), "{}", model.path().display());
        }
        assert_eq!(TRANSFORMER.name, "Transformer");
    }
}
