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
