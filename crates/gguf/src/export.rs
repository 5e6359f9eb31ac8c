//! A folder's model, written as a file that llama.cpp reads.

use crate::architecture::{Architecture, Layout, Partial, Place, Written};
use crate::tokenizer::{self, Source};
use crate::{Blocks, Contents, GgufError, NewTensor, Result, TensorType, Value, write};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// How an encoder's states become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first one.
    Cls,
    /// The last one.
    Last,
}

impl Pooling {
    const ALL: [(Self, u32); 3] = [(Self::Mean, 1), (Self::Cls, 2), (Self::Last, 3)];

    /// llama.cpp's number.
    fn id(self) -> u32 {
        Self::ALL.iter().find(|(pooling, _)| *pooling == self).map_or(0, |(_, id)| *id)
    }

    pub(crate) fn from_id(id: usize) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known as usize == id).map(|(pooling, _)| *pooling)
    }
}

/// How sentences become vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentence {
    /// How states become one vector.
    pub pooling: Pooling,
    /// Whether vectors are scaled to length 1. llama.cpp leaves that to the program that asks for vectors.
    pub normalize: bool,
    /// The greatest number of tokens, with special ones; none: all positions.
    pub max_len: Option<usize>,
}

/// The keys of a file that llama.cpp has none for.
pub(crate) const NORMALIZE: &str = "cloze.embedding.normalize";
pub(crate) const MAX_LEN: &str = "cloze.embedding.max_tokens";

/// A tensor of a folder.
#[derive(Debug, Clone)]
pub struct FolderTensor<'a> {
    /// Its name in the folder's files.
    pub name: &'a str,
    /// Its dimensions, the last of which varies fastest.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values<'a>,
}

/// The values of a folder's tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Values<'a> {
    /// Floats.
    Floats(Cow<'a, [f32]>),
    /// Blocks of integers.
    Blocks(Blocks<'a>),
}

impl Values<'_> {
    fn floats(&self) -> Cow<'_, [f32]> {
        match self {
            Self::Floats(values) => Cow::Borrowed(values),
            Self::Blocks(blocks) => blocks.values().into(),
        }
    }
}

/// What a folder holds.
#[derive(Debug, Clone)]
pub struct Model<'a> {
    /// The name to write into the file.
    pub name: &'a str,
    /// `config.json`.
    pub config: &'a Map<String, Json>,
    /// `tokenizer.json`.
    pub tokenizer: &'a Json,
    /// `tokenizer_config.json`.
    pub tokenizer_config: &'a Json,
    /// How sentences become vectors, where the folder says it.
    pub sentence: Option<Sentence>,
    /// The weights.
    pub tensors: Vec<FolderTensor<'a>>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kind of model.
    pub architecture: Architecture,
    /// The number of tensors.
    pub n_tensors: usize,
    /// The type of most matrices and tables.
    pub weights: TensorType,
    /// Matrices of blocks whose integers are the folder's.
    pub n_kept: usize,
    /// Matrices in FP16 in place of blocks, because 32 does not divide their rows, by their names in the file.
    pub in_f16: Vec<String>,
    /// Tensors of the folder that were not written, because llama.cpp computes nothing with them.
    pub left_out: Vec<String>,
    /// What llama.cpp does otherwise.
    pub notes: Vec<String>,
}

