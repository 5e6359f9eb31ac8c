use super::{AwdLstm, AwdLstmEncoder};
use crate::blocks::{AdaptiveSoftmaxConfig, Embedding};
use crate::recurrent::{Cell, RecurrentLayer};
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The probabilities of AWD-LSTM's dropouts (Merity et al. 2018, §2 and §4). All but [`weight`](Self::weight)
/// and [`word`](Self::word) are variational: a sequence's tokens share the dropped features (Gal & Ghahramani
/// 2016).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AwdLstmDropout {
    /// Whole words: a dropped piece has embedding 0 everywhere in the batch. Default 0.1.
    pub word: f64,
    /// Embedding features. Default 0.4.
    pub input: f64,
    /// Recurrent weights (DropConnect, Wan et al. 2013). Default 0.5.
    pub weight: f64,
    /// Outputs of each layer but the last. Default 0.3.
    pub hidden: f64,
    /// The last layer's states. Default 0.4.
    pub output: f64,
}

impl Default for AwdLstmDropout {
    /// The paper's values for the Penn Treebank (§5).
    fn default() -> Self {
        Self { word: 0.1, input: 0.4, weight: 0.5, hidden: 0.3, output: 0.4 }
    }
}

impl AwdLstmDropout {
    /// No dropout.
    pub fn none() -> Self {
        Self { word: 0.0, input: 0.0, weight: 0.0, hidden: 0.0, output: 0.0 }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid probability.
    pub fn validate(&self) -> Result<()> {
        for (key, p) in [
            ("dropout.word", self.word),
            ("dropout.input", self.input),
            ("dropout.weight", self.weight),
            ("dropout.hidden", self.hidden),
            ("dropout.output", self.output),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(ModelError::setting(key, p, "0 or more and below 1"));
            }
        }
        Ok(())
    }
}

/// The configuration of an AWD-LSTM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwdLstmConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Features of an embedding and of the last layer's states, since the embeddings are tied to the
    /// output layer.
    pub d_embedding: usize,
    /// Features of the other layers' states.
    pub d_hidden: usize,
    /// Layers.
    pub n_layers: usize,
    /// The dropouts.
    pub dropout: AwdLstmDropout,
    /// An adaptive softmax, for large vocabularies, in place of the output layer tied to the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AdaptiveSoftmaxConfig>,
}

impl AwdLstmConfig {
    /// The paper's model: three layers, embeddings of 400 features, states of 1,150.
    pub fn new(vocab_size: usize) -> Self {
        let dropout = AwdLstmDropout::default();
        Self { vocab_size, d_embedding: 400, d_hidden: 1150, n_layers: 3, dropout, output: None }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([
            ("vocab_size", self.vocab_size),
            ("d_embedding", self.d_embedding),
            ("d_hidden", self.d_hidden),
            ("n_layers", self.n_layers),
        ])?;
        if let Some(output) = &self.output {
            output.validate(self.vocab_size, self.d_embedding)?;
        }
        self.dropout.validate()
    }

    /// Features of each layer's states, from the lowest layer to the highest.
    pub fn widths(&self) -> Vec<usize> {
        let width = |layer| if layer + 1 == self.n_layers { self.d_embedding } else { self.d_hidden };
        (0..self.n_layers).map(width).collect()
    }

    /// A new language model: embeddings are uniform in ±0.1, as in the paper's code; layers are
    /// initialised as [recurrent layers](RecurrentLayer::new).
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> AwdLstm {
        let encoder = self.init_encoder(init);
        let adaptive = self.output.as_ref();
        AwdLstm {
            encoder,
            output_bias: adaptive.is_none().then(|| init.zeros([self.vocab_size])),
            adaptive: adaptive.map(|output| output.init(self.vocab_size, self.d_embedding, init)),
        }
    }

    /// The language model without its output layer.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder(&self, init: &mut ParamInit) -> AwdLstmEncoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let embedding = Embedding::from_weight(init.uniform([self.vocab_size, self.d_embedding], 0.1));
        let mut d_in = self.d_embedding;
        let layer = |d| RecurrentLayer::new(Cell::Lstm, std::mem::replace(&mut d_in, d), d, init);
        let layers = self.widths().into_iter().map(layer).collect();
        AwdLstmEncoder { embedding, layers, dropout: self.dropout }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let base = AwdLstmConfig::new(50);
        base.validate().unwrap();
        assert_eq!(base.widths(), [1150, 1150, 400]);
        let refused = |config: AwdLstmConfig| config.validate().unwrap_err().to_string();
        assert!(
            refused(AwdLstmConfig { d_hidden: 0, ..base.clone() })
                .contains("`d_hidden` is 0, expected at least 1")
        );
        let dropout = AwdLstmDropout { weight: 1.0, ..AwdLstmDropout::none() };
        let message = refused(AwdLstmConfig { dropout, ..base });
        assert!(message.contains("`dropout.weight` is 1, expected 0 or more and below 1"), "{message}");
    }
}
