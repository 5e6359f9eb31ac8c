//! How rows are compared: by their vectors or by shorter codes.

use crate::Metric;
use crate::codes::{encode_binary, encode_int8};
use crate::kernels::{RAISED, rows as kernels};

/// Maximum rows listed without heap allocation.
const LISTED: usize = 64;

/// Numbers of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// The upper halves of 32-bit floats.
    Bf16(&'a [u16]),
    /// 8-bit numbers and each row's scale.
    Int8 { scales: &'a [f32], codes: &'a [i8] },
    /// The signs of the features.
    Binary(&'a [u64]),
}

/// Rows of a segment in one representation. Greater scores mean nearer rows: the dot product of query and
/// row, or minus half the squared distance for Euclidean; for binary codes, minus the number of differing
/// bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space<'a> {
    pub rows: Rows<'a>,
    pub width: usize,
    /// Half of each row's squared norm; only for Euclidean distances, and not for bits.
    pub halves: Option<&'a [f32]>,
}

/// A query in the rows' representation.
#[derive(Debug, Clone)]
pub(crate) enum Query {
    Floats {
        values: Vec<f32>,
        half: f32,
    },
    /// Numbers from −127 to 127, plus [`RAISED`].
    Int8 {
        values: Vec<u8>,
        scale: f32,
        half: f32,
    },
    Binary(Vec<u64>),
}

/// Scratch memory for comparisons, reused.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    floats: Vec<f32>,
    sums: Vec<i32>,
    bits: Vec<u32>,
}

impl<'a> Space<'a> {
    /// The query of a vector. Vectors for cosines have length 1 already.
    pub fn query(&self, vector: &[f32]) -> Query {
        let half = if self.halves.is_some() { half_square(vector) } else { 0.0 };
        match self.rows {
            Rows::F32(_) | Rows::Bf16(_) => Query::Floats { values: vector.to_vec(), half },
            Rows::Int8 { .. } => {
                let mut codes = vec![0; vector.len()];
                let scale = encode_int8(vector, &mut codes);
                Query::Int8 { values: raised(&codes), scale, half }
            }
            Rows::Binary(_) => Query::Binary(encode_binary(vector)),
        }
    }

    /// The query of a row.
    pub fn query_of(&self, row: u32) -> Query {
        let half = self.half(row);
        match self.rows {
            Rows::F32(_) | Rows::Bf16(_) => {
                let mut values = vec![0.0; self.width];
                self.read(row, &mut values);
                Query::Floats { values, half }
            }
            Rows::Int8 { scales, codes } => {
                Query::Int8 { values: raised(of(codes, self.width, row)), scale: scales[row as usize], half }
            }
            Rows::Binary(codes) => Query::Binary(of(codes, self.width.div_ceil(64), row).to_vec()),
        }
    }

    /// The numbers of a row of floats.
    ///
    /// # Panics
    /// If rows are codes.
    pub fn read(&self, row: u32, to: &mut [f32]) {
        match self.rows {
            Rows::F32(values) => to.copy_from_slice(of(values, self.width, row)),
            Rows::Bf16(values) => widen(of(values, self.width, row), to),
            Rows::Int8 { .. } | Rows::Binary(_) => panic!("codes are no vectors"),
        }
    }

    /// Prefetches a row, so that a graph step waits for all its rows at once instead of one by one.
    #[inline]
    pub fn fetch(&self, row: u32) {
        match self.rows {
            Rows::F32(values) => kernels::fetch(of(values, self.width, row)),
            Rows::Bf16(values) => kernels::fetch(of(values, self.width, row)),
            Rows::Int8 { codes, .. } => kernels::fetch(of(codes, self.width, row)),
            Rows::Binary(codes) => kernels::fetch(of(codes, self.width.div_ceil(64), row)),
        }
    }

    /// Half of a row's squared norm if scores include it, else 0.
    pub fn half(&self, row: u32) -> f32 {
        self.halves.map_or(0.0, |halves| halves[row as usize])
    }

