use super::mapped_file::{map, shared_map};
use super::quantization::QuantizedTensor;
use crate::bert::integer_only::IntegerParts;
use crate::weights::{NamedTensors, OnDevice, TensorsOnDevice};
use crate::{ModelError, Result};
use burn::tensor::{AllocationProperty, DType, TensorData};
use cloze_ops::scoped;
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::Path;

/// The tensors of a file, see [`map_tensors`].
#[derive(Debug)]
pub struct MappedTensors {
    /// Float tensors, as FP32.
    pub floats: NamedTensors,
    /// Matrices of integers, by the names of the float tensors that they stand for; [`tensors_of`](super::tensors_of) reads
    /// them.
    pub quantized: BTreeMap<String, QuantizedTensor>,
    /// The names of the others, such as old checkpoints' `position_ids`; sorted.
    pub others: Vec<String>,
    /// What those hold, where it may be a part of a matrix of integers.
    pub(super) raw: BTreeMap<String, RawTensor>,
    /// The encoder, if it is computed in integers alone.
    pub(super) integer_only: Option<IntegerParts>,
}

impl MappedTensors {
    /// Float tensors, and the names of others.
    pub(super) fn new(floats: NamedTensors, others: Vec<String>) -> Self {
        Self { floats, quantized: BTreeMap::new(), others, raw: BTreeMap::new(), integer_only: None }
    }

    /// The names and the shapes of all tensors that have numbers.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (&String, Vec<usize>)> {
        let floats = self.floats.iter().map(|(name, data)| (name, data.shape().to_vec()));
        floats.chain(self.quantized.iter().map(|(name, tensor)| (name, tensor.matrix.dims().to_vec())))
    }

    /// The same tensors with floats in place of integers.
    pub fn dequantized(mut self) -> Self {
        let quantized = std::mem::take(&mut self.quantized).into_iter();
        self.floats.extend(quantized.map(|(name, tensor)| (name, tensor.dequantized())));
        self
    }
}

/// A tensor of integers as a file has it.
#[derive(Debug, Clone)]
pub(super) struct RawTensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: bytes::Bytes,
}

/// Maps a safetensors file into memory. FP32 tensors are not copied: they are read from the file when used, and copied
/// when first written to. Half precisions are widened.
///
/// The file must not change while its tensors exist. [`write_tensors`] ensures this by replacing the file with a new
/// one.
pub fn map_tensors(path: &Path) -> Result<MappedTensors> {
    let map = shared_map(path)?;
    let (mut floats, mut others, mut raw) = (NamedTensors::new(), Vec::new(), BTreeMap::new());
    for (name, view) in parse(path, &map)?.iter() {
        let in_place = match view.dtype() {
            Dtype::F32 => mapped_f32(&map, view.data(), view.shape()),
            _ => None,
        };
        let data = match in_place {
            Some(data) => data,
            None => match widened(path, name, &view)? {
                Some(data) => data,
                None => {
                    let (dtype, shape) = (view.dtype(), view.shape().to_vec());
                    let bytes = match view.data() {
                        [] => bytes::Bytes::new(),
                        data if OWNED.with_borrow(|owned| *owned) => bytes::Bytes::copy_from_slice(data),
                        data => map.slice_ref(data),
                    };
                    raw.insert(name.to_string(), RawTensor { dtype, shape, bytes });
                    others.push(name.to_string());
                    continue;
                }
            },
        };
        floats.insert(name.to_string(), data);
    }
    others.sort();
    Ok(MappedTensors { raw, ..MappedTensors::new(floats, others) })
}

/// Reads every float tensor of a safetensors file as FP32, independent of the file afterwards. Half precisions are
/// widened, integer tensors omitted.
pub fn read_tensors(path: &Path) -> Result<NamedTensors> {
    let map = map(path)?;
    let mut tensors = NamedTensors::new();
    for (name, view) in parse(path, &map)?.iter() {
        if let Some(data) = widened(path, name, &view)? {
            tensors.insert(name.to_string(), data);
        }
    }
    Ok(tensors)
}

thread_local!(
    /// Whether tensors are copied out of their files.
    static OWNED: RefCell<bool> = const { RefCell::new(false) }
);

