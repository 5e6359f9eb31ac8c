//! Weights of integers in a folder, in the layout of the package `compressed-tensors`, which transformers loads.
//!
//! `config.json` has a `quantization_config` with groups of modules; in place of a module's `weight` the file has
//!
//! | tensor | |
//! | --- | --- |
//! | `weight` | 8 bits: `[d_out, d_in]` signed bytes |
//! | `weight_packed`, `weight_shape` | 8 or 4 bits: unsigned, plus 128 or 8, packed into 32-bit integers, the first number in the lowest bits |
//! | `weight_scale` | `[d_out, 1]`, or `[d_out, d_in / 32]` |
//! | `input_factors` | `[d_in]`, our own: what each feature is multiplied with before it is rounded (SmoothQuant) |
//! | `input_scale`, `input_zero_point` | the range of the module's input, if it is fixed |
//!
//! A folder with factors has the `quant_method` `cloze`, so that transformers does not load it without them.
//!
//! What is not followed is refused by name: other widths, floats of 8 and 4 bits, zero points of weights, rounded outputs.

mod config;
mod read;
mod save;

pub(super) use config::{Group, Inputs, KEY, QuantizationConfig, Strategy, Target};
pub use read::check_floats;
pub(super) use read::decoded;
pub use save::{QuantizedParameters, QuantizedReport, save_quantized_as};

use crate::ops::{IntegerMatrix, TokenRounding};
use burn::tensor::TensorData;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A result whose error is a reason, to which the caller adds the file.
type Checked<T> = Result<T, String>;

/// A matrix of integers in a folder.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantizedTensor {
    /// The integers, `[d_out, d_in]`, or `[n, d]` of a table.
    pub matrix: IntegerMatrix,
    /// How the input is rounded; none if it is not, as for tables.
    pub tokens: Option<TokenRounding>,
}

/// What a file has under a name.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    Floats(TensorData),
    Integers(QuantizedTensor),
}

/// Matrices of integers by the paths of the parameters that they are, and whether a parameter is the transpose.
pub(crate) type Integers = BTreeMap<String, (Arc<QuantizedTensor>, bool)>;

impl Found {
    pub fn shape(&self) -> Vec<usize> {
        match self {
            Self::Floats(data) => data.shape().to_vec(),
            Self::Integers(tensor) => tensor.matrix.dims().to_vec(),
        }
    }

    pub fn into_floats(self) -> TensorData {
        match self {
            Self::Floats(data) => data,
            Self::Integers(tensor) => tensor.dequantized(),
        }
    }
}

impl QuantizedTensor {
    /// The numbers that inputs are multiplied with, in the layout of the file: what is stored, and in each column the
    /// factor of its feature, if there are factors.
    pub fn dequantized(&self) -> TensorData {
        let mut numbers = self.matrix.dequantized();
        let [_, columns] = self.matrix.dims();
        if let Some(factors) = self.tokens.as_ref().and_then(|tokens| tokens.factors.as_ref()) {
            for row in numbers.chunks_exact_mut(columns.max(1)) {
                row.iter_mut().zip(factors).for_each(|(number, factor)| *number *= factor);
            }
        }
        TensorData::new(numbers, self.matrix.dims())
    }
}
