//! What an encoder of integers is made of, before it is prepared for its arithmetic.

use crate::ops::IntegerMatrix;
use crate::ops::integer_only::greatest;

/// A linear map: `scales[j] · (Σ_i matrix[j, i] · q_i + bias[j])`, times the scale of its input.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerMap {
    /// `[d_out, d_in]`; its own scales are those that follow, in single precision.
    pub matrix: IntegerMatrix,
    /// The scale of each output's weights.
    pub scales: Vec<f64>,
    /// In units of the sums.
    pub bias: Vec<i64>,
}

/// A table of embeddings: `scales[n] · matrix[n, i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerTable {
    /// `[n, d_model]`
    pub matrix: IntegerMatrix,
    /// The scale of each row.
    pub scales: Vec<f64>,
}

/// A layer normalisation.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerNorm {
    /// The learned scale.
    pub gamma: Vec<f64>,
    /// The learned shift.
    pub beta: Vec<f64>,
    /// Bits that squares are shifted down by: 0 unless the reference's training found an overflow.
    pub shift: u32,
}

/// The parts of an [`IntegerBert`](super::IntegerBert).
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerParts {
    /// Attention heads.
    pub n_heads: usize,
    /// Unused rows at the start of the table of positions.
    pub position_offset: usize,
    /// Pieces, token types and positions.
    pub tables: [IntegerTable; 3],
    /// The normalisation of their sum.
    pub norm: IntegerNorm,
    /// The scale of the sum, which has 16 bits.
    pub sum_scale: f64,
    /// The scale of the first layer's input, which has 8 bits.
    pub output_scale: f64,
    /// The layers.
    pub layers: Vec<IntegerLayerParts>,
    /// The head over sequences, if it has integers.
    pub classifier: Option<IntegerClassifierParts>,
}

/// The parts of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerLayerParts {
    /// `[d_model, d_model]` each.
    pub query: IntegerMap,
    /// See [`query`](Self::query).
    pub key: IntegerMap,
    /// See [`query`](Self::query).
    pub value: IntegerMap,
    /// See [`query`](Self::query).
    pub output: IntegerMap,
    /// The normalisation after the attention.
    pub attention_norm: IntegerNorm,
    /// `[d_ff, d_model]`
    pub up: IntegerMap,
    /// `[d_model, d_ff]`
    pub down: IntegerMap,
    /// The normalisation after the feed-forward network.
    pub feed_forward_norm: IntegerNorm,
    /// The scales of activations.
    pub scales: IntegerLayerScales,
}

/// The scales of a layer's activations, of 8 bits where nothing else is said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntegerLayerScales {
    /// Queries.
    pub query: f64,
    /// Keys.
    pub key: f64,
    /// Values.
    pub value: f64,
    /// The integer of an exponential that becomes the greatest of 16 bits; none: that of 1.
    pub exponentials: Option<f64>,
    /// The attention's contexts.
    pub context: f64,
    /// What is normalised after the attention: 22 bits.
    pub attention_sum: f64,
    /// The normalised states.
    pub attention: f64,
    /// The same, rounded again: the feed-forward network's input, and what its output is added to.
    pub feed_forward_input: f64,
    /// The outputs of GELU.
    pub gelu: f64,
    /// The same, rounded again: the input of the last map.
    pub inner: f64,
    /// What is normalised after the feed-forward network: 22 bits.
    pub feed_forward_sum: f64,
    /// The layer's output.
    pub output: f64,
}

/// The parts of a head over sequences: a dense layer with tanh and an output layer.
#[derive(Debug, Clone, PartialEq)]
pub struct IntegerClassifierParts {
    /// `[d_model, d_model]`
    pub dense: IntegerMap,
    /// The scale of its output, which has 16 bits.
    pub dense_scale: f64,
    /// `[n_outputs, d_model]`
    pub output: IntegerMap,
}

/// The scale of a symmetric range of `bits` bits that ends at `most`; a range of nothing gets a small scale, as in the
/// reference.
pub fn symmetric_scale(most: f64, bits: u32) -> f64 {
    most.abs().max(1e-8) / greatest(bits)
}

impl IntegerMap {
    /// The map with weights rounded to 8 bits, from −127 to 127, with a scale for each output, and biases rounded to 32 bits.
    ///
    /// # Errors
    /// One line for numbers that are not finite, and for biases that are not as many as rows.
    pub fn new(rows: &[f32], dims: [usize; 2], bias: &[f32], input_scale: f64) -> Result<Self, String> {
        let matrix = IntegerMatrix::int8(rows, dims, i8::MAX)?;
        let scales = row_scales(&matrix);
        Self::with_biases(matrix, scales, bias, input_scale)
    }

    /// The map with rounded weights, and biases that are rounded here, half to even.
    ///
    /// # Errors
    /// One line for a bias that is not finite, and for biases that are not as many as rows.
    pub fn with_biases(
        matrix: IntegerMatrix,
        scales: Vec<f64>,
        bias: &[f32],
        input_scale: f64,
    ) -> Result<Self, String> {
        if bias.len() != scales.len() {
            return Err(format!("{} biases, expected {}", bias.len(), scales.len()));
        }
        if let Some(place) = bias.iter().position(|bias| !bias.is_finite()) {
            return Err(format!("bias {place} is {}", bias[place]));
        }
        const END: f64 = i32::MAX as f64;
        let rounded = |(bias, scale): (&f32, &f64)| match scale * input_scale {
            0.0 => 0,
            unit => (f64::from(*bias) / unit).round_ties_even().clamp(-END, END - 1.0) as i64,
        };
        let bias = bias.iter().zip(&scales).map(rounded).collect();
        Ok(Self { matrix, scales, bias })
    }
}

impl IntegerTable {
    /// The table with rows rounded to 8 bits, with a scale for each.
    ///
    /// # Errors
    /// One line for a number that is not finite.
    pub fn new(rows: &[f32], dims: [usize; 2]) -> Result<Self, String> {
        let matrix = IntegerMatrix::int8(rows, dims, i8::MAX)?;
        Ok(Self { scales: row_scales(&matrix), matrix })
    }
}

/// The scales of a matrix's rows.
pub(super) fn row_scales(matrix: &IntegerMatrix) -> Vec<f64> {
    match matrix.scales() {
        crate::ops::Scales::Rows(scales) | crate::ops::Scales::Blocks(scales) => {
            scales.iter().map(|scale| f64::from(*scale)).collect()
        }
    }
}
