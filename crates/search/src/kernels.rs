//! Products of queries and rows, compiled for several instruction sets and chosen when the program runs.
//!
//! All of it is safe code that the compiler makes vector code of; `unsafe` is the call of what is compiled for
//! instructions that the machine was found to have. With the plain instruction set the same work takes four times as
//! long.

/// Defines a function whose body is compiled for AVX-512, AVX2 and the plain instruction set, and which calls the best
/// one that the machine has. (NEON is part of AArch64's plain set.) A body may use `LANES`, as many 32-bit numbers as
/// a register holds, and `ROWS`, the rows of a tile.
macro_rules! vectorised {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident : $type:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,popcnt")]
                fn avx512($($arg: $type),*) { $body::<16, 4>($($arg),*) }

                #[target_feature(enable = "avx2,fma,popcnt")]
                fn avx2($($arg: $type),*) { $body::<8, 3>($($arg),*) }

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
                        return unsafe { avx512($($arg),*) };
                    }
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $body::<4, 3>($($arg),*)
        }
    )*};
}

vectorised! {
    /// `out[q·rows + r] = queries[q] · rows[r]`, of vectors of one length.
    fn products(queries: &[&[f32]], rows: &[&[f32]], out: &mut [f32]) = products_of;

    /// `out[r] = query · rows[r]`, of 8-bit numbers; exact.
    fn products_int8(query: &[i16], rows: &[&[i8]], out: &mut [i32]) = products_int8_of;

    /// `out[r]` = the bits in which `query` and `rows[r]` differ.
    fn distances(query: &[u64], rows: &[&[u64]], out: &mut [u32]) = distances_of;
}

#[inline(always)]
fn products_of<const LANES: usize, const ROWS: usize>(queries: &[&[f32]], rows: &[&[f32]], out: &mut [f32]) {
    let mut place = 0;
    // Four queries by a few rows: as many sums as registers, and two loads for three products.
    let (fours, rest) = queries.as_chunks::<4>();
    for four in fours {
        tiles::<LANES, 4, ROWS>(four, rows, &mut out[place * rows.len()..]);
        place += 4;
    }
    for query in rest {
        tiles::<LANES, 1, 4>(&[query], rows, &mut out[place * rows.len()..]);
        place += 1;
    }
}

/// So many queries by all rows.
#[inline(always)]
fn tiles<const LANES: usize, const Q: usize, const R: usize>(
    queries: &[&[f32]; Q],
    rows: &[&[f32]],
    out: &mut [f32],
) {
    let (whole, rest) = rows.as_chunks::<R>();
    for (place, tile_rows) in whole.iter().enumerate() {
        let sums = tile::<LANES, Q, R>(queries, tile_rows);
        for (q, sums) in sums.iter().enumerate() {
            out[q * rows.len() + place * R..][..R].copy_from_slice(sums);
        }
    }
    for (place, row) in (whole.len() * R..).zip(rest) {
        let sums = tile::<LANES, Q, 1>(queries, &[row]);
        for (q, [sum]) in sums.into_iter().enumerate() {
            out[q * rows.len() + place] = sum;
        }
    }
}

#[inline(always)]
fn tile<const LANES: usize, const Q: usize, const R: usize>(
    queries: &[&[f32]; Q],
    rows: &[&[f32]; R],
) -> [[f32; R]; Q] {
    let n = queries[0].len() / LANES;
    let queries = queries.map(|query| query.as_chunks::<LANES>());
    let rows = rows.map(|row| row.as_chunks::<LANES>());
    let (whole_queries, whole_rows) = (queries.map(|query| &query.0[..n]), rows.map(|row| &row.0[..n]));
    let mut sums = [[[0f32; LANES]; R]; Q];
    for i in 0..n {
        for q in 0..Q {
            let query = &whole_queries[q][i];
            for r in 0..R {
                let row = &whole_rows[r][i];
                for lane in 0..LANES {
                    sums[q][r][lane] = query[lane].mul_add(row[lane], sums[q][r][lane]);
                }
            }
        }
    }
    let mut out = [[0f32; R]; Q];
    for q in 0..Q {
        for r in 0..R {
            let mut lanes = sums[q][r];
            let mut half = LANES / 2;
            while half > 0 {
                for lane in 0..half {
                    lanes[lane] += lanes[lane + half];
                }
                half /= 2;
            }
            let rest = queries[q].1.iter().zip(rows[r].1);
            out[q][r] = rest.fold(lanes[0], |sum, (a, b)| a.mul_add(*b, sum));
        }
    }
    out
}

#[inline(always)]
fn products_int8_of<const LANES: usize, const ROWS: usize>(query: &[i16], rows: &[&[i8]], out: &mut [i32]) {
    for (row, out) in rows.iter().zip(out) {
        let row = &row[..query.len()];
        *out = query.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    }
}

#[inline(always)]
fn distances_of<const LANES: usize, const ROWS: usize>(query: &[u64], rows: &[&[u64]], out: &mut [u32]) {
    for (row, out) in rows.iter().zip(out) {
        *out = query.iter().zip(*row).map(|(a, b)| (a ^ b).count_ones()).sum();
    }
}

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
                let mut exact = vec![0; rows.len()];
                products_int8(&wide, &bytes, &mut exact);
                for (j, row) in rows.iter().enumerate() {
                    prop_assert_eq!(exact[j], naive(query, row));
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
