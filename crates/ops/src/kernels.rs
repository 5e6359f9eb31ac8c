//! Which instructions multiply matrices on this machine.

use std::fmt;
use std::sync::LazyLock;

/// Which instructions multiply matrices on burn's flex, by format: for a person to read, and to compare with what
/// another machine used.
///
/// Results differ between them in the order of sums; AMX also takes subnormal numbers for zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernels {
    /// In FP32.
    pub fp32: &'static str,
    /// Within [`with_precision`](crate::with_precision) of bf16.
    pub bf16: &'static str,
    /// In [`linear_int8`](crate::linear_int8).
    pub int8: &'static str,
    /// Those that the machine has and that are not used, for a small product by them was wrong.
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

/// This machine's, found at the first call: each kernel multiplies two small matrices, and one whose product differs
/// from the reference is not used.
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
