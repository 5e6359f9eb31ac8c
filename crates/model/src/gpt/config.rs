use super::{Gpt, GptLayer};
use crate::blocks::{
    Activation, AdaptiveSoftmaxConfig, Embedding, FeedForwardConfig, LearnedPositions, Linear,
    MultiHeadAttentionConfig, Norm, NormKind, NormPlacement, RotaryConfig,
};
use crate::sizes::check_sizes;
use crate::{ModelError, ParamInit, Result};

/// The configuration of a left-to-right Transformer. [`gpt2`](Self::gpt2) and [`llama`](Self::llama) are the
/// usual ones. Switches can be combined freely, but only combinations that some transformers class supports
/// can be saved in Hugging Face's format.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GptConfig {
    /// Pieces in the vocabulary.
    pub vocab_size: usize,
    /// Layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key–value heads, each shared by the same number of query heads (Ainslie et al. 2023).
    pub n_kv_heads: usize,
    /// Features of a head.
    pub d_head: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// The longest sequence, in tokens.
    pub max_positions: usize,
    /// Rotary positions; none: a learned vector for each position is added to the embeddings.
    pub rotary: Option<RotaryConfig>,
    /// Number of earlier tokens that a token sees besides itself (Mistral's `sliding_window` minus 1);
    /// `None`: all.
    pub window: Option<usize>,
    /// Whether each layer has the [window](Self::window), from the first to the last; none: all have it. The others see all
    /// earlier tokens.
    pub window_layers: Option<Vec<bool>>,
    /// The kind of normalisation: layer norm or RMS norm.
    pub norm_kind: NormKind,
    /// Where the layers are normalised. Pre-norm layers are followed by a final normalisation.
    pub norm: NormPlacement,
    /// Added to the variance or the mean square in every normalisation.
    pub norm_eps: f64,
    /// The non-linearity of the feed-forward networks.
    pub activation: Activation,
    /// Whether the non-linearity acts on a separate map, which gates the other (SwiGLU with [`Activation::Silu`]).
    pub gated: bool,
    /// Whether the maps to queries, keys and values have biases.
    pub attention_bias: bool,
    /// Whether the attention's output map has a bias.
    pub attention_output_bias: bool,
    /// Whether the feed-forward networks' maps have biases.
    pub feed_forward_bias: bool,
    /// Whether the projection onto the vocabulary is the embedding table.
    pub tied: bool,
    /// An adaptive softmax, for large vocabularies, in place of the projection onto the vocabulary, which is then not tied. Such a
    /// model is saved in a format of this project's own.
    pub output: Option<AdaptiveSoftmaxConfig>,
    /// Dropout on the embeddings.
    pub embedding_dropout: f64,
    /// Dropout on each sub-layer's output.
    pub hidden_dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// Standard deviation of the truncated normal that weights start from; the maps that add to the residual stream
    /// start with it divided by `√(2 · n_layers)` (Radford et al. 2019, §2.3).
    pub init_std: f64,
    /// The id of the piece that begins a text, which Hugging Face's `config.json` records.
    pub begin_token_id: Option<usize>,
    /// The id of the piece that ends a text, which Hugging Face's `config.json` records.
    pub end_token_id: Option<usize>,
}

impl GptConfig {
    /// A GPT-2 (Radford et al. 2019) of `n_layers` layers of width `d_model`, with heads of 64 features.
    pub fn gpt2(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        let n_heads = (d_model / 64).max(1);
        Self {
            vocab_size,
            n_layers,
            d_model,
            n_heads,
            n_kv_heads: n_heads,
            d_head: d_model / n_heads,
            d_ff: d_model.saturating_mul(4),
            max_positions: 1024,
            rotary: None,
            window: None,
            window_layers: None,
            norm_kind: NormKind::Layer,
            norm: NormPlacement::Pre,
            norm_eps: 1e-5,
            activation: Activation::GeluTanh,
            gated: false,
            attention_bias: true,
            attention_output_bias: true,
            feed_forward_bias: true,
            tied: true,
            output: None,
            embedding_dropout: 0.1,
            hidden_dropout: 0.1,
            attention_dropout: 0.1,
            init_std: 0.02,
            begin_token_id: None,
            end_token_id: None,
        }
    }

