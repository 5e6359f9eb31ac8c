//! Writes a file, one tensor after the other.

use crate::file::{ALIGNMENT, MAGIC};
use crate::{Array, GgufError, Result, TensorType, Value};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The version that is written.
const VERSION: u32 = 3;

/// A tensor to write.
pub struct NewTensor<'a> {
    /// Its name.
    pub name: String,
    /// Its dimensions, the last of which varies fastest.
    pub shape: Vec<usize>,
    /// The type that it is stored as. Its blocks have to divide the last dimension.
    pub kind: TensorType,
    /// What is in it.
    pub contents: Contents<'a>,
}

/// What is in a tensor: a function that is called once, so that no more than one tensor is in memory.
pub enum Contents<'a> {
    /// Values, which are encoded as the tensor's type.
    Values(Box<dyn Fn() -> Cow<'a, [f32]> + 'a>),
    /// Blocks of the tensor's type.
    Blocks(Box<dyn Fn() -> Vec<u8> + 'a>),
}

/// Writes a file of version 3. It is written beside its place, and renamed.
///
/// # Errors
/// [`GgufError::Io`]; [`GgufError::Tensor`] for a value that is not finite, or would not be in its type.
///
/// # Panics
/// If a tensor's values or blocks do not fill its shape, or its blocks do not divide its rows.
pub fn write(path: &Path, metadata: &[(String, Value)], tensors: &[NewTensor]) -> Result<()> {
    let save = |partial: &Path| {
        let file = File::create(partial).map_err(GgufError::io("write", path))?;
        let mut to = Output { to: BufWriter::with_capacity(1 << 20, file), at: 0, path };
        to.all(metadata, tensors)?;
        let file = to.to.into_inner().map_err(|error| GgufError::io("write", path)(error.into_error()))?;
        file.sync_all().map_err(GgufError::io("write", path))
    };
    cloze_files::replace(path, save, GgufError::io("write", path))
}

struct Output<'a> {
    to: BufWriter<File>,
    at: usize,
    path: &'a Path,
}

impl Output<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len();
        self.to.write_all(bytes).map_err(GgufError::io("write", self.path))
    }

    fn pad(&mut self) -> Result<()> {
        self.bytes(&[0; ALIGNMENT][..self.at.next_multiple_of(ALIGNMENT) - self.at])
    }

    fn all(&mut self, metadata: &[(String, Value)], tensors: &[NewTensor]) -> Result<()> {
        let mut head = Vec::new();
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        put_len(&mut head, tensors.len());
        put_len(&mut head, metadata.len());
        for (key, value) in metadata {
            put_text(&mut head, key);
            put_value(&mut head, value);
        }
        let mut offset = 0usize;
        for NewTensor { name, shape, kind, .. } in tensors {
            put_text(&mut head, name);
            head.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|dim| put_len(&mut head, *dim));
            head.extend(kind.id().to_le_bytes());
            put_len(&mut head, offset);
            offset = (offset + n_bytes(shape, *kind)).next_multiple_of(ALIGNMENT);
        }
        self.bytes(&head)?;
        let mut coded = Vec::new();
        for NewTensor { name, shape, kind, contents } in tensors {
            self.pad()?;
            let values = match contents {
                Contents::Values(values) => values(),
                Contents::Blocks(blocks) => {
                    let blocks = blocks();
                    assert_eq!(blocks.len(), n_bytes(shape, *kind), "the blocks of `{name}` fill its shape");
                    self.bytes(&blocks)?;
                    continue;
                }
            };
            let limit = kind.greatest();
            if let Some((i, x)) = values.iter().enumerate().find(|(_, x)| !x.is_finite() || x.abs() > limit) {
                let reason = match x.is_finite() {
                    true => format!("has the value {x} at {i}, which {} cannot hold", kind.name()),
                    false => format!("has the value {x} at {i}, expected finite values"),
                };
                return Err(GgufError::Tensor { path: self.path.into(), name: name.clone(), reason });
            }
            coded.clear();
            kind.encode(&values, &mut coded);
            assert_eq!(coded.len(), n_bytes(shape, *kind), "the values of `{name}` fill its shape");
            self.bytes(&coded)?;
        }
        self.pad()
    }
}

fn n_bytes(shape: &[usize], kind: TensorType) -> usize {
    kind.n_bytes(shape.iter().product()).expect("blocks divide the rows of a tensor")
}

fn put_len(to: &mut Vec<u8>, len: usize) {
    to.extend((len as u64).to_le_bytes());
}

fn put_text(to: &mut Vec<u8>, text: &str) {
    put_len(to, text.len());
    to.extend(text.as_bytes());
}

fn put_value(to: &mut Vec<u8>, value: &Value) {
    let mut put = |kind: u32, bytes: &[u8]| {
        to.extend(kind.to_le_bytes());
        to.extend(bytes);
    };
    match value {
        Value::U8(x) => put(0, &x.to_le_bytes()),
        Value::I8(x) => put(1, &x.to_le_bytes()),
        Value::U16(x) => put(2, &x.to_le_bytes()),
        Value::I16(x) => put(3, &x.to_le_bytes()),
        Value::U32(x) => put(4, &x.to_le_bytes()),
        Value::I32(x) => put(5, &x.to_le_bytes()),
        Value::F32(x) => put(6, &x.to_le_bytes()),
        Value::Bool(x) => put(7, &[u8::from(*x)]),
        Value::Text(text) => {
            put(8, &[]);
            put_text(to, text);
        }
        Value::Array(array) => {
            put(9, &[]);
            put_array(to, array);
        }
        Value::U64(x) => put(10, &x.to_le_bytes()),
        Value::I64(x) => put(11, &x.to_le_bytes()),
        Value::F64(x) => put(12, &x.to_le_bytes()),
    }
}

fn put_array(to: &mut Vec<u8>, array: &Array) {
    to.extend(array.type_id().to_le_bytes());
    put_len(to, array.len());
    match array {
        Array::U8(all) => to.extend(all),
        Array::I8(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::U16(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I16(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::U32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::F32(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::Bool(all) => to.extend(all.iter().map(|x| u8::from(*x))),
        Array::Text(all) => all.iter().for_each(|text| put_text(to, text)),
        Array::Array(all) => all.iter().for_each(|array| put_array(to, array)),
        Array::U64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::I64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
        Array::F64(all) => to.extend(all.iter().flat_map(|x| x.to_le_bytes())),
    }
}
