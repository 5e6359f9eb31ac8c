//! A file, mapped into memory and checked.

use crate::cursor::{Cursor, Refused};
use crate::tensor_type::name_of;
use crate::{Array, GgufError, Result, TensorType, Value};
use bytes::Bytes;
use memmap2::Mmap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What a file begins with.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// Where tensors begin without `general.alignment`: at multiples of it, in bytes.
pub(crate) const ALIGNMENT: usize = 32;
/// The key that says otherwise.
const ALIGNMENT_KEY: &str = "general.alignment";
/// The maximum number of dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// A GGUF file of version 2 or 3, little-endian.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    map: Bytes,
    metadata: Vec<(String, Value)>,
    keys: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    /// The length of everything before the tensors' values, in bytes.
    head: usize,
}

/// What a file says of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, the last of which varies fastest: ggml's, reversed.
    pub shape: Vec<usize>,
    type_id: u32,
    start: usize,
}

impl TensorInfo {
    /// Its type; none if this crate does not read it.
    pub fn kind(&self) -> Option<TensorType> {
        TensorType::from_id(self.type_id)
    }

    /// ggml's name of its type.
    pub fn type_name(&self) -> String {
        name_of(self.type_id)
    }
}

impl GgufFile {
    /// Maps a file into memory, and reads all but the tensors' values. The file must not change while it is open; a new
    /// file in its place does no harm.
    ///
    /// # Errors
    /// [`GgufError::Io`]; [`GgufError::Damaged`] for anything but a valid file of version 2 or 3.
    pub fn open(path: &Path) -> Result<Self> {
        let file = cloze_files::open(path).map_err(GgufError::io("open", path))?;
        let len = file.metadata().map_err(GgufError::io("open", path))?.len();
        if len == 0 {
            return Err(GgufError::Damaged {
                path: path.into(),
                offset: 0,
                reason: "the file is empty".into(),
            });
        }
        // SAFETY: files of weights are replaced and not changed, by this crate and by the ecosystem's other writers;
        // the documentation asks the same of callers.
        let map = unsafe { Mmap::map(&file) }.map_err(GgufError::io("map into memory", path))?;
        Self::parse(path, Bytes::from_owner(map))
    }

    /// Reads a file that is in memory; `path` is named in errors.
    ///
    /// # Errors
    /// [`GgufError::Damaged`].
    pub fn parse(path: &Path, map: Bytes) -> Result<Self> {
        parse(path, map).map_err(|Refused { offset, reason }| GgufError::Damaged {
            path: path.into(),
            offset,
            reason,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of it.
    pub fn map(&self) -> &Bytes {
        &self.map
    }

    /// Everything before the tensors' values: metadata, and names, shapes and types of tensors.
    pub fn head(&self) -> &[u8] {
        &self.map[..self.head]
    }

    /// The metadata, in the order of the file.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).map(|at| &self.metadata[*at].1)
    }

    /// The tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// A tensor's type, and its values as they are in the file.
    ///
    /// # Errors
    /// [`GgufError::Tensor`] for a type that this crate does not read.
    pub fn bytes<'a>(&'a self, tensor: &TensorInfo) -> Result<(TensorType, &'a [u8])> {
        let wrong =
            |reason: String| GgufError::Tensor { path: self.path.clone(), name: tensor.name.clone(), reason };
        let Some(kind) = tensor.kind() else {
            let known = TensorType::ALL.map(TensorType::name).join(", ");
            let found = tensor.type_name();
            return Err(wrong(format!("has type {found}, which is not supported; expected one of {known}")));
        };
        // Checked when the file was opened.
        let n_bytes = kind.n_bytes(tensor.shape.iter().product()).unwrap_or_default();
        match self.map.get(tensor.start..tensor.start + n_bytes) {
            Some(bytes) => Ok((kind, bytes)),
            None => Err(wrong("is not of this file".into())),
        }
    }

    /// A tensor's values.
    ///
    /// # Errors
    /// Those of [`bytes`](Self::bytes).
    pub fn values(&self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        self.bytes(tensor).map(|(kind, bytes)| kind.decode(bytes))
    }

    /// An error about a key.
    pub(crate) fn wrong(&self, key: &str, expected: impl Into<String>) -> GgufError {
        GgufError::Metadata {
            path: self.path.clone(),
            key: key.into(),
            found: self.get(key).map_or_else(|| "missing".into(), Value::shown),
            expected: expected.into(),
        }
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        what: &str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.get(key).map(|value| of(value).ok_or_else(|| self.wrong(key, what))).transpose()
    }

    /// A text.
    ///
    /// # Errors
    /// [`GgufError::Metadata`] for another type, as in the other methods.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", |value| match value {
            Value::Text(text) => Some(&**text),
            _ => None,
        })
    }

    /// A whole number.
    ///
    /// # Errors
    /// See [`text`](Self::text).
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |value| value.size()?.try_into().ok())
    }

    /// A finite number.
    ///
    /// # Errors
    /// See [`text`](Self::text).
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", |value| value.number().filter(|x| x.is_finite()))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// See [`text`](Self::text).
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A list of texts.
    ///
    /// # Errors
    /// See [`text`](Self::text).
    pub fn texts(&self, key: &str) -> Result<Option<&[String]>> {
        self.typed(key, "a list of texts", |value| match value {
            Value::Array(Array::Text(texts)) => Some(&**texts),
            _ => None,
        })
    }

    /// A value that has to be there.
    pub(crate) fn needed<T>(&self, key: &str, what: &str, value: Result<Option<T>>) -> Result<T> {
        value?.ok_or_else(|| self.wrong(key, what))
    }
}