/// Loads models on this thread so that they do not depend on their files afterwards: whoever serves a model cannot know
/// what happens to its folder. Tensors take memory that mapped ones only take when used.
pub fn with_owned_weights<R>(load: impl FnOnce() -> R) -> R {
    scoped(&OWNED, true, load).0
}

/// FP32 values read from `map` in place; none if that is impossible, or not [wanted](with_owned_weights).
pub(super) fn mapped_f32(map: &bytes::Bytes, values: &[u8], shape: &[usize]) -> Option<TensorData> {
    if OWNED.with_borrow(|owned| *owned) {
        return None;
    }
    let shareable = cfg!(target_endian = "little") && values.as_ptr().cast::<f32>().is_aligned();
    (shareable && !values.is_empty()).then(|| {
        let bytes = burn::tensor::Bytes::from_shared(map.slice_ref(values), AllocationProperty::File);
        TensorData::from_bytes(bytes, shape.to_vec(), DType::F32)
    })
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes).map_err(|source| ModelError::Safetensors { path: path.into(), source })
}

/// A float tensor's values; none for an integer tensor.
fn widened(path: &Path, name: &str, view: &TensorView<'_>) -> Result<Option<TensorData>> {
    let values = match view.dtype() {
        Dtype::F32 => widen(view.data(), f32::from_le_bytes),
        Dtype::F64 => widen(view.data(), |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::F16 => widen(view.data(), |b| burn::tensor::f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => widen(view.data(), |b| burn::tensor::bf16::from_le_bytes(b).to_f32()),
        Dtype::I64 | Dtype::I32 | Dtype::I8 | Dtype::U8 | Dtype::BOOL => return Ok(None),
        other => {
            return Err(ModelError::Dtype {
                path: path.into(),
                name: name.to_string(),
                found: format!("{other:?}"),
            });
        }
    };
    Ok(Some(TensorData::new(values, view.shape().to_vec())))
}

/// Writes float tensors with `metadata`, sorted by name so that equal tensors give equal bytes.
///
/// The file is written under a temporary name and renamed. Readers of the old file, even if they mapped it into memory,
/// still see all of it.
///
/// # Panics
/// If a tensor is not FP32, FP16 or bf16.
pub fn write_tensors(path: &Path, tensors: &NamedTensors, metadata: &[(&str, &str)]) -> Result<()> {
    write_some(path, tensors.iter().map(|(name, data)| (name.as_str(), data)), metadata)
}

/// [`write_tensors`] for tensors that are copied to the host one at a time.
pub fn write_from_device(path: &Path, tensors: &TensorsOnDevice, metadata: &[(&str, &str)]) -> Result<()> {
    struct Copied<'a>(&'a OnDevice, Dtype);

    impl View for Copied<'_> {
        fn dtype(&self) -> Dtype {
            self.1
        }

        fn shape(&self) -> &[usize] {
            self.0.shape()
        }

        fn data(&self) -> Cow<'_, [u8]> {
            self.0.to_data().as_bytes().to_vec().into()
        }

        fn data_len(&self) -> usize {
            self.0.shape().iter().product::<usize>() * self.0.dtype().size()
        }
    }

    let views = tensors.iter().map(|(name, tensor)| {
        let dtype = stored_type(name, tensor.dtype());
        (name.as_str(), Copied(tensor, dtype))
    });
    write_views(path, views.collect(), metadata)
}

/// [`write_tensors`] for tensors that are borrowed one at a time.
pub(super) fn write_some<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, &'a TensorData)>,
    metadata: &[(&str, &str)],
) -> Result<()> {
    let view = |(name, data): (&'a str, &'a TensorData)| {
        let dtype = stored_type(name, data.dtype());
        let view = TensorView::new(dtype, data.shape().to_vec(), data.as_bytes());
        (name, view.expect("a tensor's bytes fill its shape"))
    };
    write_views(path, tensors.map(view).collect(), metadata)
}

/// # Panics
/// If it is no type of weights.
fn stored_type(name: &str, dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        // Parts of matrices of integers.
        DType::I8 => Dtype::I8,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        other => panic!("`{name}`: {other:?} is no type of weights"),
    }
}

