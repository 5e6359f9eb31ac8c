use super::layer::{ElmoLayer, ProjectedLstm};
use super::{CharacterEncoderConfig, Elmo, ElmoEncoder, PieceBytes};
use crate::blocks::Linear;
use crate::sizes::check_recurrent_sizes;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of an [`Elmo`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElmoConfig {
    /// The character encoder. Its words have as many features as a projected state.
    pub characters: CharacterEncoderConfig,
    /// Features of an LSTM's cell.
    pub d_hidden: usize,
    /// Number of layers, each bidirectional.
    pub n_layers: usize,
    /// Dropout on each layer's input, and on the last layer's states before the output layer.
    pub dropout: f64,
    /// The bytes of the vocabulary's pieces.
    pub pieces: PieceBytes,
}

impl ElmoConfig {
    /// The paper's model (Peters et al. 2018, §3.4): two layers of 4,096 features, projected to 512; with the dropout of its
    /// code.
    pub fn new(pieces: PieceBytes) -> Self {
        let characters = CharacterEncoderConfig::default();
        Self { characters, d_hidden: 4096, n_layers: 2, dropout: 0.1, pieces }
    }

    /// Pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Features of a layer's state, both directions together.
    pub fn d_model(&self) -> usize {
        2 * self.characters.d_out
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        self.characters.validate()?;
        check_recurrent_sizes([
            ("d_hidden", self.d_hidden),
            ("n_layers", self.n_layers),
            ("pieces", self.pieces.len()),
        ])?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        Ok(())
    }

    /// A new language model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Elmo {
        let encoder = self.init_encoder(init);
        Elmo { encoder, output: Linear::uniform(self.characters.d_out, self.vocab_size(), init) }
    }

    /// The language model without its output layer.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder(&self, init: &mut ParamInit) -> ElmoEncoder {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let (d, p) = (self.d_hidden, self.characters.d_out);
        let characters = self.characters.init(init);
        let mut one = || ProjectedLstm::new(p, d, p, init);
        let layers = (0..self.n_layers).map(|_| ElmoLayer { forward: one(), reverse: one() }).collect();
        ElmoEncoder { characters, layers, dropout: self.dropout, pieces: self.pieces.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let base = ElmoConfig::new([&b"a"[..]].into_iter().collect());
        base.validate().unwrap();
        assert_eq!((base.vocab_size(), base.d_model()), (1, 1024));
        let refused = |config: ElmoConfig| config.validate().unwrap_err().to_string();
        let message = refused(ElmoConfig { d_hidden: 0, ..base.clone() });
        assert!(message.contains("`d_hidden` is 0, expected at least 1"), "{message}");
        let message = refused(ElmoConfig { dropout: 1.0, ..base.clone() });
        assert!(message.contains("`dropout` is 1, expected 0 or more and below 1"), "{message}");
        let message = refused(ElmoConfig { pieces: PieceBytes::default(), ..base });
        assert!(message.contains("`pieces` is 0, expected at least 1"), "{message}");
    }
}
