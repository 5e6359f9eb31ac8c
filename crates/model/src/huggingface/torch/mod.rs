//! Tensors of a file written by `torch.save`: a zip archive since PyTorch 1.6, a sequence of pickles before.
//!
//! Such a file contains a pickle, which is a program. None of it is run, see [`pickle`]; storages, shapes and strides
//! are checked against the file's size.

mod archive;
mod contents;
mod legacy;
mod pickle;
mod refused;

use super::mapped_file::shared_map;
use super::safetensors_file::{MappedTensors, mapped_f32, widen};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use archive::Archive;
use burn::tensor::{TensorData, bf16, f16};
use contents::Contents;
use pickle::{Element, Object, Pickle, Value};
use refused::Refused;
use std::ops::Range;
use std::path::Path;

/// The maximum number of dimensions of a tensor.
const MAX_DIMS: usize = 16;

/// The maximum number of bytes for tensors that are not read in place, for each byte of the file: widening takes two,
/// and each tied tensor is copied. With strides of 0, a file could ask for any amount of memory.
const MAX_GROWTH: usize = 8;

/// The number of bytes that is always allowed, however small the file is.
const MIN_MEMORY: usize = 16 << 20;

/// Maps a `pytorch_model.bin` into memory, without copying contiguous FP32 tensors; guarantees and requirements are
/// those of [`map_tensors`](super::map_tensors).
///
/// # Errors
/// [`ModelError::Torch`] for a file that is damaged, imports any name besides those of tensors, is not a dictionary of
/// tensors, or whose tensors exceed their storages or would take many times the file's size in memory.
/// [`ModelError::Dtype`] as for a safetensors file.
pub(super) fn map_torch(path: &Path) -> Result<MappedTensors> {
    let map = shared_map(path)?;
    let refused = |Refused { offset, reason }| ModelError::Torch { path: path.into(), offset, reason };
    let contents = contents(&map).map_err(refused)?;
    let pickle = &contents.pickle;
    let nowhere = |reason: String| refused(Refused { offset: contents.pickle_at, reason });
    let Some(entries) = pickle.dict(pickle.root()) else {
        return Err(nowhere("the file is not a dictionary of tensors".into()));
    };
    let entries = match training_state(pickle, entries) {
        Some((key, inner)) => {
            tracing::warn!(
                "{}: the weights are those under `{key}`; nothing else of the file is read",
                path.display()
            );
            inner
        }
        None => entries,
    };

    let mut memory = map.len().saturating_mul(MAX_GROWTH).max(MIN_MEMORY);
    let (mut floats, mut others) = (NamedTensors::new(), Vec::new());
    for (key, value) in entries {
        let Value::Text(name) = *key else {
            return Err(nowhere("a key of the dictionary is not text".into()));
        };
        let Some(&Object::Tensor { storage, offset, shape, strides }) = pickle.object(*value) else {
            others.push(name.to_string());
            continue;
        };
        let described = |reason: &str| nowhere(format!("tensor `{}`: {reason}", name.escape_debug()));
        let Some(&Object::Storage { key, element, len }) = pickle.object(Value::Object(storage)) else {
            return Err(described("it has no valid storage"));
        };
        let layout = Layout::new(pickle, offset, shape, strides).map_err(described)?;
        let Some(bytes) = contents.storages.get(key) else {
            return Err(described(&format!("its storage `{}` is not in the file", key.escape_debug())));
        };
        let bytes = &map[bytes.clone()];
        // The archive may pad a storage, but never shortens it.
        let len = usize::try_from(len)
            .ok()
            .filter(|len| len.checked_mul(element.size()).is_some_and(|n_bytes| n_bytes <= bytes.len()));
        let Some(len) = len else {
            return Err(described("its storage is shorter than the file says"));
        };
        if layout.end > len {
            return Err(described("it reaches beyond its storage"));
        }
        let bytes = &bytes[..len * element.size()];
        let data = match element {
            Element::F64 | Element::F32 | Element::F16 | Element::Bf16 => {
                let in_place = match element {
                    Element::F32 => layout.span().and_then(|span| {
                        mapped_f32(&map, &bytes[span.start * 4..span.end * 4], &layout.shape)
                    }),
                    _ => None,
                };
                match in_place {
                    Some(data) => data,
                    None => {
                        memory = memory
                            .checked_sub(layout.n_elements.saturating_mul(4))
                            .ok_or_else(|| described("the tensors are many times as large as the file"))?;
                        layout.read(bytes, element)
                    }
                }
            }
            Element::I64 | Element::I32 | Element::I16 | Element::I8 | Element::U8 | Element::Bool => {
                others.push(name.to_string());
                continue;
            }
        };
        floats.insert(name.to_string(), data);
    }
    others.sort();
    Ok(MappedTensors::new(floats, others))
}

