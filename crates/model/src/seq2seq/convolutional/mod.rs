//! The convolutional sequence-to-sequence model of Gehring et al. 2017; [`ConvolutionalEncoderDecoder`] has its equations.

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
