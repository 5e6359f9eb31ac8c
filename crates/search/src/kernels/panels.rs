//! Many queries and a panel: interleaved rows, so that a register holds one feature of several rows.
//!
//! Each product is its own sum over features: nothing is summed across a register, and other products do not
//! affect it. Queries are interleaved in fours; a tile of queries by rows keeps its sums in registers (Goto
//! and van de Geijn 2008).

use super::{RAISED, best_of};

/// Rows per panel.
pub(crate) const PANEL: usize = 32;
/// Number of interleaved queries.
pub(crate) const FOUR: usize = 4;

/// Four bytes of a row: a 32-bit float, or four 8-bit numbers.
pub(crate) type Word = [u8; 4];

/// Interleaves rows of words: `panel[i][r] = rows[r][i]`, for at most [`PANEL`] rows. Other slots are
/// unchanged.
pub(crate) fn lay(rows: &[&[Word]], panel: &mut [[Word; PANEL]]) {
    best_of!(lay(rows, panel) in avx2["avx2"])
}

/// `out[4·f + q][r] = Σᵢ queries[f][i][q] · panel[i][r]`.
pub(crate) fn products(queries: &[Vec<[f32; FOUR]>], panel: &[[f32; PANEL]], out: &mut [[f32; PANEL]]) {
    best_of!(products(queries, panel, out) in avx512["avx512f"], avx2["avx2" "fma"])
}

/// Like [`products`], for 8-bit numbers, four to a word; exact. Queries' numbers are from −127 to 127, plus
/// [`RAISED`].
pub(crate) fn products_int8(
    queries: &[Vec<[Word; FOUR]>],
    panel: &[[Word; PANEL]],
    out: &mut [[i32; PANEL]],
) {
    best_of!(products_int8(queries, panel, out) in vnni["avx512f" "avx512vnni"], avx2["avx2"])
}

/// Like [`products`], but minus the number of differing bits.
pub(crate) fn distances(queries: &[Vec<[u64; FOUR]>], panel: &[[u64; PANEL]], out: &mut [[f32; PANEL]]) {
    best_of!(distances(queries, panel, out) in vpopcnt["avx512f" "avx512vpopcntdq"], avx2["avx2"])
}

/// `out[q][r] = sums[q][r] · (of_queries[q] · of_rows[r])`.
pub(crate) fn scale(
    sums: &[[i32; PANEL]],
    of_queries: &[f32],
    of_rows: &[f32; PANEL],
    out: &mut [[f32; PANEL]],
) {
    best_of!(scale(sums, of_queries, of_rows, out) in avx512["avx512f"], avx2["avx2"])
}

/// Bit `r` of `out[q]`: whether `scores[q][r]` is above `floors[q]`.
pub(crate) fn above(scores: &[[f32; PANEL]], floors: &[f32], out: &mut [u32]) {
    best_of!(above(scores, floors, out) in avx512["avx512f"], avx2["avx2"])
}

/// `$tile` for `$together` fours at a time, then one by one.
#[cfg(target_arch = "x86_64")]
macro_rules! by_fours {
    ($tile:ident, $together:literal, $queries:ident, $panel:ident, $out:ident) => {{
        let (whole, rest) = $queries.as_chunks::<$together>();
        let (out, _) = $out.as_chunks_mut::<FOUR>();
        let (out, out_rest) = out.split_at_mut(whole.len() * $together);
        for (queries, out) in whole.iter().zip(out.as_chunks_mut::<$together>().0) {
            $tile(queries, $panel, out);
        }
        for (queries, out) in rest.iter().zip(out_rest) {
            $tile(std::array::from_ref(queries), $panel, std::array::from_mut(out));
        }
    }};
}

/// On any machine.
mod plain {
    use super::{FOUR, PANEL, RAISED, Word};

    /// Rows with sums kept in registers.
    const ROWS: usize = 16;

