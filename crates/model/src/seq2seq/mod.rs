//! Models that read one sequence and write another, such as a sentence and its translation.

mod any;
mod convolutional;
mod encoder_decoder;
pub(crate) mod recurrent;
mod tied;
mod tokens;
mod transformer;

pub use crate::blocks::PositionsConfig;
pub use any::{AnyEncoderDecoder, AnyEncoderDecoderConfig, AnyState};
pub use convolutional::{
    ConvolutionalDecoderLayer, ConvolutionalDecoding, ConvolutionalEncoderDecoder,
    ConvolutionalEncoderDecoderConfig, MultiStepAttention,
};
pub use encoder_decoder::{DecodeOptions, EncoderDecoder};
pub(crate) use recurrent::time_major::TimeMajor;
pub use recurrent::{
    Bridge, BridgeKind, RecurrentDecoding, RecurrentEncoderDecoder, RecurrentEncoderDecoderConfig, Wiring,
};
pub use tied::TiedEmbeddings;
pub use tokens::SpecialTokens;
pub use transformer::{
    InitialWeights, OutputBias, StackInput, Transformer, TransformerConfig, TransformerState,
};
