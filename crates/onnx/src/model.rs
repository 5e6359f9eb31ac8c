use crate::error::Result;
use crate::graph::{Graph, Initializer, MICROSOFT, Numbers};
use crate::heads::ToOnnx;
use crate::proto::{
    EXTERNAL, GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use cloze_files::{FileError, flush, replace};
use cloze_model::bert::BertConfig;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The version of ONNX's operators: the first with `LayerNormalization`, which ONNX Runtime has since version 1.12 of July
/// 2022.
pub const OPSET: i64 = 17;

/// The version of the file format that came with these operators.
const IR_VERSION: i64 = 8;

/// The most bytes of a file with its numbers in it. A message of protocol buffers has less than 2 GiB; the rest is room for
/// what is no number.
pub const MAX_FILE_SIZE: usize = 2_000_000_000;

/// An ONNX model whose parameters are still those of the model that it was made of.
pub struct OnnxModel {
    graph: Graph,
}

impl OnnxModel {
    /// The graph of a model whose encoder has this configuration.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`](crate::OnnxError::Unsupported) for a part that has no ONNX form here.
    pub fn new(model: &impl ToOnnx, config: &BertConfig) -> Result<Self> {
        let mut graph = Graph::default();
        model.add_to(&mut graph, config)?;
        Ok(Self { graph })
    }

    /// A model of this graph.
    pub(crate) fn of(graph: Graph) -> Self {
        Self { graph }
    }

    /// The number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.graph.nodes.len()
    }

    /// Bytes of all parameters and constants.
    pub fn n_bytes(&self) -> usize {
        self.graph.initializers.iter().map(|one| one.n_bytes).sum()
    }

    /// Writes the model to a file. If it has more than [`MAX_FILE_SIZE`] bytes, its parameters are written to a second file,
    /// called like the first with `_data` at the end.
    ///
    /// # Errors
    /// [`OnnxError::File`](crate::OnnxError::File); then both files are what they were before.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.save_within(path, MAX_FILE_SIZE)
    }

    /// [`save`](Self::save) with another limit.
    ///
    /// # Errors
    /// Those of [`save`](Self::save).
    pub fn save_within(&self, path: &Path, max_file_size: usize) -> Result<()> {
        let failed = |error| FileError { action: "write", path: path.into(), source: error };
        let write = |partial: &Path, write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
            let mut file = BufWriter::new(File::create(partial).map_err(failed)?);
            write(&mut file).and_then(|()| file.flush()).map_err(failed)?;
            flush(partial)
        };
        let is_whole = self.n_bytes() <= max_file_size;
        if !is_whole {
            let data = data_path(path);
            replace(&data, |partial| write(partial, &|file| self.write_numbers(file)), failed)?;
        }
        let location = (!is_whole).then(|| data_path(path));
        Ok(replace(path, |partial| write(partial, &|file| self.write(file, location.as_deref())), failed)?)
    }

    /// Writes the messages, each initialiser by itself, so that no more than one is in memory besides the model.
    fn write(&self, file: &mut dyn Write, location: Option<&Path>) -> io::Result<()> {
        let Graph { nodes, inputs, outputs, initializers, .. } = &self.graph;
        let graph = GraphProto {
            node: nodes.clone(),
            name: "cloze".into(),
            initializer: Vec::new(),
            input: inputs.clone(),
            output: outputs.clone(),
        };
        let mut offset = 0;
        let declarations: Vec<TensorProto> = initializers
            .iter()
            .map(|one| {
                let declaration = declaration(one, location, offset);
                offset += padded(one.n_bytes);
                declaration
            })
            .collect();
        let sizes: Vec<usize> = initializers
            .iter()
            .zip(&declarations)
            .map(|(one, declaration)| match location {
                Some(_) => declaration.encoded_len(),
                None => declaration.encoded_len() + field_len(RAW_DATA, one.n_bytes),
            })
            .collect();
        let graph_len =
            graph.encoded_len() + sizes.iter().map(|size| field_len(INITIALIZER, *size)).sum::<usize>();
        let mut domains = vec![OperatorSetIdProto { domain: String::new(), version: OPSET }];
        if nodes.iter().any(|node| node.domain == MICROSOFT) {
            domains.push(OperatorSetIdProto { domain: MICROSOFT.into(), version: 1 });
        }
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "cloze".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            graph: None,
            opset_import: domains,
        };
        file.write_all(&model.encode_to_vec())?;
        write_field(file, GRAPH, graph_len)?;
        file.write_all(&graph.encode_to_vec())?;
        for ((one, declaration), size) in initializers.iter().zip(&declarations).zip(sizes) {
            write_field(file, INITIALIZER, size)?;
            file.write_all(&declaration.encode_to_vec())?;
            if location.is_none() {
                write_field(file, RAW_DATA, one.n_bytes)?;
                write_bytes(file, one)?;
            }
        }
        Ok(())
    }

    /// Writes all numbers, those of each initialiser from a multiple of [`ALIGNMENT`] on.
    fn write_numbers(&self, file: &mut dyn Write) -> io::Result<()> {
        for one in &self.graph.initializers {
            write_bytes(file, one)?;
            file.write_all(&vec![0; padded(one.n_bytes) - one.n_bytes])?;
        }
        Ok(())
    }
}

/// The numbers of fields, see `onnx.proto`.
const GRAPH: u32 = 7;
const INITIALIZER: u32 = 5;
const RAW_DATA: u32 = 9;

/// Where numbers in a file of their own may begin, as ONNX's format advises for mapped files.
const ALIGNMENT: usize = 4096;

fn padded(n_bytes: usize) -> usize {
    n_bytes.next_multiple_of(ALIGNMENT)
}

fn data_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push("_data");
    path.with_file_name(name)
}

/// An initialiser without its numbers, or with the place where they are.
fn declaration(one: &Initializer, location: Option<&Path>, offset: usize) -> TensorProto {
    let Some(location) = location else { return one.declaration.clone() };
    let name = location.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = [("location", name), ("offset", offset.to_string()), ("length", one.n_bytes.to_string())];
    let entry = |(key, value): (&str, String)| StringStringEntryProto { key: key.into(), value };
    TensorProto {
        external_data: entries.into_iter().map(entry).collect(),
        data_location: EXTERNAL,
        ..one.declaration.clone()
    }
}

/// The bytes of a field's key, of its length and of its contents.
fn field_len(number: u32, len: usize) -> usize {
    let mut key = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut key);
    key.len() + encoded_len_varint(len as u64) + len
}

/// Writes a field's key and the length of its contents.
fn write_field(file: &mut dyn Write, number: u32, len: usize) -> io::Result<()> {
    let mut head = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut head);
    encode_varint(len as u64, &mut head);
    file.write_all(&head)
}

fn write_bytes(file: &mut dyn Write, one: &Initializer) -> io::Result<()> {
    match &one.numbers {
        Numbers::Bytes(bytes) => file.write_all(bytes),
        Numbers::Made(bytes) => file.write_all(&bytes()),
        Numbers::Model(read) => {
            let data = read();
            let bytes = match cfg!(target_endian = "little") {
                true => Cow::Borrowed(data.as_bytes()),
                false => data.iter::<f32>().flat_map(f32::to_le_bytes).collect(),
            };
            file.write_all(&bytes)
        }
    }
}
