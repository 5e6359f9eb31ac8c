//! Products of queries and rows, compiled for several instruction sets and selected at run time.
//!
//! [`rows`] compares a query with a few scattered rows, for a graph; [`panels`] compares many queries with
//! interleaved rows, for a scan of all rows.
//!
//! Left to the compiler, sums went through memory, and an exact search of 32-bit floats took twelve times as
//! long; hence the explicit vector instructions. All code is safe except the calls of functions compiled for
//! detected instruction sets, and prefetching.

pub(crate) mod panels;
pub(crate) mod rows;

/// Offset added to a query's 8-bit numbers, since the instructions multiply unsigned by signed numbers.
pub(crate) const RAISED: u8 = 128;

/// Calls a function of the first of these modules supported by the machine, else of module `plain`. (NEON
/// is part of AArch64's plain set.)
macro_rules! best_of {
    ($name:ident $args:tt in $($module:ident[$($feature:tt)+]),+) => {{
        $(
            #[cfg(target_arch = "x86_64")]
            if $(std::is_x86_feature_detected!($feature))&&+ {
                // SAFETY: the machine has these instructions.
                return unsafe { $module::$name $args };
            }
        )+
        plain::$name $args
    }};
}
use best_of;

/// Steps shared by [`rows`] and [`panels`].
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::RAISED;
    use std::arch::x86_64::*;

    /// A query's 8-bit numbers without the offset.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn lowered(query: __m256i) -> __m256i {
        _mm256_xor_si256(query, _mm256_set1_epi8(RAISED.cast_signed()))
    }

    /// Adds products of 8-bit numbers, four to a sum. `maddubs` adds two of them in 16 bits: of a row's amount, 128 at most,
    /// and a query's number with the row's sign, 127 at most, they fit.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn add_products_int8(sum: __m256i, query: __m256i, row: __m256i) -> __m256i {
        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(row), _mm256_sign_epi8(query, row));
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}
