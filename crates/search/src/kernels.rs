//! Products of queries and rows, compiled for several instruction sets and chosen when the program runs.
//!
//! A tile of queries by rows keeps its sums in registers: each number that is loaded serves several products. Left to the
//! compiler, the sums went through memory, and an exact search of 32-bit floats took twelve times as long; so tiles are made
//! of vector instructions by name. All of it is safe code but for the calls of what is compiled for instructions that the
//! machine was found to have, and for what only asks for memory ahead.

/// Calls a function of the best instruction set that the machine has: of module `avx512`, `avx2`, or `plain`.
/// (NEON is part of AArch64's plain set.)
macro_rules! best_of {
    ($name:ident($($arg:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("fma")
                && std::is_x86_feature_detected!("popcnt")
            {
                if std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512vl")
                    && std::is_x86_feature_detected!("avx512dq")
                    && std::is_x86_feature_detected!("avx512bw")
                {
                    // SAFETY: the machine has these instructions.
                    return unsafe { avx512::$name($($arg),*) };
                }
                // SAFETY: as above.
                return unsafe { avx2::$name($($arg),*) };
            }
        }
        plain::$name($($arg),*)
    }};
}

/// `out[q·rows + r] = queries[q] · rows[r]`, of vectors of one length. What else is multiplied changes no bit of a product.
pub(crate) fn products(queries: &[&[f32]], rows: &[&[f32]], out: &mut [f32]) {
    best_of!(products(queries, rows, out))
}

/// `out[q·rows + r] = queries[q] · rows[r]`, of 8-bit numbers, the queries' in 16 bits; exact.
pub(crate) fn products_int8(queries: &[&[i16]], rows: &[&[i8]], out: &mut [i32]) {
    best_of!(products_int8(queries, rows, out))
}

/// `out[r]` = the bits in which `query` and `rows[r]` differ.
pub(crate) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
    best_of!(distances(query, rows, out))
}

