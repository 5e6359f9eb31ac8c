//! Integers read from the tensors of a folder.

use super::{Checked, Group, Inputs, KEY, QuantizationConfig, QuantizedTensor, Strategy};
use crate::huggingface::fields::Fields;
use crate::huggingface::integer_only::{has_quant_mode, is_integer_only, read_integer_only};
use crate::huggingface::safetensors_file::{MappedTensors, RawTensor};
use crate::ops::{BLOCK, Bits, IntegerMatrix, Scales, TokenRange, TokenRounding};
use crate::{ModelError, Result};
use bytes::Bytes;
use safetensors::tensor::Dtype;
use std::path::Path;

/// Checks that a folder's weights are floats, for whoever trains or changes them.
///
/// # Errors
/// [`ModelError::Integers`]; those of a `config.json` that cannot be read.
pub fn check_floats(folder: &Path) -> Result<()> {
    match Fields::read_if_present(&folder.join("config.json"))? {
        Some(fields) if is_integer_only(&fields) => Err(ModelError::Integers { path: folder.into() }),
        Some(fields) if has_quant_mode(&fields)? => {
            let expected = "false: a model of integers can be neither trained nor changed";
            Err(fields.refuse("quant_mode", &true.into(), expected))
        }
        Some(fields) if QuantizationConfig::read(&fields)?.is_some() => {
            Err(ModelError::Integers { path: folder.into() })
        }
        _ => Ok(()),
    }
}

/// The tensors of a folder with those of `quantization_config` put together: a module's integers, under the name of its
/// weight.
///
/// # Errors
/// Those of [`QuantizationConfig::read`]; [`ModelError::Weights`] for tensors that do not fit together.
pub(crate) fn decoded(folder: &Path, mut tensors: MappedTensors) -> Result<MappedTensors> {
    let Some(fields) = Fields::read_if_present(&folder.join("config.json"))? else { return Ok(tensors) };
    tensors.integer_only = read_integer_only(folder, &fields, &mut tensors)?;
    if is_integer_only(&fields) {
        return Ok(tensors);
    }
    let Some(config) = QuantizationConfig::read(&fields)? else { return Ok(tensors) };
    let wrong = |reason: String| ModelError::Weights { path: folder.into(), reason };
    let modules = tensors.floats.keys().filter_map(|name| name.strip_suffix(".weight_scale"));
    for module in modules.map(str::to_owned).collect::<Vec<_>>() {
        let Some(group) = config.group_of(&module) else {
            return Err(wrong(format!("`{module}` has integers and is in no group of `{KEY}`")));
        };
        let read = read_module(&mut tensors, &module, group);
        let read = read.map_err(|reason| wrong(format!("`{module}`: {reason}")))?;
        tensors.quantized.insert(format!("{module}.weight"), read);
    }
    if tensors.quantized.is_empty() {
        return Err(wrong(format!("has no tensor `….weight_scale`, which `{KEY}` asks for")));
    }
    tensors.others.retain(|name| tensors.raw.contains_key(name));
    Ok(tensors)
}

