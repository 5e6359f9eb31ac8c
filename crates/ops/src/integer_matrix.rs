//! Matrices of 8-bit and 4-bit integers with scales, as files store them.

use bytes::Bytes;
use cloze_gguf::{q4_0, q8_0};

/// Numbers that share a scale in a matrix of [blocks](Scales::Blocks), as in GGUF.
pub const BLOCK: usize = q4_0::BLOCK;
const _: () = assert!(BLOCK == q8_0::BLOCK);

/// A matrix of integers with scales, in the layout of files: `[rows, columns]`, where a row is an output of a linear map
/// or an embedding.
///
/// A number is `scale · q`. The integers may lie in a mapped file: they are not copied.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerMatrix {
    dims: [usize; 2],
    bits: Bits,
    values: Bytes,
    scales: Scales,
}

/// The width of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Two's complement, one in a byte.
    Eight,
    /// From −8 to 7, stored as `q + 8`, two in a byte: the first in the low half.
    Four,
}

/// Which numbers share a scale.
#[derive(Debug, Clone, PartialEq)]
pub enum Scales {
    /// The numbers of a row: `[rows]`.
    Rows(Vec<f32>),
    /// [`BLOCK`] adjacent numbers of a row: `[rows, columns / BLOCK]`. Those of GGUF's Q8_0 and Q4_0 are numbers of FP16.
    Blocks(Vec<f32>),
}

impl IntegerMatrix {
    /// A matrix of these integers.
    ///
    /// # Errors
    /// One line, if the lengths do not fit `dims`, or a scale is not finite.
    pub fn new(dims: [usize; 2], bits: Bits, values: Bytes, scales: Scales) -> Result<Self, String> {
        let [rows, columns] = dims;
        let n_bytes = match bits {
            Bits::Eight => rows * columns,
            Bits::Four if columns.is_multiple_of(2) => rows * columns / 2,
            Bits::Four => return Err(format!("rows of {columns} numbers do not fill bytes of two")),
        };
        if values.len() != n_bytes {
            return Err(format!("{} bytes of integers, expected {n_bytes}", values.len()));
        }
        let (n_scales, expected, finite) = match &scales {
            Scales::Rows(scales) => (scales.len(), rows, scales.iter().all(|scale| scale.is_finite())),
            Scales::Blocks(_) if !columns.is_multiple_of(BLOCK) => {
                return Err(format!("rows of {columns} numbers are no whole blocks of {BLOCK}"));
            }
            Scales::Blocks(scales) => {
                (scales.len(), rows * columns / BLOCK, scales.iter().all(|scale| scale.is_finite()))
            }
        };
        if n_scales != expected {
            return Err(format!("{n_scales} scales, expected {expected}"));
        }
        if !finite {
            return Err("a scale is not finite".into());
        }
        Ok(Self { dims, bits, values, scales })
    }

    /// Rounds the rows to 8 bits with a scale for each: the greatest magnitude becomes `greatest`, and a row of zeros has
    /// scale 0.
    ///
    /// # Errors
    /// One line, if `numbers` has another length than `dims`, or a number is not finite.
    pub fn int8(numbers: &[f32], dims: [usize; 2], greatest: i8) -> Result<Self, String> {
        check(numbers)?;
        let scale = |row: &[f32]| magnitude(row) / f32::from(greatest);
        let scales: Vec<f32> = numbers.chunks_exact(dims[1].max(1)).map(scale).collect();
        let rows = numbers.chunks_exact(dims[1].max(1)).zip(&scales);
        let values =
            rows.flat_map(|(row, scale)| row.iter().map(|x| rounded(*x, *scale, greatest).cast_unsigned()));
        Self::new(dims, Bits::Eight, values.collect::<Vec<u8>>().into(), Scales::Rows(scales))
    }

    /// Rounds [blocks](BLOCK) to 8 bits, with the numbers of GGUF's Q8_0: the scale is the greatest magnitude divided by
    /// 127, and halves are rounded away from zero.
    ///
    /// # Errors
    /// As [`int8`](Self::int8); if the columns are no whole blocks, and if a scale is too large for FP16.
    pub fn q8_0(numbers: &[f32], dims: [usize; 2]) -> Result<Self, String> {
        check(numbers)?;
        let (mut values, mut scales) = (Vec::with_capacity(numbers.len()), Vec::new());
        for block in numbers.as_chunks::<BLOCK>().0 {
            let (scale, integers) = q8_0::quantize(block);
            scales.push(scale.to_f32());
            values.extend(integers.map(i8::cast_unsigned));
        }
        Self::new(dims, Bits::Eight, values.into(), Scales::Blocks(scales))
    }

