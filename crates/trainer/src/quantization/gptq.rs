//! GPTQ (Frantar et al. 2023): each row of a weight is rounded number by number, and those to come make up for the error.
//!
//! With `H = Σ x·xᵀ` over inputs and `U` the upper Cholesky factor of its inverse, `H⁻¹ = Uᵀ·U`, the error of the number `j`,
//! `e = (w_j − ŵ_j) / U_jj`, is taken off the later ones: `w_k −= e · U_jk` (equation 2 and step 3 of the paper). The grid is
//! the one of the file: the scale of a block is chosen when its first number is reached, from the block as it is by then.

use super::WeightFormat;
use cloze_gguf::q4_0;
use cloze_model::ops::{BLOCK, Bits, IntegerMatrix, Scales};
use rayon::prelude::*;

/// The share of the mean of H's diagonal that is added to it (the paper's 1 %).
const DAMPING: f64 = 0.01;

/// Rounds the rows of `numbers`, `[d_out, d_in]`, for inputs whose sums of products are `products`, `[d_in, d_in]`.
///
/// # Errors
/// One line, for numbers that are not finite.
pub fn round(
    numbers: &[f32],
    [d_out, d_in]: [usize; 2],
    products: Vec<f64>,
    format: WeightFormat,
) -> Result<IntegerMatrix, String> {
    let Some(factor) = factor(products, d_in) else {
        return Err("the sums of its inputs' products are not positive definite".into());
    };
    if let Some(place) = numbers.iter().position(|x| !x.is_finite()) {
        return Err(format!("number {place} is {}", numbers[place]));
    }
    let rows = numbers.par_chunks_exact(d_in.max(1)).map(|row| round_row(row, &factor, format));
    let rows: Vec<(Vec<i8>, Vec<f32>)> = rows.collect();
    let scales = rows.iter().flat_map(|(_, scales)| scales.iter().copied()).collect();
    let integers = rows.iter().flat_map(|(integers, _)| integers.iter().copied());
    let (bits, values): (_, Vec<u8>) = match format {
        WeightFormat::Int8 | WeightFormat::Q8_0 => (Bits::Eight, integers.map(i8::cast_unsigned).collect()),
        WeightFormat::Q4_0 => {
            let halves: Vec<u8> = integers.map(|q| (q + 8).cast_unsigned()).collect();
            (Bits::Four, halves.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4).collect())
        }
    };
    let scales = if format == WeightFormat::Int8 { Scales::Rows(scales) } else { Scales::Blocks(scales) };
    IntegerMatrix::new([d_out, d_in], bits, values.into(), scales)
}

/// The integers of a row and its scales.
fn round_row(row: &[f32], factor: &[f64], format: WeightFormat) -> (Vec<i8>, Vec<f32>) {
    let d = row.len();
    let mut w: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
    let greatest = |w: &[f64]| w.iter().fold(0.0, |greatest: f64, x| greatest.max(x.abs())) as f32;
    let half = |scale: f32| burn::tensor::f16::from_f32(scale).to_f32();
    let (mut integers, mut scales) = (Vec::with_capacity(d), Vec::new());
    let mut scale = greatest(&w) / 127.0;
    if format == WeightFormat::Int8 {
        scales.push(scale);
    }
    for j in 0..d {
        if format != WeightFormat::Int8 && j % BLOCK == 0 {
            scale = half(match format {
                WeightFormat::Q4_0 => q4_0::scale(&std::array::from_fn(|i| w[j + i] as f32)),
                _ => greatest(&w[j..j + BLOCK]) / 127.0,
            });
            scales.push(scale);
        }
        let q = match format {
            WeightFormat::Q4_0 => q4_0::integer(w[j] as f32, scale).cast_signed() - q4_0::ZERO.cast_signed(),
            _ if scale == 0.0 => 0,
            _ => (w[j] / f64::from(scale)).round().clamp(-127.0, 127.0) as i8,
        };
        integers.push(q);
        let row = &factor[j * d..][..d];
        let error = (w[j] - f64::from(q) * f64::from(scale)) / row[j];
        w[j + 1..].iter_mut().zip(&row[j + 1..]).for_each(|(w, u)| *w -= error * u);
    }
    (integers, scales)
}

/// The upper triangular `U` with `H⁻¹ = Uᵀ·U`, after damping. A feature that is always 0 has no part in it.
fn factor(mut h: Vec<f64>, d: usize) -> Option<Vec<f64>> {
    let mean = (0..d).map(|i| h[i * d + i]).sum::<f64>() / d.max(1) as f64;
    let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
    (0..d).for_each(|i| h[i * d + i] += damping);
    // With the order of features turned round, H = L·Lᵀ gives H⁻¹ = L⁻ᵀ·L⁻¹; turned back, L⁻¹ is upper triangular.
    h.reverse();
    let mut columns = inverse_of_lower(&cholesky(h, d)?, d);
    columns.reverse();
    for i in 0..d {
        for j in 0..i {
            columns.swap(i * d + j, j * d + i);
        }
    }
    Some(columns)
}