/// The weights in what a training program saved of its state, and their key; none of a dictionary of tensors.
fn training_state<'a, 'b>(
    pickle: &'b Pickle<'a>,
    entries: &'b [(Value<'a>, Value<'a>)],
) -> Option<(&'static str, &'b [(Value<'a>, Value<'a>)])> {
    const KEYS: [&str; 4] = ["state_dict", "model_state_dict", "model", "module"];
    let is_tensor = |value: Value<'a>| matches!(pickle.object(value), Some(Object::Tensor { .. }));
    if entries.iter().any(|(_, value)| is_tensor(*value)) {
        return None;
    }
    KEYS.into_iter().find_map(|wanted| {
        let of_key = |(key, _): &&(Value<'a>, Value<'a>)| matches!(*key, Value::Text(key) if key == wanted);
        let (_, value) = entries.iter().find(of_key)?;
        Some((wanted, pickle.dict(*value)?))
    })
}

fn contents(bytes: &[u8]) -> std::result::Result<Contents<'_>, Refused> {
    if Archive::begins(bytes) {
        zipped(bytes)
    } else if legacy::begins(bytes) {
        legacy::contents(bytes)
    } else {
        Err(Refused { offset: 0, reason: "not a file that torch.save wrote".into() })
    }
}

/// `NAME/data.pkl`, and `NAME/data/KEY` for each storage.
fn zipped(bytes: &[u8]) -> std::result::Result<Contents<'_>, Refused> {
    let archive = Archive::read(bytes)?;
    let Some(folder) = archive.folder() else {
        return Err(Refused { offset: bytes.len(), reason: "the archive has no `data.pkl`".into() });
    };
    if let Some(order) = archive.get(&format!("{folder}byteorder"))
        && bytes[order.clone()] != *b"little"
    {
        return Err(Refused {
            offset: order.start,
            reason: "the bytes are not in little-endian order".into(),
        });
    }
    let place = archive.get(&format!("{folder}data.pkl")).unwrap_or_default();
    let pickle = Pickle::read(&bytes[place.clone()], place.start)?;
    let prefix = format!("{folder}data/");
    let storages =
        archive.iter().filter_map(|(name, place)| Some((name.strip_prefix(&*prefix)?, place))).collect();
    Ok(Contents { pickle, pickle_at: place.start, storages })
}

/// How a tensor's elements lie in its storage, in elements.
struct Layout {
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    n_elements: usize,
    /// The index after the last element; 0 if there are no elements.
    end: usize,
}

impl Layout {
    fn new(
        pickle: &Pickle<'_>,
        offset: i64,
        shape: u32,
        strides: u32,
    ) -> std::result::Result<Self, &'static str> {
        let numbers = |object| {
            let items = pickle.items(Value::Object(object)).filter(|items| items.len() <= MAX_DIMS)?;
            let number = |item: &Value<'_>| match item {
                Value::Int(number) => usize::try_from(*number).ok(),
                _ => None,
            };
            items.iter().map(number).collect::<Option<Vec<usize>>>()
        };
        let (Some(shape), Some(strides), Ok(offset)) =
            (numbers(shape), numbers(strides), usize::try_from(offset))
        else {
            return Err("its shape, strides or offset are not natural numbers");
        };
        if shape.len() != strides.len() {
            return Err("its shape and strides differ in length");
        }
        // Without zeros, since the product of the others could overflow.
        let bound = shape.iter().try_fold(1usize, |product, n| product.checked_mul((*n).max(1)));
        let n_elements = bound.map(|n| if shape.contains(&0) { 0 } else { n });
        let last = shape.iter().zip(&strides).try_fold(offset, |last, (n, stride)| {
            last.checked_add(n.saturating_sub(1).checked_mul(*stride)?)
        });
        let (Some(n_elements), Some(end)) = (n_elements, last.and_then(|last| last.checked_add(1))) else {
            return Err("its shape is too large");
        };
        let end = if n_elements == 0 { 0 } else { end };
        Ok(Self { shape, strides, offset, n_elements, end })
    }

    /// The storage's elements that are this tensor's, if they are contiguous and in order.
    fn span(&self) -> Option<Range<usize>> {
        if self.n_elements == 0 {
            return None;
        }
        let mut expected = 1;
        for (n, stride) in self.shape.iter().zip(&self.strides).rev() {
            if *n != 1 && *stride != expected {
                return None;
            }
            expected *= n;
        }
        Some(self.offset..self.offset + self.n_elements)
    }

    /// The elements in order, as FP32.
    fn read(&self, storage: &[u8], element: Element) -> TensorData {
        let values = match element {
            Element::F64 => self.gather(storage, |bytes| f64::from_le_bytes(bytes) as f32),
            Element::F16 => self.gather(storage, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Element::Bf16 => self.gather(storage, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            _ => self.gather(storage, f32::from_le_bytes),
        };
        TensorData::new(values, self.shape.clone())
    }

    fn gather<const N: usize>(&self, storage: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        if let Some(span) = self.span() {
            return widen(&storage[span.start * N..span.end * N], convert);
        }
        let (elements, _) = storage.as_chunks::<N>();
        let mut values = Vec::with_capacity(self.n_elements);
        let mut index = vec![0; self.shape.len()];
        let mut at = self.offset;
        for _ in 0..self.n_elements {
            values.push(convert(elements[at]));
            // Advances to the next element: increments the last index that is below its bound and resets those after
            // it.
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                at += self.strides[axis];
                if index[axis] < self.shape[axis] {
                    break;
                }
                at -= self.strides[axis] * self.shape[axis];
                index[axis] = 0;
            }
        }
        values
    }
}