    /// Rounds [blocks](BLOCK) to 4 bits, with the numbers of GGUF's Q4_0: the number of greatest magnitude becomes −8.
    ///
    /// # Errors
    /// As [`q8_0`](Self::q8_0).
    pub fn q4_0(numbers: &[f32], dims: [usize; 2]) -> Result<Self, String> {
        check(numbers)?;
        let (mut values, mut scales) = (Vec::with_capacity(numbers.len() / 2), Vec::new());
        for block in numbers.as_chunks::<BLOCK>().0 {
            let (scale, integers) = q4_0::quantize(block);
            scales.push(scale.to_f32());
            values.extend(integers.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4));
        }
        Self::new(dims, Bits::Four, values.into(), Scales::Blocks(scales))
    }

    /// `[rows, columns]`
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// The integers' width.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// The integers, row by row.
    pub fn values(&self) -> &Bytes {
        &self.values
    }

    /// The scales.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }

    /// Bytes of integers and scales in memory.
    pub fn n_bytes(&self) -> usize {
        self.values.len()
            + match &self.scales {
                Scales::Rows(scales) | Scales::Blocks(scales) => 4 * scales.len(),
            }
    }

    /// The integers of a row.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = i8> {
        let n_bytes = self.values.len() / self.dims[0];
        let bytes = &self.values[row * n_bytes..][..n_bytes];
        let of_eight = matches!(self.bits, Bits::Eight).then(|| bytes.iter().map(|byte| byte.cast_signed()));
        let of_four = matches!(self.bits, Bits::Four)
            .then(|| bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).map(|half| half.cast_signed() - 8));
        of_eight.into_iter().flatten().chain(of_four.into_iter().flatten())
    }

    /// Writes the numbers of a row.
    ///
    /// # Panics
    /// If there is no such row, or `to` has another length.
    pub fn dequantize_row(&self, row: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.dims[1], "a row");
        let n_bytes = self.values.len() / self.dims[0];
        let bytes = &self.values[row * n_bytes..][..n_bytes];
        let per_scale = if matches!(self.scales, Scales::Rows(_)) { self.dims[1].max(1) } else { BLOCK };
        let n_blocks = self.dims[1] / BLOCK;
        for (block, to) in to.chunks_mut(per_scale).enumerate() {
            let scale = match &self.scales {
                Scales::Rows(scales) => scales[row],
                Scales::Blocks(scales) => scales[row * n_blocks + block],
            };
            let from = block * per_scale;
            match self.bits {
                Bits::Eight => {
                    for (to, q) in to.iter_mut().zip(&bytes[from..]) {
                        *to = f32::from(q.cast_signed()) * scale;
                    }
                }
                Bits::Four => {
                    for (to, pair) in to.as_chunks_mut::<2>().0.iter_mut().zip(&bytes[from / 2..]) {
                        *to = [pair & 15, pair >> 4].map(|half| f32::from(half.cast_signed() - 8) * scale);
                    }
                }
            }
        }
    }

    /// All numbers, row by row.
    pub fn dequantized(&self) -> Vec<f32> {
        let mut numbers = vec![0.0; self.dims[0] * self.dims[1]];
        for (row, to) in numbers.chunks_exact_mut(self.dims[1].max(1)).enumerate() {
            self.dequantize_row(row, to);
        }
        numbers
    }

    /// The greatest magnitude of an integer.
    #[cfg(any(test, feature = "flex"))]
    pub(crate) fn greatest(&self) -> u8 {
        match self.bits {
            Bits::Four => 8,
            Bits::Eight => {
                self.values.iter().map(|byte| byte.cast_signed().unsigned_abs()).max().unwrap_or(0)
            }
        }
    }

    /// Some of the rows, in their order.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Self {
        let n_bytes = self.values.len() / self.dims[0].max(1);
        let scales = match &self.scales {
            Scales::Rows(scales) => Scales::Rows(scales[rows.clone()].to_vec()),
            Scales::Blocks(scales) => {
                let n_blocks = self.dims[1] / BLOCK;
                Scales::Blocks(scales[rows.start * n_blocks..rows.end * n_blocks].to_vec())
            }
        };
        let values = self.values.slice(rows.start * n_bytes..rows.end * n_bytes);
        Self { dims: [rows.len(), self.dims[1]], bits: self.bits, values, scales }
    }

    /// The rows of matrices, one after another; none if their widths, bits or kinds of scales differ.
    pub fn concatenated(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let mut all = Self { dims: [0, first.dims[1]], ..first.clone() };
        let mut values = Vec::with_capacity(parts.iter().map(|part| part.values.len()).sum());
        let mut scales = match &first.scales {
            Scales::Rows(_) => Scales::Rows(Vec::new()),
            Scales::Blocks(_) => Scales::Blocks(Vec::new()),
        };
        for part in parts {
            if (part.dims[1], part.bits) != (first.dims[1], first.bits) {
                return None;
            }
            match (&mut scales, &part.scales) {
                (Scales::Rows(all), Scales::Rows(part)) => all.extend(part),
                (Scales::Blocks(all), Scales::Blocks(part)) => all.extend(part),
                _ => return None,
            }
            all.dims[0] += part.dims[0];
            values.extend_from_slice(&part.values);
        }
        Some(Self { values: values.into(), scales, ..all })
    }
}

