//! The blocks that Transformers are made of, one a file.

mod activation;
mod attention;
mod attention_type;
mod embedding;
mod encoder;
mod encoder_layer;
mod feed_forward;
mod layer_norm;
mod linear;
mod positions;

pub use activation::Activation;
pub use attention::{
    AttentionOutput, MultiHeadAttention, MultiHeadAttentionConfig, Selection, SelfAttention,
};
pub(crate) use attention_type::attention_types;
pub use embedding::Embedding;
pub use encoder::{Encoder, EncoderOutput, EncoderTrace};
pub use encoder_layer::{EncoderLayer, EncoderLayerConfig, NormPlacement};
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use positions::{LearnedPositions, Positions, SinusoidalPositions};