/// The lower triangular `L` with `H = L·Lᵀ`; none unless `H` is positive definite.
fn cholesky(mut h: Vec<f64>, d: usize) -> Option<Vec<f64>> {
    for j in 0..d {
        let (above, below) = h.split_at_mut((j + 1) * d);
        let row = &mut above[j * d..][..=j];
        let sum: f64 = row[..j].iter().map(|x| x * x).sum();
        let pivot = row[j] - sum;
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        row[j] = pivot.sqrt();
        let row = &*row;
        below.par_chunks_exact_mut(d).for_each(|other| {
            let product: f64 = other[..j].iter().zip(&row[..j]).map(|(a, b)| a * b).sum();
            other[j] = (other[j] - product) / row[j];
        });
    }
    (0..d).for_each(|i| h[i * d + i + 1..(i + 1) * d].fill(0.0));
    Some(h)
}

/// The inverse of a lower triangular matrix, column by column.
fn inverse_of_lower(l: &[f64], d: usize) -> Vec<f64> {
    let mut columns = vec![0.0; d * d];
    columns.par_chunks_exact_mut(d.max(1)).enumerate().for_each(|(j, column)| {
        column[j] = 1.0 / l[j * d + j];
        for i in j + 1..d {
            let row = &l[i * d..][..d];
            let sum: f64 = row[j..i].iter().zip(&column[j..i]).map(|(a, b)| a * b).sum();
            column[i] = -sum / row[i];
        }
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32 - 0.5
        };
        (0..n).map(|_| next() + next() + next()).collect()
    }

    /// Inputs whose features depend on each other, and their sums of products.
    fn inputs(n: usize, d: usize) -> (Vec<f32>, Vec<f64>) {
        let (causes, mixing) = (numbers(n * 8, 3), numbers(8 * d, 5));
        let noise = numbers(n * d, 7);
        let x: Vec<f32> = (0..n * d)
            .map(|place| {
                let (i, j) = (place / d, place % d);
                (0..8).map(|c| causes[i * 8 + c] * mixing[c * d + j]).sum::<f32>() + 0.1 * noise[place]
            })
            .collect();
        let mut products = vec![0.0; d * d];
        for row in x.chunks_exact(d) {
            for (i, a) in row.iter().enumerate() {
                row.iter().enumerate().for_each(|(j, b)| products[i * d + j] += f64::from(a * b));
            }
        }
        (x, products)
    }

    #[test]
    fn the_factor_is_of_the_inverse() {
        let d = 24;
        let (_, products) = inputs(200, d);
        let u = factor(products.clone(), d).unwrap();
        let mean = (0..d).map(|i| products[i * d + i]).sum::<f64>() / d as f64;
        for i in 0..d {
            assert!(u[i * d..][..i].iter().all(|x| *x == 0.0), "upper triangular");
            for j in 0..d {
                // Uᵀ·U·H = 1
                let product: f64 = (0..d)
                    .map(|k| {
                        let inverse: f64 = (0..d).map(|m| u[m * d + i] * u[m * d + k]).sum();
                        inverse * (products[k * d + j] + if k == j { DAMPING * mean } else { 0.0 })
                    })
                    .sum();
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn outputs_are_nearer_than_with_the_nearest_numbers() {
        let (d_out, d_in) = (20, 96);
        let (weight, (x, products)) = (numbers(d_out * d_in, 11), inputs(400, d_in));
        for (format, factor) in
            [(WeightFormat::Q4_0, 0.6), (WeightFormat::Q8_0, 0.8), (WeightFormat::Int8, 0.8)]
        {
            let nearest = format.round(&weight, [d_out, d_in]).unwrap();
            let best = round(&weight, [d_out, d_in], products.clone(), format).unwrap();
            assert_eq!((best.dims(), best.bits()), (nearest.dims(), nearest.bits()));
            let error = |matrix: &IntegerMatrix| -> f64 {
                let back = matrix.dequantized();
                let outputs = x.chunks_exact(d_in).flat_map(|x| {
                    let (weight, back) = (weight.chunks_exact(d_in), back.chunks_exact(d_in));
                    weight.zip(back).map(move |(w, b)| {
                        w.iter().zip(b).zip(x).map(|((w, b), x)| f64::from((w - b) * x)).sum::<f64>().powi(2)
                    })
                });
                outputs.sum()
            };
            assert!(
                error(&best) < factor * error(&nearest),
                "{format:?}: {} {}",
                error(&best),
                error(&nearest)
            );
        }
    }

    #[test]
    fn features_that_are_always_zero_are_rounded_to_the_nearest() {
        let (d_out, d_in) = (3, 32);
        let weight = numbers(d_out * d_in, 11);
        let best = round(&weight, [d_out, d_in], vec![0.0; d_in * d_in], WeightFormat::Q4_0).unwrap();
        assert_eq!(best, WeightFormat::Q4_0.round(&weight, [d_out, d_in]).unwrap());
        let lost = round(&[f32::NAN; 32], [1, 32], vec![0.0; 32 * 32], WeightFormat::Q4_0);
        assert_eq!(lost.unwrap_err(), "number 0 is NaN");
    }
}
