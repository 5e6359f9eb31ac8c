use super::BertConfig;
use crate::blocks::{Activation, LayerNorm, Linear};
use crate::{ParamInit, linear_maps, ops};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// A summary of the sequence: `tanh(W·h₀ + b)` of the first position's state.
#[derive(Module, Debug)]
pub struct Pooler {
    /// `[d_model, d_model]`
    pub dense: Linear,
}

linear_maps!(Pooler { dense });

impl Pooler {
    /// A new pooler of `d_model` features.
    pub fn new(d_model: usize, init: &mut ParamInit) -> Self {
        Self { dense: Linear::new(d_model, d_model, init) }
    }

    /// # Shapes
    /// - `first_states`: `[sequences, d_model]`, see [`Bert::first_states`](super::Bert::first_states); returns the
    ///   same shape
    pub fn forward(&self, first_states: Tensor<2>) -> Tensor<2> {
        self.dense.forward(first_states).tanh()
    }
}

/// The masked-language-model head: a transform (except in XLM), then a projection onto the vocabulary.
///
/// The projection's matrix is usually the embedding parameter itself, passed to [`forward`](Self::forward): the model holds it
/// once, so the two cannot drift apart in training.
#[derive(Module, Debug)]
pub struct MlmHead {
    /// The transform, `[d_model, d_embedding]`; none if there is no transform.
    pub dense: Option<Linear>,
    /// The normalisation after the transform; none if there is no transform.
    pub norm: Option<LayerNorm>,
    /// A projection of its own, `[d_embedding, vocab_size]` without a bias; `None` if tied to the token
    /// embeddings.
    pub decoder: Option<Linear>,
    /// One output bias per piece, `[vocab_size]`, unless the head has none.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    activation: Activation,
}

linear_maps!(MlmHead { dense, decoder });

impl MlmHead {
    /// A new head for `config`.
    pub fn new(config: &BertConfig, init: &mut ParamInit) -> Self {
        let width = config.embedding_width();
        let dense =
            config.mlm_transform.then(|| Linear::with_bias(config.head_bias, config.d_model, width, init));
        let norm = config
            .mlm_transform
            .then(|| LayerNorm::new(width, config.layer_norm_eps, init).with_bias(config.norm_bias));
        let decoder = (!config.mlm_tied).then(|| Linear::with_bias(false, width, config.vocab_size, init));
        Self {
            dense,
            norm,
            decoder,
            bias: config.mlm_bias.then(|| init.zeros([config.vocab_size])),
            activation: config.mlm_activation.unwrap_or(config.activation),
        }
    }

    /// # Shapes
    /// - `states`: `[n, d_model]`, only the positions to predict; `token_embeddings`:
    ///   `[vocab_size, d_embedding]`; returns `[n, vocab_size]`
    pub fn forward(&self, states: Tensor<2>, token_embeddings: Tensor<2>) -> Tensor<2> {
        let states = match &self.dense {
            Some(dense) => self.activation.forward(dense.forward(states)),
            None => states,
        };
        let states = match &self.norm {
            Some(norm) => norm.forward(states),
            None => states,
        };
        let bias = self.bias.as_ref().map(|bias| bias.val());
        match &self.decoder {
            None => ops::linear_tied(states, token_embeddings, bias),
            Some(decoder) => {
                let logits = decoder.forward(states);
                bias.into_iter().fold(logits, |logits, bias| logits + bias.unsqueeze())
            }
        }
    }
}

/// Predicts whether the second segment follows the first: class 0 if it does, class 1 if it is random.
#[derive(Module, Debug)]
pub struct NextSentenceHead {
    /// `[d_model, 2]`
    pub classifier: Linear,
}

linear_maps!(NextSentenceHead { classifier });

impl NextSentenceHead {
    /// A new head over `d_model` features.
    pub fn new(d_model: usize, init: &mut ParamInit) -> Self {
        Self { classifier: Linear::new(d_model, 2, init) }
    }

    /// # Shapes
    /// - `pooled`: `[batch, d_model]`; returns `[batch, 2]`
    pub fn forward(&self, pooled: Tensor<2>) -> Tensor<2> {
        self.classifier.forward(pooled)
    }
}
