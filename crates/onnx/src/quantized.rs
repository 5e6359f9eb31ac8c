//! Matrices of integers, as a quantised folder has them: the graph multiplies with the same numbers.
//!
//! | scales | tokens | nodes |
//! | --- | --- | --- |
//! | by output | one range for all | `QuantizeLinear`, `DequantizeLinear`, `MatMul` with a `DequantizeLinear` of unsigned bytes |
//! | by output | each its own | `MatMul` with a `DequantizeLinear` of signed bytes |
//! | by blocks | any | `MatMulNBits` |
//!
//! **Nothing saturates.** ONNX Runtime multiplies what lies between `DequantizeLinear` in integers. Without VNNI, its kernels
//! for signed weights add pairs of products in 16 bits, `255 · 127 · 2 > 32767`, also if the tokens are signed, since it makes
//! them unsigned first. Its kernels for unsigned weights add in 32 bits. So weights are written as `q + 128` with a zero point
//! of 128, which are the same numbers.
//!
//! **No answer depends on the rest of its batch.** ONNX's `DynamicQuantizeLinear` has one range for all tokens of a batch, so
//! it is not used. ONNX has no operator with a range for each token: these tokens stay floats. ONNX Runtime rounds them by
//! blocks of a token where that is faster.

use crate::graph::{Graph, Kind, Value, int};
use crate::proto::{FLOAT, INT8, UINT8};
use cloze_model::blocks::Embedding;
use cloze_model::huggingface::QuantizedTensor;
use cloze_model::ops::{BLOCK, Bits, IntegerMatrix, Scales, TokenRange};
use std::sync::Arc;

/// What is added to signed bytes.
const ZERO: u8 = 128;

/// `accuracy_level` of `MatMulNBits`: tokens are rounded to 8 bits in blocks, which is finer than a range for each token.
const EIGHT_BITS: i64 = 4;

/// `accuracy_level` of `MatMulNBits`: tokens stay floats.
const FLOATS: i64 = 1;

impl Graph {
    /// `x·W`, with the integers of `W` and its inputs as they are rounded.
    ///
    /// # Shapes
    /// - `tensor`: `[d_out, d_in]`; `x`: `[…, d_in]`; returns `[…, d_out]`
    pub(crate) fn integer_product(&mut self, tensor: &Arc<QuantizedTensor>, x: &Value) -> Value {
        let [d_out, d_in] = tensor.matrix.dims();
        let mut x = x.clone();
        if has_factors(tensor) {
            let of = Arc::clone(tensor);
            let factors = self.made("input_factors", FLOAT, &[d_in], move || {
                let factors = of.tokens.as_ref().and_then(|tokens| tokens.factors.as_ref());
                float_bytes(factors.map_or(&[], Vec::as_slice))
            });
            x = self.op("Mul", &[&x, &factors]);
        }
        let range = tensor.tokens.as_ref().and_then(|tokens| tokens.range);
        if let Some(range) = range {
            x = self.rounded(&x, range);
        }
        match tensor.matrix.scales() {
            Scales::Blocks(_) => {
                let weight = self.blocks("weight", tensor, Shape::Blocks);
                let scales = self.scales("weight_scale", tensor, Flat::Yes);
                // A second rounding would change what has been rounded.
                let level = if range.is_some() { FLOATS } else { EIGHT_BITS };
                self.times_blocks(&x, &weight, &scales, &tensor.matrix, level)
            }
            Scales::Rows(_) => {
                let of = Arc::clone(tensor);
                let scales = self.scales("weight_scale", tensor, Flat::Yes);
                let (kind, shift) = if range.is_some() { (UINT8, ZERO) } else { (INT8, 0) };
                let weight = self.made("weight", kind, &[d_in, d_out], move || {
                    let bytes = signed_bytes(&of.matrix);
                    let column = |i: usize| (0..d_out).map(move |row| row * d_in + i);
                    (0..d_in).flat_map(column).map(|place| bytes[place].wrapping_add(shift)).collect()
                });
                let zero = range.map(|_| self.bytes(&vec![ZERO; d_out], &[d_out]));
                let inputs: Vec<&Value> = [&weight, &scales].into_iter().chain(&zero).collect();
                let weight = self.op_with("DequantizeLinear", &inputs, vec![int("axis", 1)]);
                self.op("MatMul", &[&x, &weight])
            }
        }
    }