    /// `out[r]`, the score of the query and each row.
    pub fn scores(&self, query: &Query, rows: &[u32], scratch: &mut Scratch, out: &mut [f32]) {
        match self.rows {
            Rows::F32(all) => {
                let rows: Listed<&[f32]> = Listed::new(rows, |row| of(all, self.width, row));
                kernels::products(query.floats(), rows.as_slice(), out);
            }
            Rows::Bf16(all) => {
                scratch.floats.resize(rows.len() * self.width, 0.0);
                for (row, to) in rows.iter().zip(scratch.floats.chunks_exact_mut(self.width)) {
                    widen(of(all, self.width, *row), to);
                }
                let wide: Vec<&[f32]> = scratch.floats.chunks_exact(self.width).collect();
                kernels::products(query.floats(), &wide, out);
            }
            Rows::Int8 { scales, codes } => {
                let (values, scale) = query.codes();
                let listed = Listed::new(rows, |row| of(codes, self.width, row));
                scratch.sums.resize(rows.len(), 0);
                kernels::products_int8(values, listed.as_slice(), &mut scratch.sums);
                for ((sum, row), out) in scratch.sums.iter().zip(rows).zip(&mut *out) {
                    *out = *sum as f32 * (scale * scales[*row as usize]);
                }
            }
            Rows::Binary(codes) => {
                let listed = Listed::new(rows, |row| of(codes, self.width.div_ceil(64), row));
                scratch.bits.resize(rows.len(), 0);
                kernels::distances(query.signs(), listed.as_slice(), &mut scratch.bits);
                scratch.bits.iter().zip(&mut *out).for_each(|(bits, out)| *out = -(*bits as f32));
            }
        }
        if let Some(halves) = self.halves {
            let half = query.half();
            rows.iter().zip(out).for_each(|(row, out)| *out -= half + halves[*row as usize]);
        }
    }
}

/// Rows as slices, without heap allocation if they are few.
enum Listed<T> {
    Few([T; LISTED], usize),
    Many(Vec<T>),
}

impl<T: Copy + Default> Listed<T> {
    fn new(rows: &[u32], row: impl Fn(u32) -> T) -> Self {
        if rows.len() > LISTED {
            return Self::Many(rows.iter().map(|i| row(*i)).collect());
        }
        let mut few = [T::default(); LISTED];
        few.iter_mut().zip(rows).for_each(|(to, i)| *to = row(*i));
        Self::Few(few, rows.len())
    }

    fn as_slice(&self) -> &[T] {
        match self {
            Self::Few(few, n) => &few[..*n],
            Self::Many(many) => many,
        }
    }
}

impl Query {
    /// The features.
    ///
    /// # Panics
    /// If the query is in codes; the next two methods likewise panic on other representations.
    pub fn floats(&self) -> &[f32] {
        match self {
            Self::Floats { values, .. } => values,
            _ => unreachable!("a query of floats"),
        }
    }

    /// The 8-bit numbers plus [`RAISED`], and their scale.
    pub fn codes(&self) -> (&[u8], f32) {
        match self {
            Self::Int8 { values, scale, .. } => (values, *scale),
            _ => unreachable!("a query in 8 bits"),
        }
    }

    /// The signs.
    pub fn signs(&self) -> &[u64] {
        match self {
            Self::Binary(words) => words,
            _ => unreachable!("a query of signs"),
        }
    }

    /// Half its squared norm.
    pub fn half(&self) -> f32 {
        match self {
            Self::Floats { half, .. } | Self::Int8 { half, .. } => *half,
            Self::Binary(_) => 0.0,
        }
    }
}

fn raised(codes: &[i8]) -> Vec<u8> {
    codes.iter().map(|code| code.cast_unsigned() ^ RAISED).collect()
}

/// The row's part of `values`, which has `width` values per row.
#[inline]
pub(crate) fn of<T>(values: &[T], width: usize, row: u32) -> &[T] {
    &values[row as usize * width..][..width]
}

/// The floats with these upper halves.
pub(crate) fn widen(from: &[u16], to: &mut [f32]) {
    for (from, to) in from.iter().zip(to) {
        *to = f32::from_bits(u32::from(*from) << 16);
    }
}

/// Half of a vector's squared norm.
pub(crate) fn half_square(vector: &[f32]) -> f32 {
    (vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / 2.0) as f32
}

/// A row's reported score: cosine, dot product or distance, summed in 64 bits in an order that depends only
/// on the width.
pub(crate) fn exact(metric: Metric, query: &[f32], row: &[f32]) -> f64 {
    let term = |a: f32, b: f32| match metric {
        Metric::Cosine | Metric::Dot => f64::from(a) * f64::from(b),
        Metric::Euclidean => (f64::from(a) - f64::from(b)).powi(2),
    };
    let (a, b) = (query.as_chunks::<8>(), row.as_chunks::<8>());
    let mut lanes = [0f64; 8];
    for (a, b) in a.0.iter().zip(b.0) {
        for lane in 0..8 {
            lanes[lane] += term(a[lane], b[lane]);
        }
    }
    let rest: f64 = a.1.iter().zip(b.1).map(|(a, b)| term(*a, *b)).sum();
    let sum = lanes.iter().sum::<f64>() + rest;
    if metric == Metric::Euclidean { sum.sqrt() } else { sum }
}
