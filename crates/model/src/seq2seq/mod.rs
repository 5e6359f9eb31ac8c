//! Models that read one sequence and write another, such as a sentence and its translation.

mod encoder_decoder;

pub use encoder_decoder::{DecodeOptions, EncoderDecoder};