fn check(numbers: &[f32]) -> Result<(), String> {
    match numbers.iter().position(|x| !x.is_finite()) {
        Some(place) => Err(format!("number {place} is {}", numbers[place])),
        None => Ok(()),
    }
}

fn magnitude(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |greatest, x| greatest.max(x.abs()))
}

fn rounded(x: f32, scale: f32, greatest: i8) -> i8 {
    if scale == 0.0 { 0 } else { ((x / scale).round_ties_even() as i8).clamp(-greatest, greatest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.37).sin() * (1.0 + (i % 7) as f32)).collect()
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_step() {
        let dims = [5, 96];
        let numbers = numbers(5 * 96);
        for (matrix, steps) in [
            (IntegerMatrix::int8(&numbers, dims, 127).unwrap(), 127.0),
            (IntegerMatrix::int8(&numbers, dims, 64).unwrap(), 64.0),
            (IntegerMatrix::q8_0(&numbers, dims).unwrap(), 127.0),
            (IntegerMatrix::q4_0(&numbers, dims).unwrap(), 8.0),
        ] {
            assert_eq!(matrix.dims(), dims);
            let back = matrix.dequantized();
            for (x, back) in numbers.iter().zip(&back) {
                // Half a step of a row's greatest number; a positive one of 4 bits stops at 7 of its 8 steps.
                let step = 7.0 / steps;
                assert!((x - back).abs() <= step * if steps == 8.0 { 1.01 } else { 0.55 }, "{x} {back}");
            }
            for row in 0..dims[0] {
                let integers: Vec<i8> = matrix.row(row).collect();
                assert_eq!(integers.len(), dims[1]);
                assert!(integers.iter().all(|q| q.unsigned_abs() <= matrix.greatest()));
            }
            let parts = [matrix.rows(0..2), matrix.rows(2..2), matrix.rows(2..5)];
            assert_eq!(IntegerMatrix::concatenated(&parts), Some(matrix));
        }
    }

    #[test]
    fn blocks_of_4_bits_have_the_numbers_of_gguf() {
        // `gguf.quants.quantize` of PyPI's gguf: −8 is the number of greatest magnitude, whatever its sign.
        let mut block = [0.0; 32];
        block[..6].copy_from_slice(&[1.0, -4.0, 3.9, 0.26, -0.25, 0.24]);
        let matrix = IntegerMatrix::q4_0(&block, [1, 32]).unwrap();
        assert_eq!(*matrix.scales(), Scales::Blocks(vec![0.5]));
        assert_eq!(matrix.row(0).take(6).collect::<Vec<_>>(), [2, -8, 7, 1, 0, 0]);
        block[2] = 4.5;
        let matrix = IntegerMatrix::q4_0(&block, [1, 32]).unwrap();
        assert_eq!(*matrix.scales(), Scales::Blocks(vec![-0.5625]));
        assert_eq!(matrix.row(0).take(3).collect::<Vec<_>>(), [-2, 7, -8]);
        assert_eq!(IntegerMatrix::q4_0(&[0.0; 32], [1, 32]).unwrap().dequantized(), [0.0; 32]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let new =
            |dims, bits, n, scales| IntegerMatrix::new(dims, bits, vec![0u8; n].into(), scales).unwrap_err();
        let rows = |n| Scales::Rows(vec![1.0; n]);
        assert_eq!(IntegerMatrix::int8(&[1.0, f32::NAN], [1, 2], 127).unwrap_err(), "number 1 is NaN");
        assert_eq!(IntegerMatrix::q4_0(&[1e9; 32], [1, 32]).unwrap_err(), "a scale is not finite");
        assert_eq!(new([2, 3], Bits::Four, 3, rows(2)), "rows of 3 numbers do not fill bytes of two");
        assert_eq!(new([2, 4], Bits::Eight, 7, rows(2)), "7 bytes of integers, expected 8");
        assert_eq!(new([2, 4], Bits::Eight, 8, rows(3)), "3 scales, expected 2");
        let blocks = Scales::Blocks(vec![1.0]);
        assert_eq!(new([1, 16], Bits::Eight, 16, blocks), "rows of 16 numbers are no whole blocks of 32");
        assert_eq!(new([1, 2], Bits::Eight, 2, Scales::Rows(vec![f32::NAN])), "a scale is not finite");
    }
}
