use super::attention::{MultiStepAttention, ROOT_HALF};
use crate::blocks::GatedConvolution;
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// A decoder layer: a causal convolution, and attention to the source.
#[derive(Module, Debug)]
pub struct ConvolutionalDecoderLayer {
    /// A convolution with windows that end with their token.
    pub convolution: GatedConvolution,
    /// Attention to the encoder's outputs.
    pub attention: MultiStepAttention,
}

linear_maps!(ConvolutionalDecoderLayer { convolution, attention });

impl ConvolutionalDecoderLayer {
    pub(super) fn new(
        d_model: usize,
        d_embedding: usize,
        kernel: usize,
        keep: f64,
        init: &mut ParamInit,
    ) -> Self {
        Self {
            convolution: GatedConvolution::new(d_model, d_model, kernel, true, keep, init),
            attention: MultiStepAttention::new(d_model, d_embedding, init),
        }
    }

    /// # Shapes
    /// - `x`: `[n, d_model]`; `embedded`: the target's embeddings, `[n, d_embedding]`; returns `[n, d_model]`
    /// - `convolve`: applies the convolution to `x`; `ask`: maps queries to contexts, both `[n, d_embedding]`
    pub(super) fn forward(
        &self,
        x: Tensor<2>,
        embedded: Tensor<2>,
        convolve: impl FnOnce(&GatedConvolution, Tensor<2>) -> Tensor<2>,
        ask: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let state = convolve(&self.convolution, x.clone());
        (self.attention.forward(state, embedded, ask) + x).mul_scalar(ROOT_HALF)
    }
}