    /// Numbers rounded to a range: what is outside becomes its end.
    fn rounded(&mut self, x: &Value, TokenRange { scale, zero }: TokenRange) -> Value {
        if scale == 0.0 {
            // All inputs were 0 when the range was measured.
            return self.scalar_op("Mul", x, 0.0);
        }
        let (scale, zero) = (self.float(scale), self.bytes(&[zero], &[]));
        let x = self.op("QuantizeLinear", &[x, &scale, &zero]);
        self.op("DequantizeLinear", &[&x, &scale, &zero])
    }

    /// Rows of a table.
    ///
    /// # Shapes
    /// - `table`: `[n, d]`; `ids`: `[batch, len]`; returns `[batch, len, d]`
    pub(crate) fn looked_up(&mut self, name: &str, table: &Embedding, ids: &Value) -> Value {
        let [weight, scale] = [format!("{name}.weight"), format!("{name}.weight_scale")];
        let Some(tensor) = table.integers() else {
            let table = self.parameter(&weight, table.weight.val());
            return self.rows(&table, ids);
        };
        let [_, d] = tensor.matrix.dims();
        match tensor.matrix.scales() {
            Scales::Rows(_) => {
                let (table, scales) = (self.signed(&weight, tensor), self.scales(&scale, tensor, Flat::No));
                let (rows, scales) = (self.rows(&table, ids), self.rows(&scales, ids));
                let (rows, scales) = (self.cast(&rows, Kind::Float), self.unsqueeze(&scales, &[2]));
                self.op("Mul", &[&rows, &scales])
            }
            Scales::Blocks(_) if tensor.matrix.bits() == Bits::Four => {
                let (table, scales) =
                    (self.blocks(&weight, tensor, Shape::Rows), self.scales(&scale, tensor, Flat::No));
                let attributes = vec![
                    int("bits", 4),
                    int("block_size", BLOCK as i64),
                    int("gather_axis", 0),
                    int("quantize_axis", 1),
                ];
                self.microsoft_op("GatherBlockQuantized", &[&table, ids, &scales], attributes)
            }
            Scales::Blocks(_) => {
                let (table, scales) =
                    (self.blocks(&weight, tensor, Shape::Blocks), self.scales(&scale, tensor, Flat::No));
                let (rows, scales) = (self.rows(&table, ids), self.rows(&scales, ids));
                let (rows, scales) = (self.cast(&rows, Kind::Float), self.unsqueeze(&scales, &[3]));
                let rows = self.scalar_op("Sub", &rows, f32::from(ZERO));
                let rows = self.op("Mul", &[&rows, &scales]);
                self.reshape(&rows, &[0, 0, d as i64])
            }
        }
    }

    /// `x·Tᵀ`, with a table that is looked up too.
    ///
    /// # Shapes
    /// - `table`: `[n, d]`; `x`: `[n_tokens, d]`; returns `[n_tokens, n]`
    pub(crate) fn times_table(&mut self, name: &str, table: &Embedding, x: &Value) -> Value {
        let [weight, scale] = [format!("{name}.weight"), format!("{name}.weight_scale")];
        let table = match table.integers() {
            None => self.parameter(&weight, table.weight.val()),
            Some(tensor) => match tensor.matrix.scales() {
                Scales::Rows(_) => {
                    let (table, scales) =
                        (self.signed(&weight, tensor), self.scales(&scale, tensor, Flat::No));
                    self.op_with("DequantizeLinear", &[&table, &scales], vec![int("axis", 0)])
                }
                Scales::Blocks(_) => {
                    let shape = match tensor.matrix.bits() {
                        Bits::Four => Shape::Rows,
                        Bits::Eight => Shape::Blocks,
                    };
                    let (mut table, scales) =
                        (self.blocks(&weight, tensor, shape), self.scales(&scale, tensor, Flat::No));
                    if let Shape::Rows = shape {
                        let dims = Shape::Blocks.dims(&tensor.matrix).into_iter().map(|dim| dim as i64);
                        table = self.reshape(&table, &dims.collect::<Vec<_>>());
                    }
                    let scales = self.reshape(&scales, &[-1]);
                    // The model multiplies floats with its table.
                    return self.times_blocks(x, &table, &scales, &tensor.matrix, FLOATS);
                }
            },
        };
        self.op_with("Gemm", &[x, &table], vec![int("transB", 1)])
    }