/// Writes a model as a GGUF file, with matrices and tables as `weights`; norms, biases, positions and token types stay in
/// FP32, as llama.cpp's converter leaves them. A folder's blocks of this type go into the file as they are, bit for bit;
/// without a type all blocks do, and other matrices and tables are FP16. Heads that layers lack are written as zeros, which
/// give the same answers.
///
/// # Errors
/// [`GgufError::Export`] for a model that GGUF has no name for, or that llama.cpp would compute differently; those of
/// [`write()`].
pub fn export(path: &Path, model: &Model, weights: Option<TensorType>) -> Result<Report> {
    let architecture = Architecture::of_folder(model.config)?;
    let Written { sizes, mut metadata, tensors: extra, heads } =
        architecture.write(&with_vocab_size(architecture, model))?;
    let asked = weights;
    let rest = asked.unwrap_or(TensorType::F16);
    let weights = asked.or_else(|| most_blocks(model)).unwrap_or(rest);
    let kept = |blocks: &Blocks| asked.is_none_or(|asked| blocks.kind() == asked);
    let mut head = vec![
        ("general.architecture".to_owned(), Value::Text(architecture.name().into())),
        ("general.type".into(), Value::Text("model".into())),
        ("general.name".into(), Value::Text(model.name.into())),
        ("general.file_type".into(), Value::U32(file_type(weights))),
        ("general.quantization_version".into(), Value::U32(2)),
    ];
    if let Some(sentence) = model.sentence {
        metadata.own("pooling_type", Value::U32(sentence.pooling.id()));
        metadata.put(NORMALIZE, Value::Bool(sentence.normalize));
        if let Some(len) = sentence.max_len {
            metadata.put(MAX_LEN, Value::U32(len as u32));
        }
    }
    let source =
        Source { json: model.tokenizer, config: model.tokenizer_config, vocab_size: sizes.vocab_size };
    let notes = tokenizer::write(&source, &mut metadata)?;
    head.append(&mut metadata.values);

    let mut report = Report {
        architecture,
        n_tensors: 0,
        weights,
        n_kept: 0,
        in_f16: Vec::new(),
        left_out: Vec::new(),
        notes,
    };
    let mut placed = BTreeMap::new();
    for tensor in &model.tensors {
        let Some(place) = architecture.to_gguf(&sizes, tensor.name)? else {
            report.left_out.push(tensor.name.to_owned());
            continue;
        };
        let partial = heads.of(&place.name, &place.gguf_shape, &sizes);
        let expected = match &partial {
            Some(partial) => partial.shape.clone(),
            None => place.layout.shape(&place.gguf_shape),
        };
        if tensor.shape != expected {
            return Err(GgufError::Export(format!(
                "its tensor `{}` has shape {:?}, the configuration asks for {expected:?}",
                tensor.name.escape_debug(),
                tensor.shape
            )));
        }
        if let Some((other, ..)) = placed.insert(place.name.clone(), (tensor, place, partial)) {
            let (a, b) = (other.name.escape_debug(), tensor.name.escape_debug());
            return Err(GgufError::Export(format!("its tensors `{a}` and `{b}` have the same place")));
        }
    }
    // llama.cpp takes the table of embeddings in its place.
    let table = placed.get("token_embd.weight").map(|(tensor, ..)| &tensor.values);
    if placed.get("output.weight").is_some_and(|(tensor, ..)| Some(&tensor.values) == table) {
        placed.remove("output.weight");
    }
    if let Some(missing) = architecture.needed(&sizes).iter().find(|name| !placed.contains_key(*name)) {
        return Err(GgufError::Export(format!("it has no tensor for `{missing}`")));
    }
    let mut tensors: Vec<NewTensor> = Vec::new();
    for (name, values) in &extra {
        let values = values.as_slice();
        tensors.push(NewTensor {
            name: name.clone(),
            shape: vec![values.len()],
            kind: TensorType::F32,
            contents: Contents::Values(Box::new(move || values.into())),
        });
    }
    for (name, (tensor, Place { gguf_shape, layout, .. }, partial)) in placed {
        let contents = match &tensor.values {
            Values::Blocks(blocks) if kept(blocks) && !stays_whole(&name, &gguf_shape) => {
                blocks_of(*blocks, &tensor.shape, layout, partial.clone())
                    .map(|contents| (contents, blocks.kind()))
            }
            _ => None,
        };
        let (contents, kind) = match contents {
            Some(found) => {
                report.n_kept += 1;
                found
            }
            None => {
                let kind = kind_of(&name, &gguf_shape, rest);
                if kind != rest && rest.block_len() > 1 && kind == TensorType::F16 {
                    report.in_f16.push(name.clone());
                }
                (Contents::Values(Box::new(move || values_of(tensor, layout, partial.as_ref()))), kind)
            }
        };
        tensors.push(NewTensor { name, shape: gguf_shape, kind, contents });
    }
    report.n_tensors = tensors.len();
    write(path, &head, &tensors)?;
    Ok(report)
}

