use crate::IntegerMatrix;
#[cfg(feature = "flex")]
use crate::flex;
use std::sync::Arc;

/// `x·W + b` of 8-bit integers in 32 bits (I-BERT, §3.2), with a scale for each output.
#[derive(Debug, Clone)]
pub struct IntegerLinear {
    dims: [usize; 2],
    bias: Vec<i32>,
    form: Arc<Form>,
}

#[derive(Debug)]
enum Form {
    #[cfg(feature = "flex")]
    Packed(flex::integer::PackedWeight),
    #[cfg_attr(feature = "flex", allow(dead_code))]
    Rows(Vec<i8>),
}

/// The greatest magnitude of a bias: a sum of 65,536 products fits beside it.
const GREATEST_BIAS: i64 = 1 << 30;

impl IntegerLinear {
    /// The map whose rows of outputs are those of `matrix`, `[d_out, d_in]`; its scales are not used. Biases are in units of
    /// the sums, and cut at `±2^30`.
    ///
    /// # Errors
    /// One line, if there is not a bias for each output, or `d_in` is more than 65,536, since sums could overflow.
    pub fn new(matrix: &IntegerMatrix, bias: &[i64]) -> Result<Self, String> {
        let [d_out, d_in] = matrix.dims();
        if bias.len() != d_out {
            return Err(format!("{} biases, expected {d_out}", bias.len()));
        }
        if d_in > 65_536 {
            return Err(format!("sums of {d_in} products, expected at most 65,536"));
        }
        let bias = bias.iter().map(|bias| (*bias).clamp(-GREATEST_BIAS, GREATEST_BIAS) as i32).collect();
        #[cfg(feature = "flex")]
        let form = Form::Packed(flex::integer::PackedWeight::new(matrix, &[]));
        #[cfg(not(feature = "flex"))]
        let form = Form::Rows((0..d_out).flat_map(|row| matrix.row(row)).collect());
        Ok(Self { dims: [d_in, d_out], bias, form: Arc::new(form) })
    }

    /// `[d_in, d_out]`
    pub fn dims(&self) -> [usize; 2] {
        self.dims
    }

    /// The exact sums.
    ///
    /// # Shapes
    /// - `x`: `[n, d_in]`; returns `[n, d_out]`
    pub fn forward(&self, x: &[i8]) -> Vec<i32> {
        let [d_in, d_out] = self.dims;
        match &*self.form {
            #[cfg(feature = "flex")]
            Form::Packed(weight) => flex::integer::sums(x, d_in, weight, &self.bias),
            Form::Rows(rows) => {
                let mut sums = Vec::with_capacity(x.len() / d_in.max(1) * d_out);
                for x in x.chunks_exact(d_in.max(1)) {
                    let row = rows.chunks_exact(d_in.max(1)).zip(&self.bias);
                    sums.extend(row.map(|(w, bias)| {
                        bias + x.iter().zip(w).map(|(x, w)| i32::from(*x) * i32::from(*w)).sum::<i32>()
                    }));
                }
                sums
            }
        }
    }
}

/// The scores `q·kᵀ` of a head's queries for one token against its keys.
///
/// # Shapes
/// - `query`: `[d_k]`; `keys`: `[n, d_k]`; `scores`: `[n]`
pub fn integer_scores(query: &[i16], keys: &[i16], scores: &mut [i32]) {
    #[cfg(feature = "flex")]
    flex::integer::scores(query, keys, scores);
    #[cfg(not(feature = "flex"))]
    for (key, score) in keys.chunks_exact(query.len()).zip(scores) {
        *score = query.iter().zip(key).map(|(q, k)| i32::from(*q) * i32::from(*k)).sum();
    }
}

/// The sums of values by probabilities for one token.
///
/// # Shapes
/// - `probabilities`: `[n]`; `values`: `[d_v, n]`, transposed; `context`: `[d_v]`
pub fn integer_context(probabilities: &[i16], values: &[i16], context: &mut [i32]) {
    integer_scores(probabilities, values, context);
}
