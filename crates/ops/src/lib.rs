//! The few operations that decide a Transformer's speed, behind one signature each.
//!
//! Each is composed from burn's operations, which work on every device. With the feature `flex`, and for
//! 32-bit tensors on burn's flex backend, it is fused instead: one pass over memory on all cores, with a
//! backward pass written by hand. Same shapes and same results, up to rounding. The feature brings burn's flex with
//! its vector instructions and threads; [`unfused`] says of a device that it runs without.
//! With the feature `cube`, and for 32-bit tensors on a graphics processor (burn's `cuda` and `wgpu`, one of which the
//! program enables), kernels of this crate are launched in place of many of burn's.
//!
//! | operation | fused on flex |
//! | --- | --- |
//! | [`linear`], [`linear_tied`] | product with the bias in it; gradients of weight and bias in one product and one pass |
//! | [`linear_packed`] | the weight laid out once for the kernel; for inference |
//! | [`linear_int8`] | the weight in 8 bits, the tokens rounded to 8 bits as they come; for inference |
//! | [`attention`] | products, masks, softmax and dropout head by head, without the transposed copies; long sequences in blocks, without a matrix of all scores; of [packed](Packing) sequences each by itself |
//! | [`attention_at`], [`attention_at_with_bias`] | one query a row, over keys and values that stay where they are; for decoding |
//! | [`relative_attention`] | scores by content, distance and segment, masks, softmax and dropout head by head; keys of distances are met in one product, and nothing is gathered |
//! | [`layer_norm`], [`add_layer_norm`] | statistics and result; with dropout and the residual connection before it |
//! | [`rms_norm`] | root mean square and result |
//! | [`rotate`] | queries and keys turned where they lie |
//! | [`gelu`], [`gelu_tanh`] | vectorised error function, exponential |
//! | [`gated`], [`glu`] | activation and product |
//! | [`windows`] | each token's window in its [packed](Packing) sequence in one pass: a convolution is one product more |
//! | [`weight_norm`] | lengths of all columns in one pass, the weight in another |
//! | [`dropout`], [`dropout_add`] | masks drawn again in the backward pass, and not kept |
//! | [`cross_entropy`] | one pass over the logits, whose memory the gradient takes over |
//! | [`embedding`] | gather; the gradient scattered into that of a tied output layer, where there is one |
//! | [`adamw`], [`lamb`], [`stable_adamw`], [`squared_sum`] | the whole update in one pass, the two others' in two |
//! | [`lstm`], [`gru`] | all time steps of a layer as one operation: of [packed](Packing) sequences each step's rows that are still going on, groups of rows side by side on all cores, one product for the weight's gradient |
//! | [`additive_scores`] | no tensor of every pair's features; the hyperbolic tangents once more in the backward pass |
//! | [`moving_average`] | in place, in one pass |
//! | [`attentive`] | all time steps of a decoder layer that attends to its source, without padding, as one operation |
//! | [`recompute`] | not composed: an operation around a part of a model, whose activations are not kept |
//!
//! | operation | kernels on graphics processors |
//! | --- | --- |
//! | [`attention`] | one forward, three backward, in blocks, without a matrix of scores; packed sequences each by itself |
//! | [`layer_norm`], [`add_layer_norm`] | one forward, with dropout and the residual connection in it; two backward, and one for the dropout |
//! | [`gelu`], [`gelu_tanh`] | one each way, in training; outside it burn's fusion merges them with their neighbours |
//! | [`dropout`], [`dropout_add`] | one each way; masks are drawn again, and not kept |
//! | [`cross_entropy`] | one pass over the logits each way, whose memory the gradient takes over; no probabilities are kept |
//! | [`embedding`] | the gradient by sorted tokens, added to that of a tied output layer, where there is one |
//! | [`adamw`], [`adamw_by`], [`squared_sum`], [`SquaredSums`] | one a parameter, in place; one or two a tensor; one for six tensors |
//!
//! Products are made in FP32, or within [`with_precision`] in bf16; [`kernels`] says by which instructions.
//!
//! Sums are made in blocks of a fixed size, so results do not depend on the number of threads, and on a graphics
//! processor repeat bit for bit. [`composed_on_graphics`] does without these kernels.

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
mod gru;
mod heads;
mod int8;
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
mod sight;
mod squared_sums;
mod stable_adamw;
mod time;
mod weight_norm;
mod windows;

pub use adam::AdamStep;
pub use adamw::{adamw, adamw_by, squared_sum};
pub use additive::additive_scores;
pub use attention::{attention, attention_with_weights, takes_packed};
pub use attention_mask::{AttentionMask, Queries};
pub use attentive::{AttentiveInput, AttentiveState, attentive};
pub use best::{Best, best, exponentials};
pub use cores::on_awake_cores;
pub use cross_entropy::{CrossEntropy, cross_entropy};
#[cfg(feature = "cube")]
pub use cube::launches::count_launches;
pub use dropout::{dropout, dropout_add};
pub use ema::moving_average;
pub use embedding::embedding;
pub use fused::{composed_on_graphics, is_fused, unfused, warn_unfused};
pub use gated::{Gate, gated};
pub use gelu::{gelu, gelu_tanh};
pub use glu::glu;
pub use gru::{GruOutput, gru};
pub use int8::{Int8Weight, linear_int8};
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
pub use sight::Sight;
pub use squared_sums::SquaredSums;
pub use stable_adamw::stable_adamw;
pub use time::Direction;
pub use weight_norm::weight_norm;
pub use windows::windows;

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
