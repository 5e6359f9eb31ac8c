//! The arithmetic of I-BERT (Kim et al. 2021, "I-BERT: Integer-only BERT Quantization"): linear maps, GELU, softmax and
//! layer normalisation on integers alone.
//!
//! A number is `scale · q`, where `q` is an integer and the scale a constant of the model. Scales are used only when a model
//! is loaded: each operation keeps the integers that follow from them. Whatever kernel or device computes, the results are
//! the same bits.
//!
//! | operation | paper | input → output |
//! | --- | --- | --- |
//! | [`Dyadic`] | §3.2, "dyadic numbers" | any → any |
//! | [`IntegerLinear`] | §3.2 | 8 bits → 32 bits |
//! | [`Quadratic`] | algorithm 1, i-Poly | 32 bits → 64 bits |
//! | [`IntegerGelu`] | algorithm 2, i-GELU | 32 bits → 64 bits |
//! | [`IntegerExponential`], [`IntegerSoftmax`] | algorithm 3, i-exp | 32 bits → 8 bits |
//! | [`integer_sqrt`], [`IntegerLayerNorm`] | algorithm 4, i-sqrt | 22 bits → 32 bits |
//! | [`IntegerTanh`] | from i-exp; not in the paper | 16 bits → 8 bits |
//!
//! The integers are those of transformers' `models/ibert/quant_modules.py` in double precision, as long as each of its
//! floats holds the integer that it stands for. Deviations are named where they are.

mod dyadic;
mod exponential;
mod gelu;
mod layer_norm;
mod linear;
mod polynomial;
mod rescale;
mod tanh;

pub use dyadic::Dyadic;
pub use exponential::{IntegerExponential, IntegerSoftmax};
pub use gelu::{IntegerGelu, IntegerGelus};
pub use layer_norm::{IntegerLayerNorm, integer_sqrt};
pub use linear::{IntegerLinear, integer_context, integer_scores};
pub use polynomial::Quadratic;
pub use rescale::Ratios;
pub use tanh::IntegerTanh;

/// Cuts an integer to two's complement of `bits` bits.
pub fn saturated(q: i64, bits: u32) -> i64 {
    let end = 1i64 << (bits - 1);
    q.clamp(-end, end - 1)
}

/// The greatest integer of a symmetric range of `bits` bits, `2^(bits − 1) − 1`: a range from `−x` to `x` has the scale
/// `x / greatest`.
pub fn greatest(bits: u32) -> f64 {
    ((1i64 << (bits - 1)) - 1) as f64
}

/// `floor(x)` as an integer, cut to 62 bits.
fn floor(x: f64) -> i64 {
    const END: f64 = (1i64 << 62) as f64;
    x.floor().clamp(-END, END) as i64
}