    fn times_blocks(
        &mut self,
        x: &Value,
        weight: &Value,
        scales: &Value,
        matrix: &IntegerMatrix,
        level: i64,
    ) -> Value {
        let [d_out, d_in] = matrix.dims();
        let attributes = vec![
            int("K", d_in as i64),
            int("N", d_out as i64),
            int("accuracy_level", level),
            int("bits", bits(matrix)),
            int("block_size", BLOCK as i64),
        ];
        self.microsoft_op("MatMulNBits", &[x, weight, scales], attributes)
    }

    /// Signed bytes, as they lie in the file.
    fn signed(&mut self, name: &str, tensor: &Arc<QuantizedTensor>) -> Value {
        let of = Arc::clone(tensor);
        self.made(name, INT8, &tensor.matrix.dims(), move || signed_bytes(&of.matrix))
    }

    /// Unsigned integers: bytes plus 128, or halves of bytes plus 8, of which the first is in the low half.
    fn blocks(&mut self, name: &str, tensor: &Arc<QuantizedTensor>, shape: Shape) -> Value {
        let of = Arc::clone(tensor);
        self.made(name, UINT8, &shape.dims(&tensor.matrix), move || match of.matrix.bits() {
            Bits::Four => of.matrix.values().to_vec(),
            Bits::Eight => of.matrix.values().iter().map(|byte| byte.wrapping_add(ZERO)).collect(),
        })
    }

    fn scales(&mut self, name: &str, tensor: &Arc<QuantizedTensor>, flat: Flat) -> Value {
        let of = Arc::clone(tensor);
        let scales = |matrix: &IntegerMatrix| match matrix.scales() {
            Scales::Rows(scales) | Scales::Blocks(scales) => float_bytes(scales),
        };
        let [rows, columns] = tensor.matrix.dims();
        let dims = match (tensor.matrix.scales(), flat) {
            (Scales::Rows(_), _) => vec![rows],
            (Scales::Blocks(scales), Flat::Yes) => vec![scales.len()],
            (Scales::Blocks(_), Flat::No) => vec![rows, columns / BLOCK],
        };
        self.made(name, FLOAT, &dims, move || scales(&of.matrix))
    }
}

/// The shape of a matrix of blocks.
#[derive(Clone, Copy)]
enum Shape {
    /// `[rows, bytes]`
    Rows,
    /// `[rows, blocks, bytes]`
    Blocks,
}

impl Shape {
    fn dims(self, matrix: &IntegerMatrix) -> Vec<usize> {
        let [rows, columns] = matrix.dims();
        let bytes = |n: usize| n * bits(matrix) as usize / 8;
        match self {
            Self::Rows => vec![rows, bytes(columns)],
            Self::Blocks => vec![rows, columns / BLOCK, bytes(BLOCK)],
        }
    }
}

/// Whether the scales of blocks are a list, as `MatMulNBits` takes them, or one row for each of the matrix.
#[derive(Clone, Copy)]
enum Flat {
    Yes,
    No,
}

fn has_factors(tensor: &QuantizedTensor) -> bool {
    tensor.tokens.as_ref().is_some_and(|tokens| tokens.factors.is_some())
}

fn bits(matrix: &IntegerMatrix) -> i64 {
    match matrix.bits() {
        Bits::Four => 4,
        Bits::Eight => 8,
    }
}

/// The integers row by row, one in a byte.
fn signed_bytes(matrix: &IntegerMatrix) -> Vec<u8> {
    match matrix.bits() {
        Bits::Eight => matrix.values().to_vec(),
        Bits::Four => {
            let halves = matrix.values().iter().flat_map(|byte| [byte & 15, byte >> 4]);
            halves.map(|half| half.wrapping_sub(8)).collect()
        }
    }
}

fn float_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
