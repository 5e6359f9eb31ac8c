//! The few operations that dominate a Transformer's speed, with one signature each.
//!
//! Each is composed of burn's operations, which work on every device. With the feature `flex`, 32-bit tensors
//! on burn's flex backend use a fused form instead: one pass over memory on all cores, with a hand-written
//! backward pass, and the same shapes and results up to rounding. The feature includes burn's flex with its
//! vector instructions and threads; [`unfused`] reports devices that run without it. With the feature `cube`,
//! 32-bit tensors on a GPU (burn's `cuda` and `wgpu`, one of which the program enables) use kernels of this
//! crate instead of many of burn's.
//!
//! | operation | fused on flex |
//! | --- | --- |
//! | [`linear`], [`linear_tied`] | product including the bias; gradients of weight and bias in one product and one pass |
//! | [`linear_packed`] | the weight packed once for the kernel; for inference |
//! | [`linear_integer`] | 8-bit or 4-bit weight, tokens quantised to 8 bits on the fly; for inference |
//! | [`attention`] | products, masks, softmax and dropout head by head, without the transposed copies; long sequences in blocks, without a matrix of all scores; each [packed](Packing) sequence separately |
//! | [`attention_at`], [`attention_at_with_bias`] | one query per row, over keys and values in place; for decoding |
//! | [`relative_attention`] | scores by content, distance and segment, masks, softmax and dropout head by head; one product with the distance keys, and no gathering |
//! | [`layer_norm`], [`add_layer_norm`] | statistics and result; including the preceding dropout and residual connection |
//! | [`rms_norm`] | root mean square and result |
//! | [`rotate`] | queries and keys rotated in place |
//! | [`gelu`], [`gelu_tanh`] | vectorised error function, exponential |
//! | [`gated`], [`glu`] | activation and product |
//! | [`windows`] | each token's window in its [packed](Packing) sequence in one pass: a convolution takes one more product |
//! | [`weight_norm`] | lengths of all columns in one pass, the weight in another |
//! | [`dropout`], [`dropout_add`] | masks redrawn in the backward pass instead of stored |
//! | [`cross_entropy`] | one pass over the logits, whose memory the gradient reuses |
//! | [`embedding`] | gather; the gradient scattered into that of a tied output layer, if any |
//! | [`adamw`], [`lamb`], [`stable_adamw`], [`squared_sum`] | the whole update in one pass (AdamW) or two (the others) |
//! | [`lstm`], [`gru`] | all time steps of a layer as one operation: only unfinished rows of [packed](Packing) sequences at each step, groups of rows in parallel on all cores, one product for the weight's gradient |
//! | [`additive_scores`] | no tensor of every pair's features; hyperbolic tangents recomputed in the backward pass |
//! | [`moving_average`] | in place, in one pass |
//! | [`attentive`] | all time steps of a decoder layer that attends to its source, without padding, as one operation |
//! | [`recompute`] | not composed: wraps a part of a model, whose activations are not kept |
//!
//! | operation | kernels on graphics processors |
//! | --- | --- |
//! | [`attention`] | one forward, three backward, in blocks, without a score matrix; each packed sequence separately |
//! | [`layer_norm`], [`add_layer_norm`] | one forward, including dropout and the residual connection; two backward, and one for the dropout |
//! | [`gelu`], [`gelu_tanh`] | one each way in training; otherwise burn's fusion merges them with their neighbours |
//! | [`dropout`], [`dropout_add`] | one each way; masks are redrawn instead of stored |
//! | [`cross_entropy`] | one pass over the logits each way, whose memory the gradient reuses; no probabilities are kept |
//! | [`embedding`] | the gradient by sorted tokens, added to that of a tied output layer, if any |
//! | [`adamw`], [`adamw_by`], [`squared_sum`], [`SquaredSums`] | one per parameter, in place; one or two per tensor; one per six tensors |
//!
//! Products are computed in FP32, or in bf16 within [`with_precision`]; [`kernels`] reports the
//! instructions used.
//!
//! Sums use blocks of fixed size, so results do not depend on the number of threads and are bitwise
//! reproducible on a GPU. [`composed_on_graphics`] disables these kernels.

mod adam;
mod adamw;
mod additive;
mod attention;
mod attention_mask;
mod attentive;
mod best;
mod cores;
mod cross_entropy;
#[cfg(feature = "cube")]
mod cube;
mod dropout;
mod ema;
mod embedding;
#[cfg(feature = "flex")]
mod flex;
mod fused;
mod gated;
mod gelu;
mod glu;
mod group_norm;
mod gru;
mod heads;
mod image_convolution;
mod image_windows;
mod integer_matrix;
pub mod integer_only;
mod integer_weight;
mod kernel_times;
mod kernels;
mod key_value;
mod lamb;
mod layer_norm;
mod linear;
mod lstm;
mod packed;
mod packing;
mod precision;
mod queue;
mod read;
mod recompute;
mod relative;
mod rms_norm;
mod rotary;
mod scoped;
mod sight;
mod squared_sums;
mod stable_adamw;
mod subsampled;
mod time;
mod training;
mod weight_norm;
mod windows;

pub use adam::AdamStep;
pub use adamw::{adamw, adamw_by, squared_sum};
pub use additive::additive_scores;
pub use attention::{
    attention, attention_context, attention_probabilities, attention_with_weights, takes_packed,
};
pub use attention_mask::{AttentionMask, Queries};
pub use attentive::{AttentiveInput, AttentiveState, attentive};
pub use best::{Best, best, exponentials};
pub use cores::on_awake_cores;
pub use cross_entropy::{CrossEntropy, cross_entropy};
#[cfg(feature = "cube")]
pub use cube::launches::count_launches;
pub use dropout::{dropout, dropout_add};
pub use ema::moving_average;
pub use embedding::{embedding, embedding_integer};
pub use fused::{composed_on_graphics, is_fused, unfused, warn_unfused};
pub use gated::{Gate, gated};
pub use gelu::{gelu, gelu_tanh};
pub use glu::glu;
pub use group_norm::{group_norm, group_norm_relu};
pub use gru::{GruOutput, gru};
pub use image_convolution::image_convolution;
pub use image_windows::image_windows;
pub use integer_matrix::{BLOCK, Bits, IntegerMatrix, Scales};
pub use integer_weight::{IntegerWeight, TokenRange, TokenRounding, linear_integer};
pub use kernel_times::{KernelTime, KernelTimes};
pub use kernels::{Kernels, kernels};
pub use key_value::{KeyValueStore, attention_at, attention_at_with_bias};
pub use lamb::lamb;
pub use layer_norm::{Residual, add_layer_norm, layer_norm};
pub use linear::{linear, linear_tied};
pub use lstm::{LstmOutput, LstmState, lstm};
pub use packed::{PackedWeight, linear_packed};
pub use packing::Packing;
pub use precision::{Precision, with_precision};
pub use queue::is_queued;
pub use read::read;
pub use recompute::{can_recompute, recompute};
pub use relative::{RelativeInput, RelativeMask, relative_attention};
pub use rms_norm::rms_norm;
pub use rotary::{LongFrequencies, Rotary, RotaryPairs, TokenPositions, rotate};
pub use scoped::scoped;
pub use sight::Sight;
pub use squared_sums::SquaredSums;
pub use stable_adamw::stable_adamw;
pub use subsampled::subsampled;
pub use time::Direction;
pub use training::{as_inference, is_training};
pub use weight_norm::weight_norm;
pub use windows::windows;

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