    pub(super) fn lay(rows: &[&[Word]], panel: &mut [[Word; PANEL]]) {
        for (place, row) in rows.iter().enumerate() {
            panel.iter_mut().zip(*row).for_each(|(line, word)| line[place] = *word);
        }
    }

    /// `$add(sum, query, row)` of each line.
    macro_rules! by_lines {
        ($sum:ty, $queries:ident, $panel:ident, $out:ident, $add:expr) => {
            for (queries, out) in $queries.iter().zip($out.as_chunks_mut::<FOUR>().0) {
                for part in 0..PANEL / ROWS {
                    let mut sums = [[<$sum>::default(); ROWS]; FOUR];
                    for (query, line) in queries.iter().zip($panel) {
                        let line = &line.as_chunks::<ROWS>().0[part];
                        for (sums, query) in sums.iter_mut().zip(query) {
                            for (sum, row) in sums.iter_mut().zip(line) {
                                $add(sum, query, row);
                            }
                        }
                    }
                    for (out, sums) in out.iter_mut().zip(sums) {
                        out.as_chunks_mut::<ROWS>().0[part] = sums;
                    }
                }
            }
        };
    }

    pub(super) fn products(queries: &[Vec<[f32; FOUR]>], panel: &[[f32; PANEL]], out: &mut [[f32; PANEL]]) {
        by_lines!(f32, queries, panel, out, |sum: &mut f32, query: &f32, row: &f32| *sum += query * row);
    }

    pub(super) fn products_int8(
        queries: &[Vec<[Word; FOUR]>],
        panel: &[[Word; PANEL]],
        out: &mut [[i32; PANEL]],
    ) {
        by_lines!(i32, queries, panel, out, |sum: &mut i32, query: &Word, row: &Word| {
            for (query, row) in query.iter().zip(row) {
                *sum += (i32::from(*query) - i32::from(RAISED)) * i32::from(row.cast_signed());
            }
        });
    }

    pub(super) fn distances(queries: &[Vec<[u64; FOUR]>], panel: &[[u64; PANEL]], out: &mut [[f32; PANEL]]) {
        by_lines!(f32, queries, panel, out, |sum: &mut f32, query: &u64, row: &u64| {
            *sum -= (query ^ row).count_ones() as f32;
        });
    }

    pub(super) fn scale(
        sums: &[[i32; PANEL]],
        of_queries: &[f32],
        of_rows: &[f32; PANEL],
        out: &mut [[f32; PANEL]],
    ) {
        for ((sums, of_query), out) in sums.iter().zip(of_queries).zip(out) {
            for ((sum, of_row), out) in sums.iter().zip(of_rows).zip(out) {
                *out = *sum as f32 * (of_query * of_row);
            }
        }
    }

