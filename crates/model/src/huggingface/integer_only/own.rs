//! Our own folders of integers.

use super::Checked;
use super::parts::PartSource;
use crate::bert::integer_only::{IntegerMap, IntegerNorm, IntegerTable};
use crate::huggingface::safetensors_file::{MappedTensors, RawTensor};
use crate::ops::{Bits, IntegerMatrix, Scales};
use safetensors::tensor::Dtype;
use std::collections::BTreeMap;

/// The tensors by the names that they have in the encoder alone.
pub(super) struct OwnTensors<'a> {
    pub tensors: &'a MappedTensors,
    /// The names in the file.
    pub names: BTreeMap<String, String>,
}

/// What the name of an activation's scale ends with.
pub(super) const SCALE: &str = "act_scaling_factor";

impl OwnTensors<'_> {
    fn floats(&self, module: &str, name: &str) -> Checked<Vec<f32>> {
        let name = format!("{module}.{name}");
        let found = self.names.get(&name).and_then(|name| self.tensors.floats.get(name));
        let numbers: Vec<f32> = found.ok_or_else(|| format!("tensor `{name}` is missing"))?.iter().collect();
        match numbers.iter().find(|x| !x.is_finite()) {
            Some(x) => Err(format!("tensor `{name}` has {x}, expected finite numbers")),
            None => Ok(numbers),
        }
    }

    fn raw(&self, module: &str, name: &str, dtype: Dtype) -> Checked<&RawTensor> {
        let name = format!("{module}.{name}");
        let found = self.names.get(&name).and_then(|name| self.tensors.raw.get(name));
        match found {
            Some(found) if found.dtype == dtype => Ok(found),
            Some(found) => Err(format!("tensor `{name}` has {:?}, expected {dtype:?}", found.dtype)),
            None => Err(format!("tensor `{name}` of {dtype:?} is missing")),
        }
    }

    /// A matrix of 8 bits with a scale for each row.
    pub fn matrix(&self, module: &str) -> Checked<IntegerMatrix> {
        let RawTensor { shape, bytes, .. } = self.raw(module, "weight", Dtype::I8)?;
        let dims = <[usize; 2]>::try_from(&shape[..])
            .map_err(|_| format!("tensor `{module}.weight` has shape {shape:?}, expected a matrix"))?;
        let scales = self.floats(module, "weight_scale")?;
        IntegerMatrix::new(dims, Bits::Eight, bytes.clone(), Scales::Rows(scales))
            .map_err(|reason| format!("`{module}`: {reason}"))
    }
}

fn scales_of(matrix: &IntegerMatrix) -> Vec<f64> {
    match matrix.scales() {
        Scales::Rows(scales) | Scales::Blocks(scales) => scales.iter().map(|x| f64::from(*x)).collect(),
    }
}

impl PartSource for OwnTensors<'_> {
    fn map(&self, module: &str, _: f64) -> Checked<IntegerMap> {
        let matrix = self.matrix(module)?;
        let bias = &self.raw(module, "bias", Dtype::I32)?.bytes;
        let bias = bias.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
        Ok(IntegerMap { scales: scales_of(&matrix), matrix, bias: bias.collect() })
    }

    fn table(&self, module: &str) -> Checked<IntegerTable> {
        let matrix = self.matrix(module)?;
        Ok(IntegerTable { scales: scales_of(&matrix), matrix })
    }

    fn norm(&self, module: &str) -> Checked<IntegerNorm> {
        let numbers = |name| -> Checked<Vec<f64>> {
            Ok(self.floats(module, name)?.into_iter().map(f64::from).collect())
        };
        Ok(IntegerNorm { gamma: numbers("weight")?, beta: numbers("bias")?, shift: 0 })
    }

    fn scale(&self, activation: &str, _: u32) -> Checked<f64> {
        match self.floats(activation, SCALE)?[..] {
            [scale] if scale > 0.0 => Ok(f64::from(scale)),
            ref scales => {
                Err(format!("tensor `{activation}.{SCALE}` is {scales:?}, expected a positive number"))
            }
        }
    }

    fn range(&self, _: &str) -> Checked<Option<f64>> {
        Ok(None)
    }
}
