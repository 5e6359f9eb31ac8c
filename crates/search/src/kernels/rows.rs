//! A query and a few rows.

use super::{RAISED, best_of};

/// `out[r] = query · rows[r]`, for vectors of equal length. Other rows do not affect a product.
pub(crate) fn products(query: &[f32], rows: &[&[f32]], out: &mut [f32]) {
    best_of!(products(query, rows, out) in avx512["avx512f" "fma"], avx2["avx2" "fma"])
}

/// `out[r] = query · rows[r]`, for 8-bit numbers; exact. The query's are from −127 to 127, plus [`RAISED`].
pub(crate) fn products_int8(query: &[u8], rows: &[&[i8]], out: &mut [i32]) {
    best_of!(products_int8(query, rows, out) in vnni["avx512f" "avx512vnni"], avx2["avx2"])
}

/// `out[r]` = the number of bits in which `query` and `rows[r]` differ.
pub(crate) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
    best_of!(distances(query, rows, out) in popcnt["popcnt"])
}

/// Prefetches a row's memory, or its beginning: the processor continues with what follows. Only on x86.
#[inline]
pub(crate) fn fetch<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes of a cache line, and maximum lines prefetched.
        const LINE: usize = 64;
        const LINES: usize = 8;
        let start = row.as_ptr().cast::<i8>();
        for byte in (0..size_of_val(row)).step_by(LINE).take(LINES) {
            // SAFETY: nothing is read; a processor with x86-64's instructions has this one.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(byte)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// Four rows at a time, then one by one, by `$tile`: each loaded query number serves several products.
macro_rules! by_fours {
    ($tile:ident, $query:ident, $rows:ident, $out:ident) => {{
        let (fours, rest) = $rows.as_chunks::<4>();
        let (out_fours, out_rest) = $out.as_chunks_mut::<4>();
        for (rows, out) in fours.iter().zip(out_fours) {
            *out = $tile($query, rows);
        }
        for (row, out) in rest.iter().zip(out_rest) {
            [*out] = $tile($query, &[*row]);
        }
    }};
}

/// Differing bits of rows.
macro_rules! by_bits {
    ($query:ident, $rows:ident, $out:ident) => {
        for (row, out) in $rows.iter().zip($out) {
            *out = $query.iter().zip(*row).map(|(a, b)| (a ^ b).count_ones()).sum();
        }
    };
}

/// The sum of eight numbers, in the order used throughout this file.
#[inline(always)]
fn sum_of(x: [f32; 8]) -> f32 {
    ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
}

fn product_int8(query: &[u8], row: &[i8]) -> i32 {
    query.iter().zip(row).map(|(a, b)| (i32::from(*a) - i32::from(RAISED)) * i32::from(*b)).sum()
}

/// On any machine.
mod plain {
    use super::{product_int8, sum_of};

    pub(super) fn products(query: &[f32], rows: &[&[f32]], out: &mut [f32]) {
        by_fours!(tile, query, rows, out);
    }

    pub(super) fn products_int8(query: &[u8], rows: &[&[i8]], out: &mut [i32]) {
        rows.iter().zip(out).for_each(|(row, out)| *out = product_int8(query, row));
    }

    pub(super) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
        by_bits!(query, rows, out);
    }

    fn tile<const R: usize>(query: &[f32], rows: &[&[f32]; R]) -> [f32; R] {
        rows.map(|row| {
            let (a, b) = (query.as_chunks::<8>(), row.as_chunks::<8>());
            let mut sums = [0f32; 8];
            for (a, b) in a.0.iter().zip(b.0) {
                for lane in 0..8 {
                    sums[lane] += a[lane] * b[lane];
                }
            }
            a.1.iter().zip(b.1).fold(sum_of(sums), |sum, (a, b)| sum + a * b)
        })
    }
}

/// With a population-count instruction.
#[cfg(target_arch = "x86_64")]
mod popcnt {
    #[target_feature(enable = "popcnt")]
    pub(super) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
        by_bits!(query, rows, out);
    }
}