/// Takes a module's integers out of the tensors.
fn read_module(tensors: &mut MappedTensors, module: &str, group: &Group) -> Checked<QuantizedTensor> {
    let name = |suffix: &str| format!("{module}.{suffix}");
    if tensors.raw.contains_key(&name("weight_zero_point")) || tensors.raw.contains_key(&name("weight_g_idx"))
    {
        return Err("has `weight_zero_point` or `weight_g_idx`, which are not supported".into());
    }
    let scale = tensors.floats.remove(&name("weight_scale")).expect("the caller found it");
    let (dims, bits, values) =
        match (tensors.raw.remove(&name("weight_packed")), tensors.raw.remove(&name("weight"))) {
            (Some(packed), _) => {
                let shape = tensors.raw.remove(&name("weight_shape")).ok_or("has no `weight_shape`")?;
                let dims = dims_of(&shape)?;
                let (bits, values) = unpacked(packed, dims, group.bits)?;
                (dims, bits, values)
            }
            (None, Some(RawTensor { dtype: Dtype::I8, shape, bytes })) => {
                let dims =
                    <[usize; 2]>::try_from(shape).map_err(|shape| format!("`weight` has shape {shape:?}"))?;
                if group.bits == 4 && bytes.iter().any(|q| !(-8..8).contains(&q.cast_signed())) {
                    return Err("`weight` has integers of more than 4 bits".into());
                }
                (dims, Bits::Eight, bytes)
            }
            _ => {
                return Err(
                    "has `weight_scale`, but no `weight_packed`, and no `weight` of 8-bit integers".into()
                );
            }
        };
    let scales =
        scales_of(&scale.iter::<f32>().collect::<Vec<_>>(), scale.shape().as_slice(), dims, group.strategy)?;
    let matrix = IntegerMatrix::new(dims, bits, values, scales)?;
    let factors =
        tensors.floats.remove(&name("input_factors")).map(|data| data.iter::<f32>().collect::<Vec<_>>());
    if let Some(factors) = &factors
        && (factors.len() != dims[1] || !factors.iter().all(|factor| factor.is_finite()))
    {
        return Err(format!("`input_factors` is not {} finite numbers", dims[1]));
    }
    let tokens = match group.inputs {
        Inputs::Floats => None,
        Inputs::Dynamic { symmetric } => Some(TokenRounding { symmetric, factors, range: None }),
        Inputs::Static => {
            let one = |tensor: Option<burn::tensor::TensorData>| {
                tensor.filter(|data| data.num_elements() == 1).and_then(|data| data.iter::<f32>().next())
            };
            let scale = one(tensors.floats.remove(&name("input_scale")))
                .ok_or("has no `input_scale` of one number")?;
            let zero = match tensors.raw.remove(&name("input_zero_point")) {
                None => 0,
                Some(RawTensor { dtype: Dtype::I8, bytes, .. }) if bytes.len() == 1 => bytes[0].cast_signed(),
                Some(_) => return Err("`input_zero_point` is no signed byte".into()),
            };
            // Their bytes are signed, ours are not.
            let range = TokenRange { scale, zero: (i16::from(zero) + 128) as u8 };
            if !(scale.is_finite() && scale >= 0.0) {
                return Err(format!("`input_scale` is {scale}"));
            }
            Some(TokenRounding { range: Some(range), factors, symmetric: false })
        }
    };
    Ok(QuantizedTensor { matrix, tokens })
}

fn dims_of(shape: &RawTensor) -> Checked<[usize; 2]> {
    let numbers: Option<Vec<usize>> = match shape.dtype {
        Dtype::I64 => {
            shape.bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b).try_into().ok()).collect()
        }
        Dtype::I32 => {
            shape.bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).try_into().ok()).collect()
        }
        _ => None,
    };
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| "`weight_shape` is not two sizes".into())
}

/// The bytes of `weight_packed`: those of 4 bits stay in the file.
fn unpacked(packed: RawTensor, dims: [usize; 2], bits: u8) -> Checked<(Bits, Bytes)> {
    let per_word = 32 / usize::from(bits);
    let expected = [dims[0], dims[1].div_ceil(per_word)];
    if packed.dtype != Dtype::I32 || packed.shape != expected {
        return Err(format!(
            "`weight_packed` is {:?} of shape {:?}, expected I32 of shape {expected:?}",
            packed.dtype, packed.shape
        ));
    }
    if !dims[1].is_multiple_of(per_word) {
        return Err(format!("rows of {} numbers do not fill 32-bit integers", dims[1]));
    }
    Ok(match bits {
        4 => (Bits::Four, packed.bytes),
        _ => (Bits::Eight, packed.bytes.iter().map(|byte| byte ^ 0x80).collect::<Vec<u8>>().into()),
    })
}

fn scales_of(scales: &[f32], shape: &[usize], dims: [usize; 2], strategy: Strategy) -> Checked<Scales> {
    let [rows, columns] = dims;
    let refuse =
        |expected: &[usize]| Err(format!("`weight_scale` has shape {shape:?}, expected {expected:?}"));
    match strategy {
        Strategy::Tensor if scales.len() == 1 => Ok(Scales::Rows(vec![scales[0]; rows])),
        Strategy::Tensor => refuse(&[1]),
        Strategy::Channel if scales.len() == rows => Ok(Scales::Rows(scales.to_vec())),
        Strategy::Channel => refuse(&[rows, 1]),
        Strategy::Group(size) if !columns.is_multiple_of(size) => {
            Err(format!("rows of {columns} numbers are no whole groups of {size}"))
        }
        Strategy::Group(size) if shape != [rows, columns / size] => refuse(&[rows, columns / size]),
        Strategy::Group(size) => {
            let blocks = size / BLOCK;
            Ok(Scales::Blocks(scales.iter().flat_map(|scale| std::iter::repeat_n(*scale, blocks)).collect()))
        }
    }
}
