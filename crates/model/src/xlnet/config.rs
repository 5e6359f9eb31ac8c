use super::{Xlnet, XlnetLanguageModel};
use crate::blocks::Activation;
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};

/// The configuration of an XLNet. [`new`](Self::new) has the published models' values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct XlnetConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Heads, which divide `d_model`.
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// The non-linearity of the feed-forward networks.
    pub activation: Activation,
    /// Added to the variance in every normalisation.
    pub norm_eps: f64,
    /// Dropout on embeddings, relative positions, attention probabilities, sub-layers and the last states.
    pub dropout: f64,
    /// Whether attention is causal in text order, regardless of the prediction order: Transformer-XL's
    /// attention. Off in the published models.
    pub causal: bool,
    /// Whether each token of a [causal](Self::causal) model sees the same number of tokens: as many before it
    /// as the memory is long.
    pub same_length: bool,
    /// Maximum distance: larger ones are clamped to it; `None`: no limit.
    pub clamp_len: Option<usize>,
    /// Number of tokens kept in the [memory](super::XlnetMemory); `None`: all.
    pub memory_len: Option<usize>,
    /// Number of initial tokens of each segment added to the memory; `None`: all.
    pub reuse_len: Option<usize>,
    /// Standard deviation of the truncated normal that weights start from. The reference code uses an
    /// untruncated normal.
    pub init_std: f64,
    /// The id of the piece that begins a text, which Hugging Face's `config.json` records.
    pub begin_token_id: Option<usize>,
    /// The id of the piece that ends a text, likewise.
    pub end_token_id: Option<usize>,
    /// The id of the padding piece, likewise.
    pub pad_token_id: Option<usize>,
}

impl XlnetConfig {
    /// A model of `n_layers` layers of width `d_model`, with heads of 64 features.
    pub fn new(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            vocab_size,
            n_layers,
            d_model,
            n_heads: (d_model / 64).max(1),
            d_ff: d_model.saturating_mul(4),
            activation: Activation::Gelu,
            norm_eps: 1e-12,
            dropout: 0.1,
            causal: false,
            same_length: false,
            clamp_len: None,
            memory_len: None,
            reuse_len: None,
            init_std: 0.02,
            begin_token_id: None,
            end_token_id: None,
            pad_token_id: None,
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_ff", self.d_ff),
        ])?;
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
            return Err(ModelError::setting("n_heads", self.n_heads, expected));
        }
        if !self.d_model.is_multiple_of(2) {
            let expected = "an even number: positions are sines and as many cosines";
            return Err(ModelError::setting("d_model", self.d_model, expected));
        }
        let lens =
            [("clamp_len", self.clamp_len), ("memory_len", self.memory_len), ("reuse_len", self.reuse_len)];
        if let Some((key, _)) = lens.iter().find(|(_, len)| *len == Some(0)) {
            return Err(ModelError::setting(key, 0, "at least 1, or none"));
        }
        if self.same_length && !self.causal {
            let expected = "false: only a `causal` model limits what is seen before a token";
            return Err(ModelError::setting("same_length", true, expected));
        }
        for (key, number) in [("norm_eps", self.norm_eps), ("init_std", self.init_std)] {
            if !(number >= 0.0 && number.is_finite()) {
                return Err(ModelError::setting(key, number, "a number of 0 or more"));
            }
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ModelError::setting("dropout", self.dropout, "0 or more and below 1"));
        }
        let ids = [
            ("begin_token_id", self.begin_token_id),
            ("end_token_id", self.end_token_id),
            ("pad_token_id", self.pad_token_id),
        ];
        for (key, id) in ids {
            if let Some(id) = id.filter(|id| *id >= self.vocab_size) {
                let expected = format!("below `vocab_size`, which is {}", self.vocab_size);
                return Err(ModelError::setting(key, id, expected));
            }
        }
        Ok(())
    }

    /// A new model with its language-model head, for pretraining.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> XlnetLanguageModel {
        XlnetLanguageModel { xlnet: self.init_encoder(init), bias: init.zeros([self.vocab_size]) }
    }

    /// A new model without a head.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_encoder(&self, init: &mut ParamInit) -> Xlnet {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        Xlnet::new(self, init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named() {
        let base = XlnetConfig::new(50, 2, 128);
        base.validate().unwrap();
        for (config, key) in [
            (XlnetConfig { n_layers: 0, ..base.clone() }, "`n_layers` is 0"),
            (XlnetConfig { n_heads: 3, ..base.clone() }, "`n_heads` is 3, expected a divisor of `d_model`"),
            (XlnetConfig { d_model: 5, n_heads: 1, ..base.clone() }, "`d_model` is 5, expected an even"),
            (XlnetConfig { memory_len: Some(0), ..base.clone() }, "`memory_len` is 0"),
            (XlnetConfig { clamp_len: Some(0), ..base.clone() }, "`clamp_len` is 0"),
            (XlnetConfig { same_length: true, ..base.clone() }, "`same_length` is true, expected false"),
            (XlnetConfig { norm_eps: f64::NAN, ..base.clone() }, "`norm_eps` is NaN"),
            (XlnetConfig { dropout: 1.0, ..base.clone() }, "`dropout` is 1"),
            (XlnetConfig { pad_token_id: Some(50), ..base.clone() }, "`pad_token_id` is 50"),
        ] {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }
}
