//! transformers' `IBertModel` with `quant_mode`: weights in floats, and the ranges of activations that training measured.

use super::Checked;
use super::parts::PartSource;
use crate::bert::integer_only::{IntegerMap, IntegerNorm, IntegerTable, symmetric_scale};
use crate::ops::{Bits, IntegerMatrix, Scales};

/// A tensor's shape and numbers.
pub(super) type Numbers = (Vec<usize>, Vec<f32>);

/// The tensors by the names that they have in the encoder alone.
pub(super) struct IbertTensors<'a> {
    /// A tensor by its name.
    pub find: &'a dyn Fn(&str) -> Option<Numbers>,
}

impl IbertTensors<'_> {
    fn get(&self, module: &str, name: &str) -> Checked<Numbers> {
        let name = format!("{module}.{name}");
        let (shape, numbers) = (self.find)(&name).ok_or_else(|| format!("tensor `{name}` is missing"))?;
        match numbers.iter().find(|x| !x.is_finite()) {
            Some(x) => Err(format!("tensor `{name}` has {x}, expected finite numbers")),
            None => Ok((shape, numbers)),
        }
    }

    fn number(&self, module: &str, name: &str) -> Checked<f64> {
        match self.get(module, name)?.1[..] {
            [number] => Ok(f64::from(number)),
            ref numbers => {
                Err(format!("tensor `{module}.{name}` has {} numbers, expected one", numbers.len()))
            }
        }
    }

    /// The greatest magnitude of an activation.
    fn most(&self, activation: &str) -> Checked<f64> {
        Ok(self.number(activation, "x_min")?.abs().max(self.number(activation, "x_max")?.abs()))
    }

    /// A matrix in 8 bits with these scales for its rows, rounded as the reference does: from −127 to 126.
    fn rounded(
        &self,
        module: &str,
        scales: impl Fn(&[f32], [usize; 2]) -> Vec<f64>,
    ) -> Checked<(IntegerMatrix, Vec<f64>)> {
        let (shape, numbers) = self.get(module, "weight")?;
        let dims = <[usize; 2]>::try_from(shape)
            .map_err(|shape| format!("tensor `{module}.weight` has shape {shape:?}, expected a matrix"))?;
        let scales = scales(&numbers, dims);
        let rows = numbers.chunks_exact(dims[1].max(1)).zip(&scales);
        let integers = rows.flat_map(|(row, scale)| {
            let rounded = move |x: &f32| (1.0 / scale * f64::from(*x)).round_ties_even().clamp(-127.0, 126.0);
            row.iter().map(move |x| (rounded(x) as i8).cast_unsigned())
        });
        let stored = scales.iter().map(|scale| *scale as f32).collect();
        let matrix = IntegerMatrix::new(
            dims,
            Bits::Eight,
            integers.collect::<Vec<u8>>().into(),
            Scales::Rows(stored),
        )?;
        Ok((matrix, scales))
    }
}

fn scale_of(numbers: &[f32]) -> f64 {
    symmetric_scale(f64::from(numbers.iter().fold(0f32, |most, x| most.max(x.abs()))), 8)
}

impl PartSource for IbertTensors<'_> {
    fn map(&self, module: &str, input_scale: f64) -> Checked<IntegerMap> {
        let (matrix, scales) = self.rounded(module, |numbers, [_, d_in]| {
            numbers.chunks_exact(d_in.max(1)).map(scale_of).collect()
        })?;
        let (_, bias) = self.get(module, "bias")?;
        IntegerMap::with_biases(matrix, scales, &bias, input_scale)
            .map_err(|reason| format!("`{module}`: {reason}"))
    }

    fn table(&self, module: &str) -> Checked<IntegerTable> {
        let (matrix, scales) = self.rounded(module, |numbers, [n, _]| vec![scale_of(numbers); n])?;
        Ok(IntegerTable { matrix, scales })
    }

    fn norm(&self, module: &str) -> Checked<IntegerNorm> {
        let numbers = |name| -> Checked<Vec<f64>> {
            Ok(self.get(module, name)?.1.into_iter().map(f64::from).collect())
        };
        let shift = self.number(module, "shift")?;
        if !(0.0..32.0).contains(&shift) || shift.fract() != 0.0 {
            return Err(format!("tensor `{module}.shift` is {shift}, expected a whole number below 32"));
        }
        Ok(IntegerNorm { gamma: numbers("weight")?, beta: numbers("bias")?, shift: shift as u32 })
    }

    fn scale(&self, activation: &str, bits: u32) -> Checked<f64> {
        Ok(symmetric_scale(self.most(activation)?, bits))
    }

    fn range(&self, activation: &str) -> Checked<Option<f64>> {
        self.most(activation).map(Some)
    }
}