fn parse(path: &Path, map: Bytes) -> std::result::Result<GgufFile, Refused> {
    let mut cursor = Cursor::new(&map);
    let at_start = |reason: String| Err(Refused { offset: 0, reason });
    let found: Vec<u8> = map.iter().copied().take(MAGIC.len()).collect();
    match &*found {
        found if found == MAGIC => {}
        // Formats of llama.cpp before GGUF, as they are in little-endian files.
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => {
            return at_start("a file of GGML, the format before GGUF; convert it with llama.cpp".into());
        }
        found => {
            let found = String::from_utf8_lossy(found);
            return at_start(format!(
                "not a GGUF file: it begins with `{}`, not `GGUF`",
                found.escape_debug()
            ));
        }
    }
    cursor.take(MAGIC.len(), "the file's beginning")?;
    let version_at = cursor.at;
    let at_version = |reason: String| Err(Refused { offset: version_at, reason });
    match cursor.u32("the version")? {
        2 | 3 => {}
        version if matches!(version.swap_bytes(), 1..=3) => {
            return at_version(
                "the file is big-endian, which is not supported; expected little-endian".into(),
            );
        }
        version => return at_version(format!("the version is {version}, expected 2 or 3")),
    }
    // A name's length, dimensions, type and offset; a key's length, a type, and a value of a byte.
    let n_tensors = cursor.count(24, "the number of tensors")?;
    let n_values = cursor.count(13, "the number of metadata values")?;

    let (mut metadata, mut keys) = (Vec::new(), HashMap::new());
    for _ in 0..n_values {
        let start = cursor.at;
        let key = cursor.text("a key")?.to_owned();
        if keys.insert(key.clone(), metadata.len()).is_some() {
            let reason = format!("the key `{}` is there twice", key.escape_debug());
            return Err(Refused { offset: start, reason });
        }
        let kind = cursor.u32("a type")?;
        let value = cursor.value(kind, &key)?;
        metadata.push((key, value));
    }
    let alignment = match keys.get(ALIGNMENT_KEY).map(|at| &metadata[*at].1) {
        None => ALIGNMENT,
        Some(value) => match value.size().and_then(|size| usize::try_from(size).ok()) {
            Some(size) if size.is_power_of_two() && size <= 1 << 20 => size,
            _ => {
                let shown = value.shown();
                return cursor.refused(format!("`{ALIGNMENT_KEY}` is {shown}, expected a power of two"));
            }
        },
    };

    let mut infos = Vec::new();
    let mut names = HashMap::new();
    for i in 0..n_tensors {
        let start = cursor.at;
        let name = cursor.text("a tensor's name")?.to_owned();
        let shown = name.escape_debug().to_string();
        if names.insert(name.clone(), i).is_some() {
            return Err(Refused { offset: start, reason: format!("tensor `{shown}` is there twice") });
        }
        let n_dims = cursor.u32("a tensor's number of dimensions")?;
        if n_dims > MAX_DIMS {
            cursor.at -= 4;
            return cursor
                .refused(format!("tensor `{shown}` has {n_dims} dimensions, expected at most {MAX_DIMS}"));
        }
        let dims_at = cursor.at;
        let dims = (0..n_dims)
            .map(|_| cursor.u64("a tensor's dimension"))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let type_id = cursor.u32("a tensor's type")?;
        let offset = cursor.u64("a tensor's offset")?;
        let shape: Option<Vec<usize>> = dims.iter().rev().map(|dim| usize::try_from(*dim).ok()).collect();
        let n_values =
            shape.as_ref().and_then(|shape| shape.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim)));
        let (Some(shape), Some(n_values)) = (shape, n_values) else {
            let reason = format!("tensor `{shown}` has shape {dims:?}, too large for any memory");
            return Err(Refused { offset: dims_at, reason });
        };
        let kind = TensorType::from_id(type_id);
        if let Some(kind) = kind
            && !shape.last().copied().unwrap_or(1).is_multiple_of(kind.block_len())
        {
            let (row, name, block) = (shape.last().copied().unwrap_or(1), kind.name(), kind.block_len());
            let reason =
                format!("tensor `{shown}` has rows of {row} values, and {name} has blocks of {block}");
            return Err(Refused { offset: dims_at, reason });
        }
        infos.push((start, name, shape, type_id, offset, kind.map(|kind| kind.n_bytes(n_values))));
    }

    // The last bytes before the values fill the file up to a multiple of the alignment.
    let head = cursor.at;
    let values_at = head.checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    let available = map.len().saturating_sub(values_at);
    let mut tensors = Vec::with_capacity(infos.len());
    for (at, name, shape, type_id, offset, n_bytes) in infos {
        let refused = |reason: &str| {
            Err(Refused { offset: at, reason: format!("tensor `{}` {reason}", name.escape_debug()) })
        };
        let Ok(offset) = usize::try_from(offset) else {
            return refused("begins beyond the end of the file");
        };
        if !offset.is_multiple_of(alignment) {
            return refused(&format!(
                "begins at {offset}, which is no multiple of the alignment, {alignment}"
            ));
        }
        // The size of a type that is not read is unknown: its tensor has to begin inside.
        let n_bytes = match n_bytes {
            Some(Some(n_bytes)) => n_bytes,
            Some(None) => return refused("is too large for any memory"),
            None => 0,
        };
        if offset.checked_add(n_bytes).is_none_or(|end| end > available) {
            return refused(&format!(
                "takes {n_bytes} bytes from {offset} on, and the file has {available} bytes of values"
            ));
        }
        tensors.push(TensorInfo { name, shape, type_id, start: values_at + offset });
    }
    Ok(GgufFile { path: path.into(), map: map.clone(), metadata, keys, tensors, head })
}