    /// A Llama (Touvron et al. 2023) of `n_layers` layers of width `d_model`, with heads of 64 features, and
    /// feed-forward networks with about as many parameters as ungated ones of `4 · d_model` features.
    pub fn llama(vocab_size: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            d_ff: (d_model.saturating_mul(8) / 3).next_multiple_of(32),
            max_positions: 2048,
            rotary: Some(RotaryConfig::default()),
            norm_kind: NormKind::Rms,
            norm_eps: 1e-6,
            activation: Activation::Silu,
            gated: true,
            attention_bias: false,
            attention_output_bias: false,
            feed_forward_bias: false,
            tied: false,
            embedding_dropout: 0.0,
            hidden_dropout: 0.0,
            attention_dropout: 0.0,
            ..Self::gpt2(vocab_size, n_layers, d_model)
        }
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let refuse = |key, found: String, expected: String| Err(ModelError::Setting { key, found, expected });
        check_sizes([
            ("vocab_size", self.vocab_size),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("d_head", self.d_head),
            ("d_ff", self.d_ff),
            ("max_positions", self.max_positions),
        ])?;
        if self.n_heads.checked_mul(self.d_head).is_none_or(|width| width > i32::MAX as usize) {
            return refuse(
                "d_head",
                self.d_head.to_string(),
                format!("a smaller width for {} heads", self.n_heads),
            );
        }
        if !self.n_heads.is_multiple_of(self.n_kv_heads) {
            let expected = format!("a divisor of `n_heads`, which is {}", self.n_heads);
            return refuse("n_kv_heads", self.n_kv_heads.to_string(), expected);
        }
        if let Some(rotary) = &self.rotary {
            rotary.validate(self.d_head)?;
        }
        if let Some(output) = &self.output {
            if self.tied {
                return refuse(
                    "tied",
                    "true".into(),
                    "false: an adaptive output has weights of its own".into(),
                );
            }
            output.validate(self.vocab_size, self.d_model)?;
        }
        if let Some(layers) = &self.window_layers {
            if layers.len() != self.n_layers {
                let expected = format!("{}, one a layer", self.n_layers);
                return refuse("window_layers", format!("a list of {}", layers.len()), expected);
            }
            if self.window.is_none() && layers.contains(&true) {
                let expected = "none: there is no `window`".into();
                return refuse("window_layers", "a list of layers".into(), expected);
            }
        }
        if !(self.norm_eps >= 0.0 && self.norm_eps.is_finite()) {
            let expected = "a number of 0 or more, such as 1e-5".into();
            return refuse("norm_eps", self.norm_eps.to_string(), expected);
        }
        if !(self.init_std >= 0.0 && self.init_std.is_finite()) {
            let expected = "a number of 0 or more, such as 0.02".into();
            return refuse("init_std", self.init_std.to_string(), expected);
        }
        for (key, p) in [
            ("embedding_dropout", self.embedding_dropout),
            ("hidden_dropout", self.hidden_dropout),
            ("attention_dropout", self.attention_dropout),
        ] {
            if !(0.0..1.0).contains(&p) {
                return refuse(key, p.to_string(), "0 or more and below 1".into());
            }
        }
        for (key, id) in [("begin_token_id", self.begin_token_id), ("end_token_id", self.end_token_id)] {
            if let Some(id) = id.filter(|id| *id >= self.vocab_size) {
                let expected = format!("below `vocab_size`, which is {}", self.vocab_size);
                return refuse(key, id.to_string(), expected);
            }
        }
        Ok(())
    }

    /// Whether a layer has the [window](Self::window).
    pub(crate) fn has_window(&self, layer: usize) -> bool {
        self.window.is_some() && self.window_layers.as_ref().is_none_or(|layers| layers[layer])
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Gpt {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let Self { vocab_size, d_model, n_layers, .. } = *self;
        let tokens = Embedding::new(vocab_size, d_model, init);
        let positions = match &self.rotary {
            None => Some(LearnedPositions::new(self.max_positions, d_model, init)),
            Some(_) => None,
        };
        let mut attention = MultiHeadAttentionConfig::of_heads(d_model, self.n_heads, self.d_head)
            .with_kv_heads(self.n_kv_heads)
            .with_biases(self.attention_bias, self.attention_output_bias)
            .with_dropout(self.attention_dropout);
        if let Some(rotary) = &self.rotary {
            attention = attention.with_rotary(rotary.init(self.d_head));
        }
        let mut feed_forward = FeedForwardConfig::new(d_model, self.d_ff, self.activation);
        (feed_forward.gated, feed_forward.bias) = (self.gated, self.feed_forward_bias);
        let norm = |init: &mut ParamInit| Norm::new(self.norm_kind, d_model, self.norm_eps, init);
        // The maps that add to the residual stream.
        let residual = 1.0 / ((2 * n_layers) as f64).sqrt();
        let layers = (0..n_layers).map(|layer| {
            let mut attention = attention.clone();
            attention.window = self.window.filter(|_| self.has_window(layer));
            let (mut attention, attention_norm) = (attention.init(init), norm(init));
            let (mut feed_forward, feed_forward_norm) = (feed_forward.init(init), norm(init));
            init.scaled(residual, |init| {
                for map in [&mut attention.output, &mut feed_forward.down] {
                    let [d_in, d_out] = map.weight.lazy_shape().dims();
                    *map = Linear::with_bias(map.bias.is_some(), d_in, d_out, init);
                }
            });
            GptLayer {
                attention,
                attention_norm,
                feed_forward,
                feed_forward_norm,
                dropout: self.hidden_dropout,
                norm: self.norm,
            }
        });
        let layers = layers.collect();
        Gpt {
            tokens,
            positions,
            layers,
            final_norm: (self.norm == NormPlacement::Pre).then(|| norm(init)),
            output: (!self.tied && self.output.is_none())
                .then(|| Linear::without_bias(d_model, vocab_size, init)),
            adaptive: self.output.as_ref().map(|output| output.init(vocab_size, d_model, init)),
            recompute: false,
            bidirectional_prompts: false,
            dropout: self.embedding_dropout,
            max_positions: self.max_positions,
            inference_table: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn what_does_not_fit_is_named() {
        let base = GptConfig::llama(50, 2, 128);
        base.validate().unwrap();
        for (config, key) in [
            (GptConfig { n_layers: 0, ..base.clone() }, "`n_layers` is 0"),
            (
                GptConfig { n_kv_heads: 3, ..base.clone() },
                "`n_kv_heads` is 3, expected a divisor of `n_heads`",
            ),
            (GptConfig { d_head: 3, ..base.clone() }, "`rotary.n_features` is 3"),
            (GptConfig { d_head: usize::MAX, ..base.clone() }, "`d_head` is"),
            (GptConfig { norm_eps: f64::NAN, ..base.clone() }, "`norm_eps` is NaN"),
            (GptConfig { hidden_dropout: 1.0, ..base.clone() }, "`hidden_dropout` is 1"),
            (GptConfig { end_token_id: Some(50), ..base.clone() }, "`end_token_id` is 50"),
        ] {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn maps_onto_the_residual_stream_start_smaller() {
        let model = GptConfig::gpt2(50, 8, 64).init(&mut ParamInit::new(&Device::flex(), 1));
        let std = |map: &Linear| {
            let values: Vec<f32> = map.weight.val().into_data().iter::<f32>().collect();
            (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt()
        };
        let layer = &model.layers[3];
        let ratio = std(&layer.attention.query) / std(&layer.attention.output);
        assert!((ratio - 4.0).abs() < 0.2, "{ratio}");
        let ratio = std(&layer.feed_forward.up) / std(&layer.feed_forward.down);
        assert!((ratio - 4.0).abs() < 0.2, "{ratio}");
    }
}
