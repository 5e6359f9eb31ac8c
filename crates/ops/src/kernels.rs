//! The matrix multiplication kernels of this machine.

use std::fmt;
use std::sync::LazyLock;

/// The instructions used for matrix products on burn's flex, by format: human-readable, and to compare with
/// another machine.
///
/// Results differ between them in the order of sums; AMX also flushes subnormal numbers to zero.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernels {
    /// In FP32.
    pub fp32: &'static str,
    /// Within [`with_precision`](crate::with_precision) of bf16.
    pub bf16: &'static str,
    /// In [`linear_integer`](crate::linear_integer).
    pub int8: &'static str,
    /// Supported kernels that are not used because a small test product was wrong.
    pub refused: Vec<&'static str>,
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { fp32, bf16, int8, refused } = self;
        write!(f, "FP32: {fp32}; bf16: {bf16}; 8 bits: {int8}")?;
        match refused.is_empty() {
            true => Ok(()),
            false => write!(f, "; gives wrong products and is not used: {}", refused.join(", ")),
        }
    }
}

/// This machine's kernels, determined at the first call: each kernel multiplies two small matrices, and is
/// not used if the product differs from the reference.
///
/// Without the feature `flex` there are no kernels of ours, and all are "none".
pub fn kernels() -> &'static Kernels {
    static HERE: LazyLock<Kernels> = LazyLock::new(|| {
        #[cfg(feature = "flex")]
        return crate::flex::kernels();
        #[cfg(not(feature = "flex"))]
        Kernels { fp32: "none", bf16: "none", int8: "none", refused: Vec::new() }
    });
    &HERE
}