fn write_views(path: &Path, views: Vec<(&str, impl View)>, metadata: &[(&str, &str)]) -> Result<()> {
    let metadata: HashMap<String, String> =
        metadata.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let write = |partial: &Path| {
        let io = |source| ModelError::io("write", path)(source);
        // safetensors puts a temporary file in place, which only this user may read: it gets a new file's mode.
        let permissions = File::create(partial).and_then(|file| file.metadata()).map_err(io)?.permissions();
        safetensors::serialize_to_file(views, Some(metadata), partial).map_err(|error| match error {
            SafeTensorError::IoError(source) => io(source),
            source => ModelError::Safetensors { path: path.into(), source },
        })?;
        fs::set_permissions(partial, permissions).map_err(io)
    };
    cloze_files::replace(path, write, ModelError::io("write", path))
}

/// Little-endian numbers of `N` bytes, each converted.
pub(super) fn widen<const N: usize>(bytes: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<N>();
    values.iter().map(|value| convert(*value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::serialize;

    fn written(tensors: Vec<(&str, Dtype, Vec<usize>, Vec<u8>)>) -> (std::path::PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (*name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        fs::write(&path, serialize(views, None).unwrap()).unwrap();
        (path, folder)
    }

    #[test]
    fn precisions_are_widened_and_integers_listed() {
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let (path, _folder) = written(vec![
            ("single", Dtype::F32, vec![2], bytes([1.5, -2.0])),
            ("none", Dtype::F32, vec![0, 3], vec![]),
            ("half", Dtype::F16, vec![1, 1], burn::tensor::f16::from_f32(0.5).to_le_bytes().to_vec()),
            ("brain", Dtype::BF16, vec![1], burn::tensor::bf16::from_f32(-3.0).to_le_bytes().to_vec()),
            ("ids", Dtype::I64, vec![1], 7i64.to_le_bytes().to_vec()),
        ]);
        let expected: NamedTensors = [
            ("single", TensorData::new(vec![1.5f32, -2.0], [2])),
            ("none", TensorData::new(Vec::<f32>::new(), [0, 3])),
            ("half", TensorData::new(vec![0.5f32], [1, 1])),
            ("brain", TensorData::new(vec![-3.0f32], [1])),
        ]
        .map(|(name, data)| (name.to_string(), data))
        .into();
        assert_eq!(read_tensors(&path).unwrap(), expected);
        let mapped = map_tensors(&path).unwrap();
        assert_eq!(mapped.floats, expected);
        assert_eq!(mapped.others, ["ids"]);
    }

    #[test]
    fn mapped_tensors_outlive_their_files_replacement() {
        let (path, _folder) = written(vec![("x", Dtype::F32, vec![1], 1f32.to_le_bytes().to_vec())]);
        let mapped = map_tensors(&path).unwrap().floats;
        let other = NamedTensors::from([("x".to_string(), TensorData::new(vec![2f32], [1]))]);
        write_tensors(&path, &other, &[]).unwrap();
        assert_eq!(mapped["x"], TensorData::new(vec![1f32], [1]));
        assert_eq!(read_tensors(&path).unwrap(), other);
    }

    #[cfg(unix)]
    #[test]
    fn weights_may_be_read_by_whom_any_file_may() {
        use std::os::unix::fs::PermissionsExt;
        let (plain, folder) = written(vec![]);
        let path = folder.path().join("model.safetensors");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        for _ in 0..2 {
            write_tensors(&path, &NamedTensors::new(), &[]).unwrap();
            assert_eq!(mode(&path), mode(&plain));
        }
    }

    #[test]
    fn a_file_that_cannot_be_weights_is_an_error() {
        let (path, _folder) = written(vec![("x", Dtype::F8_E4M3, vec![1], vec![1])]);
        let message = map_tensors(&path).unwrap_err().to_string();
        assert!(message.ends_with("tensor `x` holds F8_E4M3, expected F32, F16 or BF16"), "{message}");
        let (path, _folder) = written(vec![("x", Dtype::F64, vec![1], 0.5f64.to_le_bytes().to_vec())]);
        assert_eq!(map_tensors(&path).unwrap().floats["x"], TensorData::new(vec![0.5f32], [1]));
        fs::write(&path, "").unwrap();
        assert!(map_tensors(&path).is_err());
        fs::write(&path, "not a safetensors file at all").unwrap();
        assert!(map_tensors(&path).unwrap_err().to_string().ends_with("not a readable safetensors file"));
    }
}