/// Asks for a row's memory, or the beginning of it: the processor itself goes on with what follows. On x86 alone.
#[inline]
pub(crate) fn fetch<T>(row: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        /// Bytes of a line of the cache, and lines that are asked for at most.
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

/// Four queries by a few rows at a time, then queries one by one, by `$tile`.
macro_rules! by_tiles {
    ($tile:ident, $rows_of_a_tile:literal, $queries:ident, $rows:ident, $out:ident) => {{
        let (fours, rest) = $queries.as_chunks::<4>();
        let n = $rows.len();
        for (four, out) in fours.iter().zip($out.chunks_exact_mut(4 * n.max(1))) {
            let (whole, last) = $rows.as_chunks::<$rows_of_a_tile>();
            for (place, rows) in whole.iter().enumerate() {
                for (q, sums) in $tile::<4, $rows_of_a_tile>(four, rows).into_iter().enumerate() {
                    out[q * n + place * $rows_of_a_tile..][..$rows_of_a_tile].copy_from_slice(&sums);
                }
            }
            for (place, row) in (whole.len() * $rows_of_a_tile..).zip(last) {
                for (q, [sum]) in $tile::<4, 1>(four, &[*row]).into_iter().enumerate() {
                    out[q * n + place] = sum;
                }
            }
        }
        for (query, out) in rest.iter().zip($out[4 * fours.len() * n..].chunks_exact_mut(n.max(1))) {
            let (whole, last) = $rows.as_chunks::<4>();
            for (rows, out) in whole.iter().zip(out.as_chunks_mut::<4>().0) {
                [*out] = $tile::<1, 4>(&[*query], rows);
            }
            for (place, row) in (whole.len() * 4..).zip(last) {
                [[out[place]]] = $tile::<1, 1>(&[*query], &[*row]);
            }
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

/// The sum of eight numbers, in the order in which all of this file adds up registers.
#[inline(always)]
fn sum_of(x: [f32; 8]) -> f32 {
    ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
}

/// On any machine.
mod plain {
    use super::sum_of;

    pub(super) fn products(queries: &[&[f32]], rows: &[&[f32]], out: &mut [f32]) {
        by_tiles!(tile, 2, queries, rows, out);
    }

    pub(super) fn products_int8(queries: &[&[i16]], rows: &[&[i8]], out: &mut [i32]) {
        by_tiles!(tile_int8, 2, queries, rows, out);
    }

    pub(super) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
        by_bits!(query, rows, out);
    }

    fn tile<const Q: usize, const R: usize>(queries: &[&[f32]; Q], rows: &[&[f32]; R]) -> [[f32; R]; Q] {
        queries.map(|query| {
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
        })
    }

    fn tile_int8<const Q: usize, const R: usize>(queries: &[&[i16]; Q], rows: &[&[i8]; R]) -> [[i32; R]; Q] {
        queries.map(|query| {
            rows.map(|row| query.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum())
        })
    }
}

/// A module of one of x86's instruction sets: its name and features, the registers of floats and of integers and what
/// they hold, and its instructions.
macro_rules! x86 {
    (
        $name:ident, $features:literal, rows of a tile: $tile_rows:literal,
        floats: $floats:ty, $lanes:literal, $zero:ident, $fused:ident,
        integers: $integers:ty, $half:ty, $words:literal, $zero_integers:ident, $widen:ident, $pairs:ident, $add:ident
    ) => {
        #[cfg(target_arch = "x86_64")]
        mod $name {
            use super::sum_of;
            use std::arch::x86_64::*;

            #[target_feature(enable = $features)]
            pub(super) fn products(queries: &[&[f32]], rows: &[&[f32]], out: &mut [f32]) {
                by_tiles!(tile, $tile_rows, queries, rows, out);
            }

            #[target_feature(enable = $features)]
            pub(super) fn products_int8(queries: &[&[i16]], rows: &[&[i8]], out: &mut [i32]) {
                by_tiles!(tile_int8, $tile_rows, queries, rows, out);
            }

            #[target_feature(enable = $features)]
            pub(super) fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
                by_bits!(query, rows, out);
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn tile<const Q: usize, const R: usize>(
                queries: &[&[f32]; Q],
                rows: &[&[f32]; R],
            ) -> [[f32; R]; Q] {
                const LANES: usize = $lanes;
                let n = queries[0].len() / LANES;
                let (q, r) = (queries.map(|x| x.as_chunks::<LANES>()), rows.map(|x| x.as_chunks::<LANES>()));
                // Slices of one length: the compiler checks no index.
                let (whole_q, whole_r) = (q.map(|(whole, _)| &whole[..n]), r.map(|(whole, _)| &whole[..n]));
                let mut sums = [[$zero(); R]; Q];
                for i in 0..n {
                    let mut row = [$zero(); R];
                    for (row, whole) in row.iter_mut().zip(&whole_r) {
                        *row = bytemuck::cast::<[f32; LANES], $floats>(whole[i]);
                    }
                    for (sums, whole) in sums.iter_mut().zip(&whole_q) {
                        let query = bytemuck::cast::<[f32; LANES], $floats>(whole[i]);
                        for (sum, row) in sums.iter_mut().zip(&row) {
                            *sum = $fused(query, *row, *sum);
                        }
                    }
                }
                let mut out = [[0f32; R]; Q];
                for (i, (sums, out)) in sums.iter().zip(&mut out).enumerate() {
                    for (j, (sum, out)) in sums.iter().zip(out).enumerate() {
                        let eights: [[f32; 8]; LANES / 8] = bytemuck::cast(*sum);
                        let mut eight = eights[0];
                        for other in &eights[1..] {
                            for lane in 0..8 {
                                eight[lane] += other[lane];
                            }
                        }
                        let rest = q[i].1.iter().zip(r[j].1);
                        *out = rest.fold(sum_of(eight), |sum, (a, b)| a.mul_add(*b, sum));
                    }
                }
                out
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn tile_int8<const Q: usize, const R: usize>(
                queries: &[&[i16]; Q],
                rows: &[&[i8]; R],
            ) -> [[i32; R]; Q] {
                const WORDS: usize = $words;
                let n = queries[0].len() / WORDS;
                let (q, r) = (queries.map(|x| x.as_chunks::<WORDS>()), rows.map(|x| x.as_chunks::<WORDS>()));
                let (whole_q, whole_r) = (q.map(|(whole, _)| &whole[..n]), r.map(|(whole, _)| &whole[..n]));
                let mut sums = [[$zero_integers(); R]; Q];
                for i in 0..n {
                    let mut row = [$zero_integers(); R];
                    for (row, whole) in row.iter_mut().zip(&whole_r) {
                        *row = $widen(bytemuck::cast::<[i8; WORDS], $half>(whole[i]));
                    }
                    for (sums, whole) in sums.iter_mut().zip(&whole_q) {
                        let query = bytemuck::cast::<[i16; WORDS], $integers>(whole[i]);
                        for (sum, row) in sums.iter_mut().zip(&row) {
                            // Two products of 8-bit numbers are far from what 32 bits hold.
                            *sum = $add(*sum, $pairs(query, *row));
                        }
                    }
                }
                let mut out = [[0i32; R]; Q];
                for (i, (sums, out)) in sums.iter().zip(&mut out).enumerate() {
                    for (j, (sum, out)) in sums.iter().zip(out).enumerate() {
                        let lanes: [i32; WORDS / 2] = bytemuck::cast(*sum);
                        let rest = q[i].1.iter().zip(r[j].1).map(|(a, b)| i32::from(*a) * i32::from(*b));
                        *out = lanes.iter().sum::<i32>() + rest.sum::<i32>();
                    }
                }
                out
            }
        }
    };
}

x86!(
    avx2, "avx2,fma,popcnt", rows of a tile: 3,
    floats: __m256, 8, _mm256_setzero_ps, _mm256_fmadd_ps,
    integers: __m256i, __m128i, 16, _mm256_setzero_si256, _mm256_cvtepi8_epi16, _mm256_madd_epi16, _mm256_add_epi32
);
x86!(
    avx512, "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,popcnt", rows of a tile: 6,
    floats: __m512, 16, _mm512_setzero_ps, _mm512_fmadd_ps,
    integers: __m512i, __m256i, 32, _mm512_setzero_si512, _mm512_cvtepi8_epi16, _mm512_madd_epi16, _mm512_add_epi32
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whole numbers, whose sums are exact in whichever order.
    fn numbers(n: usize, width: usize) -> impl Strategy<Value = Vec<Vec<i8>>> {
        prop::collection::vec(prop::collection::vec(any::<i8>(), width), n)
    }

    proptest! {
        #[test]
        fn products_are_those_one_by_one(
            (queries, rows) in (1usize..11, 0usize..11, 1usize..70)
                .prop_flat_map(|(q, r, width)| (numbers(q, width), numbers(r, width)))
        ) {
            let naive = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>();
            let floats = |all: &[Vec<i8>]| all.iter().map(|x| x.iter().map(|x| f32::from(*x)).collect()).collect();
            let (q, r): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (floats(&queries), floats(&rows));
            let q: Vec<&[f32]> = q.iter().map(Vec::as_slice).collect();
            let r: Vec<&[f32]> = r.iter().map(Vec::as_slice).collect();
            let mut out = vec![f32::NAN; q.len() * r.len()];
            products(&q, &r, &mut out);
            let bytes: Vec<&[i8]> = rows.iter().map(Vec::as_slice).collect();
            for (i, query) in queries.iter().enumerate() {
                let wide: Vec<i16> = query.iter().map(|x| i16::from(*x)).collect();
                // Alone, and beside others.
                let (mut exact, mut alone) = (vec![0; 5 * rows.len()], vec![f32::NAN; rows.len()]);
                products_int8(&[&wide[..]; 5], &bytes, &mut exact);
                products(&q[i..=i], &r, &mut alone);
                prop_assert_eq!(&alone[..], &out[i * rows.len()..][..rows.len()]);
                plain::products(&q[i..=i], &r, &mut alone);
                for (j, row) in rows.iter().enumerate() {
                    prop_assert!((0..5).all(|q| exact[q * rows.len() + j] == naive(query, row)));
                    prop_assert_eq!(alone[j], naive(query, row) as f32);
                    prop_assert_eq!(out[i * rows.len() + j], naive(query, row) as f32);
                }
            }
        }

        #[test]
        fn distances_count_bits(a in prop::collection::vec(any::<u64>(), 1..9), b: u64) {
            let row = vec![b; a.len()];
            let mut out = [0];
            distances(&a, &[&row], &mut out);
            let bits = |word: u64| (0..64).filter(|bit| word >> bit & 1 == 1).count() as u32;
            prop_assert_eq!(out[0], a.iter().map(|word| bits(word ^ b)).sum::<u32>());
        }
    }
}
