use super::{AwdLstmConfig, AwdLstmEncoder, AwdLstmOutput};
use crate::bert::Pooling;
use crate::blocks::{LayerNorm, Linear};
use crate::ops::{self, Packing};
use crate::sizes::check_recurrent_sizes;
use crate::{HasBackbone, ModelError, ParamInit, Result, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// The configuration of a classifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwdLstmClassifierConfig {
    /// The encoder.
    pub encoder: AwdLstmConfig,
    /// Features between the head's two layers.
    pub d_head: usize,
    /// The number of classes; 1 for a regression.
    pub n_outputs: usize,
    /// Dropout before the head's first layer.
    pub head_dropout: f64,
    /// Dropout before its second layer.
    pub inner_dropout: f64,
}

impl AwdLstmClassifierConfig {
    /// ULMFiT's head (Howard & Ruder 2018, §3.3, with its code's sizes): 50 features between the layers, dropout of 0.4
    /// and 0.1.
    pub fn new(encoder: AwdLstmConfig, n_outputs: usize) -> Self {
        Self { encoder, d_head: 50, n_outputs, head_dropout: 0.4, inner_dropout: 0.1 }
    }

    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        check_recurrent_sizes([("d_head", self.d_head), ("n_outputs", self.n_outputs)])?;
        for (key, p) in [("head_dropout", self.head_dropout), ("inner_dropout", self.inner_dropout)] {
            if !(0.0..1.0).contains(&p) {
                return Err(ModelError::setting(key, p, "0 or more and below 1"));
            }
        }
        self.encoder.validate()
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> AwdLstmForSequenceClassification {
        let encoder = self.encoder.init_encoder(init);
        AwdLstmForSequenceClassification { encoder, head: self.init_head(init) }
    }

    /// A new head, for an existing encoder.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_head(&self, init: &mut ParamInit) -> ConcatPoolingHead {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let d = 3 * self.encoder.d_embedding;
        ConcatPoolingHead {
            input_norm: LayerNorm::new(d, 1e-5, init),
            dense: Linear::uniform(d, self.d_head, init),
            dense_norm: LayerNorm::new(self.d_head, 1e-5, init),
            output: Linear::uniform(self.d_head, self.n_outputs, init),
            dropout: self.head_dropout,
            inner_dropout: self.inner_dropout,
        }
    }
}

/// ULMFiT's classifier: a language model's encoder with a head on the last state and the maximum and mean of
/// each feature.
#[derive(Module, Debug)]
pub struct AwdLstmForSequenceClassification {
    /// The encoder.
    pub encoder: AwdLstmEncoder,
    /// The head.
    pub head: ConcatPoolingHead,
}

linear_maps!(AwdLstmForSequenceClassification { encoder; head });

impl AwdLstmForSequenceClassification {
    /// One row of logits for each sequence, `[sequences, n_outputs]`.
    ///
    /// # Panics
    /// If there is no sequence.
    pub fn forward(&self, sequences: &Sequences, device: &Device) -> Tensor<2> {
        let AwdLstmOutput { states, .. } = self.encoder.forward(sequences, None, device);
        self.head.forward(states, &sequences.packing())
    }
}

impl HasBackbone for AwdLstmForSequenceClassification {
    type Backbone = AwdLstmEncoder;
    const PATH: &'static str = "encoder";

    fn backbone(&self) -> &AwdLstmEncoder {
        &self.encoder
    }

    fn backbone_mut(&mut self) -> &mut AwdLstmEncoder {
        &mut self.encoder
    }
}

/// Two layers on pooled states, `h_c = [h_T, maxpool(H), meanpool(H)]` (Howard & Ruder 2018, eq. 4).
///
/// Deviation: layer normalisation replaces the paper's batch normalisation, so that a text's prediction does
/// not depend on the batch.
#[derive(Module, Debug)]
pub struct ConcatPoolingHead {
    /// Normalises `3·d` features.
    pub input_norm: LayerNorm,
    /// `[3·d, d_head]`, followed by a ReLU.
    pub dense: Linear,
    /// Normalises `d_head` features.
    pub dense_norm: LayerNorm,
    /// `[d_head, n_outputs]`
    pub output: Linear,
    /// Dropout before the first layer.
    pub dropout: f64,
    /// Dropout before the second layer.
    pub inner_dropout: f64,
}

linear_maps!(ConcatPoolingHead { dense, output });

impl ConcatPoolingHead {
    /// # Shapes
    /// - `states`: `[n_tokens, d]`, packed; returns `[sequences, n_outputs]`
    pub fn forward(&self, states: Tensor<2>, packing: &Packing) -> Tensor<2> {
        let x = self.input_norm.forward(concat_pooled(states, packing));
        let x = relu(self.dense.forward(ops::dropout(x, self.dropout)));
        self.output.forward(ops::dropout(self.dense_norm.forward(x), self.inner_dropout))
    }
}

/// `[h_T, maxpool(H), meanpool(H)]` of each sequence: `[n_tokens, d]` → `[sequences, 3·d]`.
fn concat_pooled(states: Tensor<2>, packing: &Packing) -> Tensor<2> {
    let states = states.unsqueeze_dim::<3>(0);
    let pool = |pooling: Pooling| pooling.forward(states.clone(), None, Some(packing));
    Tensor::cat([Pooling::LastToken, Pooling::Max, Pooling::Mean].map(pool).to_vec(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::testing::assert_read_alone;

    fn config() -> AwdLstmClassifierConfig {
        let encoder = AwdLstmConfig { d_embedding: 6, d_hidden: 9, n_layers: 2, ..AwdLstmConfig::new(30) };
        AwdLstmClassifierConfig { d_head: 5, ..AwdLstmClassifierConfig::new(encoder, 3) }
    }

    #[test]
    fn a_text_is_classified_by_itself() {
        let device = Device::flex();
        let model = config().init(&mut ParamInit::new(&device, 2));
        assert_read_alone(3, |texts| model.forward(texts, &device));
    }

    #[test]
    fn the_last_the_greatest_and_the_mean_are_side_by_side() {
        let device = Device::flex();
        let states = Tensor::<2>::from_data([[5.0, 0.0], [1.0, 2.0], [7.0, 8.0]], &device);
        let pooled = concat_pooled(states, &Packing::new([2, 1])).into_data();
        let expected = [1.0, 2.0, 5.0, 2.0, 3.0, 1.0, 7.0, 8.0, 7.0, 8.0, 7.0, 8.0];
        assert_eq!(pooled.iter::<f32>().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |config: AwdLstmClassifierConfig| config.validate().unwrap_err().to_string();
        assert!(refused(AwdLstmClassifierConfig { n_outputs: 0, ..config() }).contains("`n_outputs` is 0"));
        let message = refused(AwdLstmClassifierConfig { head_dropout: -1.0, ..config() });
        assert!(message.contains("`head_dropout` is -1, expected 0 or more"), "{message}");
    }
}
