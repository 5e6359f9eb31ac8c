//! The blocks that Transformers are made of, one a file.

mod activation;
mod attention;
mod attention_input;
mod embedding;
mod encoder;
mod encoder_layer;
mod feed_forward;
mod inference_weight;
mod key_value_cache;
mod layer_norm;
mod linear;
mod norm;
mod part_type;
mod positions;
mod rms_norm;
mod rotary;

pub use activation::Activation;
pub use attention::{MultiHeadAttention, MultiHeadAttentionConfig};
pub use attention_input::{Attention, AttentionInput, AttentionOutput, WantedTokens};
pub use embedding::Embedding;
pub use encoder::{Encoder, EncoderOutput, EncoderTrace};
pub use encoder_layer::{EncoderLayer, EncoderLayerConfig, NormPlacement};
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use inference_weight::InferenceWeight;
pub use key_value_cache::KeyValueCache;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use norm::{Norm, NormKind};
pub(crate) use part_type::{PartKind, PartType, part_types};
pub use positions::{LearnedPositions, NoPositions, Positions, SinusoidalPositions};
pub use rms_norm::RmsNorm;
pub use rotary::{RotaryConfig, RotaryScaling};
