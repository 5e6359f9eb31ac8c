//! The convolutional sequence-to-sequence model of Gehring et al. 2017, "Convolutional Sequence to Sequence Learning".
//!
//! Each token is embedded with its position, `e_j = w_j + p_j` (§3.1). Encoder and decoder map embeddings to `d_model`
//! features and back, and have layers of one convolution each with a gated linear unit and a residual connection (§3.2):
//!
//! `h_i = (v(W [h_(i−k/2); …; h_(i+k/2)] + b) + h_i) · √½`, with `v([A; B]) = A ⊗ σ(B)`
//!
//! of the layer below, windows of `k` tokens, and zeros beyond the ends. The decoder's windows end with their own token. What
//! its convolution gives, `h_i`, asks the encoder's outputs `z_j` in every layer, each layer by itself (§3.3; eq. 1, 2):
//!
//! `d_i = W h_i + b + g_i`, `a_ij = exp(d_i · z_j) / Σ_t exp(d_i · z_t)`, `c_i = Σ_j a_ij (z_j + e_j)`
//!
//! where `g_i` is the target's own embedding. `c_i` is mapped to `d_model` features and added to `h_i` before the residual
//! connection. The last layer's output is mapped back to the embeddings' width, and to the vocabulary.
//!
//! Variances stay what they are (§3.4, §3.5): sums of two are multiplied by `√½`; `c_i` of a source of `m` tokens by
//! `m · √(1/m) = √m`; gradients of the encoder, its embeddings as values excepted, by `1 / (2 · n)` with `n` attentions.
//! Linear maps and convolutions are [weight-normalised](crate::blocks::NormedLinear). With `p` of the inputs kept by dropout,
//! they start from `N(0, √(4p/n))` before a gate and `N(0, √(p/n))` elsewhere, embeddings from `N(0, 0.1)`, biases from 0.
//! Dropout acts on embeddings, on the convolutions' inputs and before the output layer.
//!
//! Where the paper leaves a choice, it is that of its authors' code, fairseq's `fconv`: `d_i` and `z_j + e_j` are sums of two
//! and multiplied by `√½`, and the gradients' factor has the 2. Layers have one width here, where the paper's largest models
//! grow wider with depth.

mod attention;
mod config;
mod layer;
mod model;
#[cfg(test)]
mod reference;
mod step;
#[cfg(test)]
mod tests;

pub use attention::MultiStepAttention;
pub use config::ConvolutionalEncoderDecoderConfig;
pub use layer::ConvolutionalDecoderLayer;
pub use model::ConvolutionalEncoderDecoder;
pub use step::ConvolutionalDecoding;

/// What a sum of two is multiplied by, so that its variance is that of one.
const ROOT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;