    pub(super) fn above(scores: &[[f32; PANEL]], floors: &[f32], out: &mut [u32]) {
        for ((scores, floor), out) in scores.iter().zip(floors).zip(out) {
            let bit = |(place, score): (usize, &f32)| u32::from(score > floor) << place;
            *out = scores.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::super::avx2::{add_products_int8, lowered};
    use super::{FOUR, PANEL, Word};
    use bytemuck::cast;
    use std::arch::x86_64::*;

    /// Eight rows by eight words at a time.
    #[target_feature(enable = "avx2")]
    pub(super) fn lay(rows: &[&[Word]], panel: &mut [[Word; PANEL]]) {
        let words = panel.len();
        let (eights, rest) = rows.as_chunks::<8>();
        for (place, eight) in eights.iter().enumerate() {
            let eight = eight.map(|row| &row[..words]);
            for (part, lines) in panel.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let word = |row: usize| cast::<[Word; 8], __m256i>(eight[row].as_chunks::<8>().0[part]);
                let (a, b, c, d) = (word(0), word(1), word(2), word(3));
                let (e, f, g, h) = (word(4), word(5), word(6), word(7));
                let pairs = |a, b| (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
                let fours = |a, b| (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
                let ((ab, ab2), (cd, cd2)) = (pairs(a, b), pairs(c, d));
                let ((ef, ef2), (gh, gh2)) = (pairs(e, f), pairs(g, h));
                let upper = [fours(ab, cd), fours(ab2, cd2)];
                let lower = [fours(ef, gh), fours(ef2, gh2)];
                for (i, ((a, b), (c, d))) in upper.into_iter().zip(lower).enumerate() {
                    let mut store = |line: usize, x: __m256i| {
                        lines[line].as_chunks_mut::<8>().0[place] = cast::<__m256i, [Word; 8]>(x);
                    };
                    store(2 * i, _mm256_permute2x128_si256::<0x20>(a, c));
                    store(2 * i + 1, _mm256_permute2x128_si256::<0x20>(b, d));
                    store(2 * i + 4, _mm256_permute2x128_si256::<0x31>(a, c));
                    store(2 * i + 5, _mm256_permute2x128_si256::<0x31>(b, d));
                }
            }
            for line in words / 8 * 8..words {
                for (row, words) in eight.iter().enumerate() {
                    panel[line][8 * place + row] = words[line];
                }
            }
        }
        for (place, row) in (8 * eights.len()..).zip(rest) {
            panel.iter_mut().zip(*row).for_each(|(line, word)| line[place] = *word);
        }
    }

    /// Four queries by sixteen rows.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn products(queries: &[Vec<[f32; FOUR]>], panel: &[[f32; PANEL]], out: &mut [[f32; PANEL]]) {
        for (queries, out) in queries.iter().zip(out.as_chunks_mut::<FOUR>().0) {
            for half in 0..2 {
                let mut sums = [[_mm256_setzero_ps(); 2]; FOUR];
                for (query, line) in queries.iter().zip(panel) {
                    let rows = cast::<[f32; 16], [__m256; 2]>(line.as_chunks::<16>().0[half]);
                    for (sums, query) in sums.iter_mut().zip(query) {
                        let query = _mm256_set1_ps(*query);
                        for (sum, row) in sums.iter_mut().zip(rows) {
                            *sum = _mm256_fmadd_ps(query, row, *sum);
                        }
                    }
                }
                for (out, sums) in out.iter_mut().zip(sums) {
                    out.as_chunks_mut::<16>().0[half] = cast::<[__m256; 2], [f32; 16]>(sums);
                }
            }
        }
    }

    /// Four queries by sixteen rows.
    #[target_feature(enable = "avx2")]
    pub(super) fn products_int8(
        queries: &[Vec<[Word; FOUR]>],
        panel: &[[Word; PANEL]],
        out: &mut [[i32; PANEL]],
    ) {
        for (queries, out) in queries.iter().zip(out.as_chunks_mut::<FOUR>().0) {
            for half in 0..2 {
                let mut sums = [[_mm256_setzero_si256(); 2]; FOUR];
                for (query, line) in queries.iter().zip(panel) {
                    let rows = cast::<[Word; 16], [__m256i; 2]>(line.as_chunks::<16>().0[half]);
                    for (sums, query) in sums.iter_mut().zip(query) {
                        let query = lowered(_mm256_set1_epi32(i32::from_ne_bytes(*query)));
                        for (sum, row) in sums.iter_mut().zip(rows) {
                            *sum = add_products_int8(*sum, query, row);
                        }
                    }
                }
                for (out, sums) in out.iter_mut().zip(sums) {
                    out.as_chunks_mut::<16>().0[half] = cast::<[__m256i; 2], [i32; 16]>(sums);
                }
            }
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn scale(
        sums: &[[i32; PANEL]],
        of_queries: &[f32],
        of_rows: &[f32; PANEL],
        out: &mut [[f32; PANEL]],
    ) {
        let of_rows = cast::<[f32; PANEL], [__m256; 4]>(*of_rows);
        for ((sums, of_query), out) in sums.iter().zip(of_queries).zip(out) {
            let of_query = _mm256_set1_ps(*of_query);
            let mut scores = cast::<[i32; PANEL], [__m256i; 4]>(*sums).map(|sums| _mm256_cvtepi32_ps(sums));
            for (score, of_row) in scores.iter_mut().zip(of_rows) {
                *score = _mm256_mul_ps(*score, _mm256_mul_ps(of_query, of_row));
            }
            *out = cast(scores);
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn above(scores: &[[f32; PANEL]], floors: &[f32], out: &mut [u32]) {
        for ((scores, floor), out) in scores.iter().zip(floors).zip(out) {
            let floor = _mm256_set1_ps(*floor);
            let bits = cast::<[f32; PANEL], [__m256; 4]>(*scores)
                .map(|scores| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(scores, floor)) as u32);
            *out = bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
        }
    }

    /// Four queries by eight rows. Bits are counted by looking up each half of a byte (Muła, Kurz and Lemire 2018).
    #[target_feature(enable = "avx2")]
    pub(super) fn distances(queries: &[Vec<[u64; FOUR]>], panel: &[[u64; PANEL]], out: &mut [[f32; PANEL]]) {
        /// Number of words whose differing bits fit in a byte count: eight each, 248 in total.
        const WORDS: usize = 31;
        let counts =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
        let half_bytes = _mm256_set1_epi8(0x0F);
        for (queries, out) in queries.iter().zip(out.as_chunks_mut::<FOUR>().0) {
            for part in 0..PANEL / 8 {
                let mut sums = [[_mm256_setzero_si256(); 2]; FOUR];
                for (queries, panel) in queries.chunks(WORDS).zip(panel.chunks(WORDS)) {
                    let mut bytes = [[_mm256_setzero_si256(); 2]; FOUR];
                    for (query, line) in queries.iter().zip(panel) {
                        let rows = cast::<[u64; 8], [__m256i; 2]>(line.as_chunks::<8>().0[part]);
                        for (bytes, query) in bytes.iter_mut().zip(query) {
                            let query = _mm256_set1_epi64x(query.cast_signed());
                            for (bytes, row) in bytes.iter_mut().zip(rows) {
                                let bits = _mm256_xor_si256(query, row);
                                let low = _mm256_and_si256(bits, half_bytes);
                                let high = _mm256_and_si256(_mm256_srli_epi16::<4>(bits), half_bytes);
                                let (low, high) =
                                    (_mm256_shuffle_epi8(counts, low), _mm256_shuffle_epi8(counts, high));
                                *bytes = _mm256_add_epi8(*bytes, _mm256_add_epi8(low, high));
                            }
                        }
                    }
                    for (sum, bytes) in sums.as_flattened_mut().iter_mut().zip(bytes.as_flattened()) {
                        *sum = _mm256_add_epi64(*sum, _mm256_sad_epu8(*bytes, _mm256_setzero_si256()));
                    }
                }
                for (out, sums) in out.iter_mut().zip(sums) {
                    out.as_chunks_mut::<8>().0[part] =
                        cast::<[__m256i; 2], [u64; 8]>(sums).map(|sum| -(sum as u32 as f32));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{FOUR, PANEL};
    use bytemuck::cast;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub(super) fn products(queries: &[Vec<[f32; FOUR]>], panel: &[[f32; PANEL]], out: &mut [[f32; PANEL]]) {
        by_fours!(tile, 3, queries, panel, out);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn scale(
        sums: &[[i32; PANEL]],
        of_queries: &[f32],
        of_rows: &[f32; PANEL],
        out: &mut [[f32; PANEL]],
    ) {
        let of_rows = cast::<[f32; PANEL], [__m512; 2]>(*of_rows);
        for ((sums, of_query), out) in sums.iter().zip(of_queries).zip(out) {
            let of_query = _mm512_set1_ps(*of_query);
            let mut scores = cast::<[i32; PANEL], [__m512i; 2]>(*sums).map(|sums| _mm512_cvtepi32_ps(sums));
            for (score, of_row) in scores.iter_mut().zip(of_rows) {
                *score = _mm512_mul_ps(*score, _mm512_mul_ps(of_query, of_row));
            }
            *out = cast(scores);
        }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn above(scores: &[[f32; PANEL]], floors: &[f32], out: &mut [u32]) {
        for ((scores, floor), out) in scores.iter().zip(floors).zip(out) {
            let floor = _mm512_set1_ps(*floor);
            let [low, high] = cast::<[f32; PANEL], [__m512; 2]>(*scores)
                .map(|scores| u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(scores, floor)));
            *out = low | high << 16;
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn tile<const F: usize>(
        queries: &[Vec<[f32; FOUR]>; F],
        panel: &[[f32; PANEL]],
        out: &mut [[[f32; PANEL]; FOUR]; F],
    ) {
        // Slices of one length: the compiler checks no index.
        let queries = queries.each_ref().map(|queries| &queries[..panel.len()]);
        let mut sums = [[[_mm512_setzero_ps(); 2]; FOUR]; F];
        for (i, line) in panel.iter().enumerate() {
            let rows = cast::<[f32; PANEL], [__m512; 2]>(*line);
            for (sums, query) in sums.iter_mut().zip(&queries) {
                for (sums, query) in sums.iter_mut().zip(query[i]) {
                    let query = _mm512_set1_ps(query);
                    for (sum, row) in sums.iter_mut().zip(rows) {
                        *sum = _mm512_fmadd_ps(query, row, *sum);
                    }
                }
            }
        }
        *out = sums.map(|sums| sums.map(cast));
    }
}

/// Products of 8-bit numbers, four at a time.
#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::{FOUR, PANEL, RAISED, Word};
    use bytemuck::cast;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn products_int8(
        queries: &[Vec<[Word; FOUR]>],
        panel: &[[Word; PANEL]],
        out: &mut [[i32; PANEL]],
    ) {
        by_fours!(tile, 3, queries, panel, out);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vnni")]
    fn tile<const F: usize>(
        queries: &[Vec<[Word; FOUR]>; F],
        panel: &[[Word; PANEL]],
        out: &mut [[[i32; PANEL]; FOUR]; F],
    ) {
        let queries = queries.each_ref().map(|queries| &queries[..panel.len()]);
        let raised = _mm512_set1_epi8(RAISED.cast_signed());
        let mut sums = [[[_mm512_setzero_si512(); 2]; FOUR]; F];
        // What raising the queries adds to all their sums.
        let mut added = [_mm512_setzero_si512(); 2];
        for (i, line) in panel.iter().enumerate() {
            let rows = cast::<[Word; PANEL], [__m512i; 2]>(*line);
            for (added, row) in added.iter_mut().zip(rows) {
                *added = _mm512_dpbusd_epi32(*added, raised, row);
            }
            for (sums, query) in sums.iter_mut().zip(&queries) {
                for (sums, query) in sums.iter_mut().zip(query[i]) {
                    let query = _mm512_set1_epi32(i32::from_ne_bytes(query));
                    for (sum, row) in sums.iter_mut().zip(rows) {
                        *sum = _mm512_dpbusd_epi32(*sum, query, row);
                    }
                }
            }
        }
        for (out, sums) in out.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            *out = cast([_mm512_sub_epi32(sums[0], added[0]), _mm512_sub_epi32(sums[1], added[1])]);
        }
    }
}

/// Counts of the bits of whole registers.
#[cfg(target_arch = "x86_64")]
mod vpopcnt {
    use super::{FOUR, PANEL};
    use bytemuck::cast;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512vpopcntdq")]
    pub(super) fn distances(queries: &[Vec<[u64; FOUR]>], panel: &[[u64; PANEL]], out: &mut [[f32; PANEL]]) {
        for (queries, out) in queries.iter().zip(out.as_chunks_mut::<FOUR>().0) {
            let mut sums = [[_mm512_setzero_si512(); 4]; FOUR];
            for (query, line) in queries.iter().zip(panel) {
                let rows = cast::<[u64; PANEL], [__m512i; 4]>(*line);
                for (sums, query) in sums.iter_mut().zip(query) {
                    let query = _mm512_set1_epi64(query.cast_signed());
                    for (sum, row) in sums.iter_mut().zip(rows) {
                        *sum = _mm512_add_epi64(*sum, _mm512_popcnt_epi64(_mm512_xor_si512(query, row)));
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                let [a, b, c, d] = sums.map(|sums| _mm512_cvtepi64_epi32(sums));
                let counts: [[__m256i; 2]; 2] = [[a, b], [c, d]];
                *out = cast(counts.map(|counts| {
                    _mm512_sub_ps(
                        _mm512_setzero_ps(),
                        _mm512_cvtepi32_ps(cast::<[__m256i; 2], __m512i>(counts)),
                    )
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Interleaves queries in fours.
    fn fours<T: Copy>(queries: &[Vec<T>], none: T) -> Vec<Vec<[T; FOUR]>> {
        let four = |four: &[Vec<T>]| {
            (0..four[0].len())
                .map(|i| std::array::from_fn(|q| four.get(q).map_or(none, |query| query[i])))
                .collect()
        };
        queries.chunks(FOUR).map(four).collect()
    }

    /// Checks one kernel, each way that the machine has, against `expected(query, row)`.
    macro_rules! check {
        ($kernel:ident, $queries:expr, $panel:expr, $expected:expr; $($module:ident[$($feature:tt)+]),*) => {
            let queries = $queries;
            let empty = vec![[Default::default(); PANEL]; FOUR * queries.len()];
            let is_right = |out: &[[_; PANEL]]| (0..N_QUERIES).all(|q| (0..PANEL).all(|r| out[q][r] == $expected(q, r)));
            let mut out = empty.clone();
            $kernel(&queries, &$panel, &mut out);
            prop_assert!(is_right(&out));
            let mut out = empty.clone();
            plain::$kernel(&queries, &$panel, &mut out);
            prop_assert!(is_right(&out));
            $(
                #[cfg(target_arch = "x86_64")]
                if $(std::is_x86_feature_detected!($feature))&&+ {
                    let mut out = empty.clone();
                    // SAFETY: the machine has these instructions.
                    unsafe { $module::$kernel(&queries, &$panel, &mut out) };
                    prop_assert!(is_right(&out));
                }
            )*
        };
    }

    const N_QUERIES: usize = 19;

    proptest! {
        // Whole numbers, whose sums are exact in whichever order.
        #[test]
        fn products_are_those_one_by_one(
            (queries, rows) in (1usize..40).prop_flat_map(|words| (
                prop::collection::vec(prop::collection::vec(-127i8..=127, 4 * words), N_QUERIES),
                prop::collection::vec(prop::collection::vec(any::<i8>(), 4 * words), PANEL),
            ))
        ) {
            let expected = |q: usize, r: usize| -> i32 {
                queries[q].iter().zip(&rows[r]).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
            };
            let words = rows[0].len() / 4;
            let words_of = |row: &Vec<i8>| -> Vec<Word> {
                row.as_chunks::<4>().0.iter().map(|four| four.map(i8::cast_unsigned)).collect()
            };
            let laid: Vec<Vec<Word>> = rows.iter().map(words_of).collect();
            let laid: Vec<&[Word]> = laid.iter().map(Vec::as_slice).collect();
            let mut panel = vec![[[0; 4]; PANEL]; words];
            // In parts of any number of rows.
            for n in [PANEL, 1, 8, 21] {
                for lay in [lay, plain::lay] {
                    panel.fill([[7; 4]; PANEL]);
                    lay(&laid[..n], &mut panel);
                    for (i, line) in panel.iter().enumerate() {
                        for (r, word) in line.iter().enumerate() {
                            prop_assert_eq!(*word, if r < n { laid[r][i] } else { [7; 4] });
                        }
                    }
                }
            }
            lay(&laid, &mut panel);
            let raised: Vec<Vec<Word>> = queries.iter().map(|query| {
                query.as_chunks::<4>().0.iter().map(|four| four.map(|x| x.cast_unsigned() ^ RAISED)).collect()
            }).collect();
            check!(
                products_int8, fours(&raised, [RAISED; 4]), panel, expected;
                vnni["avx512f" "avx512vnni"], avx2["avx2"]
            );

            let floats: Vec<Vec<f32>> = queries.iter().map(|x| x.iter().map(|x| f32::from(*x)).collect()).collect();
            let panel: Vec<[f32; PANEL]> =
                (0..4 * words).map(|i| std::array::from_fn(|r| f32::from(rows[r][i]))).collect();
            check!(
                products, fours(&floats, 0.0), panel, |q, r| expected(q, r) as f32;
                avx512["avx512f"], avx2["avx2" "fma"]
            );
        }

        #[test]
        fn scores_are_scaled_and_compared(
            sums in prop::collection::vec(prop::collection::vec(-9i32..9, PANEL), 1..9), floor in -9i8..9
        ) {
            let sums: Vec<[i32; PANEL]> = sums.iter().map(|sums| sums[..].try_into().unwrap()).collect();
            let of_queries: Vec<f32> = (0..sums.len()).map(|q| q as f32 - 2.0).collect();
            let of_rows: [f32; PANEL] = std::array::from_fn(|r| r as f32 / 8.0);
            let floors = vec![f32::from(floor); sums.len()];
            macro_rules! check {
                ($module:ident) => {
                    let mut out = vec![[f32::NAN; PANEL]; sums.len()];
                    $module::scale(&sums, &of_queries, &of_rows, &mut out);
                    let mut bits = vec![7; sums.len()];
                    $module::above(&out, &floors, &mut bits);
                    for (q, sums) in sums.iter().enumerate() {
                        for (r, sum) in sums.iter().enumerate() {
                            let expected = *sum as f32 * of_queries[q] * of_rows[r];
                            prop_assert_eq!(out[q][r], expected);
                            prop_assert_eq!(bits[q] >> r & 1 == 1, expected > floors[q]);
                        }
                    }
                };
            }
            check!(super);
            check!(plain);
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the machine has these instructions.
                unsafe { check!(avx2); }
            }
        }

        #[test]
        fn distances_count_bits(
            (queries, rows) in (1usize..40).prop_flat_map(|words| (
                prop::collection::vec(prop::collection::vec(any::<u64>(), words), N_QUERIES),
                prop::collection::vec(prop::collection::vec(any::<u64>(), words), PANEL),
            )).prop_map(|(queries, mut rows)| {
                // In one row all bits differ.
                rows[3] = queries[2].iter().map(|word| !word).collect();
                (queries, rows)
            })
        ) {
            let bits = |word: u64| (0..64).filter(|bit| word >> bit & 1 == 1).count() as u32;
            let expected = |q: usize, r: usize| -> f32 {
                -(queries[q].iter().zip(&rows[r]).map(|(a, b)| bits(a ^ b)).sum::<u32>() as f32)
            };
            let panel: Vec<[u64; PANEL]> =
                (0..rows[0].len()).map(|i| std::array::from_fn(|r| rows[r][i])).collect();
            check!(
                distances, fours(&queries, 0), panel, expected;
                vpopcnt["avx512f" "avx512vpopcntdq"], avx2["avx2"]
            );
        }
    }
}