/// The type of most of a folder's blocks.
fn most_blocks(model: &Model) -> Option<TensorType> {
    let kinds = [TensorType::Q4_0, TensorType::Q8_0];
    let of_kind = |kind: TensorType| {
        let lengths = model.tensors.iter().map(|tensor| match &tensor.values {
            Values::Blocks(blocks) if blocks.kind() == kind => blocks.len(),
            _ => 0,
        });
        lengths.sum::<usize>()
    };
    kinds.into_iter().filter(|kind| of_kind(*kind) > 0).max_by_key(|kind| of_kind(*kind))
}

/// The blocks of a folder's matrix of this shape; none if they are not blocks in a GGUF file.
fn blocks_of<'a>(
    blocks: Blocks<'a>,
    shape: &[usize],
    layout: Layout,
    partial: Option<Partial>,
) -> Option<Contents<'a>> {
    let (kind, n_rows) = (blocks.kind(), *shape.first()?);
    if layout == Layout::Transposed
        || partial.as_ref().is_some_and(|part| !part.keeps_blocks(kind.block_len()))
    {
        return None;
    }
    Some(Contents::Blocks(Box::new(move || {
        let bytes = layout.blocks_to_gguf(blocks.coded(), n_rows).expect("its rows are those of the file");
        match &partial {
            Some(partial) => partial.filled(&bytes, kind.block_bytes(), kind.block_len()),
            None => bytes,
        }
    })))
}

/// The values of a folder's tensor for a file.
fn values_of<'a>(tensor: &'a FolderTensor, layout: Layout, partial: Option<&Partial>) -> Cow<'a, [f32]> {
    let values = tensor.values.floats();
    let values = match partial {
        Some(partial) => return partial.filled(&values, 1, 1).into(),
        None => values,
    };
    match values {
        Cow::Borrowed(values) => layout.to_gguf(values, &tensor.shape),
        Cow::Owned(values) => layout.to_gguf(&values, &tensor.shape).into_owned().into(),
    }
}

/// The configuration with the number of rows of the embedding table, which may be padded.
fn with_vocab_size(architecture: Architecture, model: &Model) -> Map<String, Json> {
    let mut config = model.config.clone();
    let is_table = |tensor: &&FolderTensor| {
        let place = architecture.to_gguf(&Default::default(), tensor.name);
        matches!(place, Ok(Some(place)) if place.name == "token_embd.weight")
    };
    if let Some(rows) = model.tensors.iter().find(is_table).and_then(|table| table.shape.first()) {
        config.insert("vocab_size".into(), (*rows).into());
    }
    config
}

/// The type of a tensor, as llama.cpp's converter chooses it.
fn kind_of(name: &str, shape: &[usize], weights: TensorType) -> TensorType {
    match shape.last() {
        _ if stays_whole(name, shape) => TensorType::F32,
        Some(width) if !width.is_multiple_of(weights.block_len()) => TensorType::F16,
        _ => weights,
    }
}

/// Whether a tensor is in FP32 in all files.
fn stays_whole(name: &str, shape: &[usize]) -> bool {
    shape.len() < 2
        || !name.ends_with(".weight")
        || ["position_embd.weight", "token_types.weight"].contains(&name)
}

/// llama.cpp's number of a file whose matrices have a type.
fn file_type(weights: TensorType) -> u32 {
    match weights {
        TensorType::F32 => 0,
        TensorType::F16 => 1,
        TensorType::Q4_0 => 2,
        TensorType::Q8_0 => 7,
        TensorType::Bf16 => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_llama_cpp() {
        use TensorType::{F16, F32, Q4_0};
        for (name, shape, expected) in [
            ("blk.0.attn_q.weight", vec![64, 64], Q4_0),
            ("blk.0.attn_q.weight", vec![64, 48], F16),
            ("blk.0.attn_q.bias", vec![64], F32),
            ("output_norm.weight", vec![64], F32),
            ("token_types.weight", vec![2, 64], F32),
            ("position_embd.weight", vec![512, 64], F32),
            ("token_embd.weight", vec![512, 64], Q4_0),
        ] {
            assert_eq!(kind_of(name, &shape, Q4_0), expected, "{name}");
        }
        assert_eq!(kind_of("blk.0.attn_q.weight", &[64, 48], TensorType::Bf16), TensorType::Bf16);
    }
}