/// Products of 32-bit floats by one of x86's instruction sets: its features, its register and what that holds, and its
/// instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! floats {
    ($features:literal, $floats:ty, $lanes:literal, $zero:ident, $fused:ident) => {
        #[target_feature(enable = $features)]
        pub(super) fn products(query: &[f32], rows: &[&[f32]], out: &mut [f32]) {
            by_fours!(tile, query, rows, out);
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn tile<const R: usize>(query: &[f32], rows: &[&[f32]; R]) -> [f32; R] {
            const LANES: usize = $lanes;
            let (query, rest_of_query) = query.as_chunks::<LANES>();
            let rows = rows.map(|row| row.as_chunks::<LANES>());
            // Slices of one length: the compiler checks no index.
            let whole = rows.map(|(whole, _)| &whole[..query.len()]);
            let mut sums = [$zero(); R];
            for (i, query) in query.iter().enumerate() {
                let query = cast::<[f32; LANES], $floats>(*query);
                for (sum, row) in sums.iter_mut().zip(&whole) {
                    *sum = $fused(query, cast::<[f32; LANES], $floats>(row[i]), *sum);
                }
            }
            let mut out = [0f32; R];
            for ((sum, (_, rest)), out) in sums.iter().zip(&rows).zip(&mut out) {
                let eights: [[f32; 8]; LANES / 8] = cast(*sum);
                let mut eight = eights[0];
                for other in &eights[1..] {
                    for lane in 0..8 {
                        eight[lane] += other[lane];
                    }
                }
                let rest = rest_of_query.iter().zip(*rest);
                *out = rest.fold(super::sum_of(eight), |sum, (a, b)| a.mul_add(*b, sum));
            }
            out
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use bytemuck::cast;
    use std::arch::x86_64::*;

    floats!("avx512f,fma", __m512, 16, _mm512_setzero_ps, _mm512_fmadd_ps);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::avx2::{add_products_int8, lowered};
    use bytemuck::cast;
    use std::arch::x86_64::*;

    floats!("avx2,fma", __m256, 8, _mm256_setzero_ps, _mm256_fmadd_ps);

    #[target_feature(enable = "avx2")]
    pub(super) fn products_int8(query: &[u8], rows: &[&[i8]], out: &mut [i32]) {
        by_fours!(tile_int8, query, rows, out);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn tile_int8<const R: usize>(query: &[u8], rows: &[&[i8]; R]) -> [i32; R] {
        const BYTES: usize = 32;
        let (query, rest_of_query) = query.as_chunks::<BYTES>();
        let rows = rows.map(|row| row.as_chunks::<BYTES>());
        let whole = rows.map(|(whole, _)| &whole[..query.len()]);
        let mut sums = [_mm256_setzero_si256(); R];
        for (i, query) in query.iter().enumerate() {
            let query = lowered(cast::<[u8; BYTES], __m256i>(*query));
            for (sum, row) in sums.iter_mut().zip(&whole) {
                *sum = add_products_int8(*sum, query, cast::<[i8; BYTES], __m256i>(row[i]));
            }
        }
        let mut out = [0i32; R];
        for ((sum, (_, rest)), out) in sums.iter().zip(&rows).zip(&mut out) {
            let lanes: [i32; BYTES / 4] = cast(*sum);
            *out = lanes.iter().sum::<i32>() + super::product_int8(rest_of_query, rest);
        }
        out
    }
}

/// Products of 8-bit numbers, four at a time.
#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::RAISED;
    use bytemuck::cast;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn products_int8(query: &[u8], rows: &[&[i8]], out: &mut [i32]) {
        by_fours!(tile_int8, query, rows, out);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn tile_int8<const R: usize>(query: &[u8], rows: &[&[i8]; R]) -> [i32; R] {
        const BYTES: usize = 64;
        let (query, rest_of_query) = query.as_chunks::<BYTES>();
        let rows = rows.map(|row| row.as_chunks::<BYTES>());
        let whole = rows.map(|(whole, _)| &whole[..query.len()]);
        let raised = _mm512_set1_epi8(RAISED.cast_signed());
        // The sums, and what raising the query adds to them.
        let mut sums = [[_mm512_setzero_si512(); 2]; R];
        for (i, query) in query.iter().enumerate() {
            let query = cast::<[u8; BYTES], __m512i>(*query);
            for ([sum, added], row) in sums.iter_mut().zip(&whole) {
                let row = cast::<[i8; BYTES], __m512i>(row[i]);
                *sum = _mm512_dpbusd_epi32(*sum, query, row);
                *added = _mm512_dpbusd_epi32(*added, raised, row);
            }
        }
        let mut out = [0i32; R];
        for (([sum, added], (_, rest)), out) in sums.iter().zip(&rows).zip(&mut out) {
            let whole = _mm512_reduce_add_epi32(_mm512_sub_epi32(*sum, *added));
            *out = whole + super::product_int8(rest_of_query, rest);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Checks one kernel, each way that the machine has.
    macro_rules! check {
        ($kernel:ident($query:expr, $rows:expr), $expected:expr; $($module:ident[$($feature:tt)+]),*) => {
            let mut out = vec![Default::default(); $rows.len()];
            $kernel($query, $rows, &mut out);
            prop_assert_eq!(&out, &$expected);
            out.fill(Default::default());
            plain::$kernel($query, $rows, &mut out);
            prop_assert_eq!(&out, &$expected);
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::is_x86_feature_detected!($feature))&&+ {
                    out.fill(Default::default());
                    // SAFETY: the machine has these instructions.
                    unsafe { $module::$kernel($query, $rows, &mut out) };
                    prop_assert_eq!(&out, &$expected);
                }
            )*
        };
    }

    proptest! {
        // Whole numbers, whose sums are exact in whichever order.
        #[test]
        fn products_are_those_one_by_one(
            (query, rows) in (0usize..11, 1usize..200).prop_flat_map(|(n, width)| (
                prop::collection::vec(-127i8..=127, width),
                prop::collection::vec(prop::collection::vec(any::<i8>(), width), n),
            ))
        ) {
            let expected: Vec<i32> = rows.iter()
                .map(|row| query.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum())
                .collect();
            let raised: Vec<u8> = query.iter().map(|x| x.cast_unsigned() ^ RAISED).collect();
            let floats: Vec<Vec<f32>> = rows.iter().map(|x| x.iter().map(|x| f32::from(*x)).collect()).collect();
            let floats: Vec<&[f32]> = floats.iter().map(Vec::as_slice).collect();
            let query: Vec<f32> = query.iter().map(|x| f32::from(*x)).collect();
            let rows: Vec<&[i8]> = rows.iter().map(Vec::as_slice).collect();
            check!(products_int8(&raised, &rows), expected; vnni["avx512f" "avx512vnni"], avx2["avx2"]);
            let expected: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
            check!(products(&query, &floats), expected; avx512["avx512f" "fma"], avx2["avx2" "fma"]);
            // Alone, and beside others.
            for (place, row) in floats.iter().enumerate() {
                let mut alone = [f32::NAN];
                products(&query, &[row], &mut alone);
                prop_assert_eq!(alone[0], expected[place]);
            }
        }

        #[test]
        fn distances_count_bits(
            (query, rows) in (0usize..11, 1usize..9).prop_flat_map(|(n, words)| (
                prop::collection::vec(any::<u64>(), words),
                prop::collection::vec(prop::collection::vec(any::<u64>(), words), n),
            ))
        ) {
            let bits = |word: u64| (0..64).filter(|bit| word >> bit & 1 == 1).count() as u32;
            let expected: Vec<u32> =
                rows.iter().map(|row| query.iter().zip(row).map(|(a, b)| bits(a ^ b)).sum()).collect();
            let rows: Vec<&[u64]> = rows.iter().map(Vec::as_slice).collect();
            check!(distances(&query, &rows), expected; popcnt["popcnt"]);
        }
    }
}
