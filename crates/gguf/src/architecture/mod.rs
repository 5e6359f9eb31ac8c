//! The kinds of models, by llama.cpp's names: which keys and tensors they have, and how those of a folder in Hugging Face's
//! format correspond to them (llama.cpp's `convert_hf_to_gguf.py`).

mod bert;
mod config;
mod gpt2;
mod heads;
mod layout;
mod llama;
mod names;
mod nomic_bert;

pub use layout::Layout;
pub use names::Sizes;

use crate::{GgufError, GgufFile, Result, Value};
use config::Config;
use heads::Heads;
pub(crate) use heads::Partial;
use names::{Kind, Name, find};
use serde_json::{Map, Value as Json, json};

/// A kind of model that llama.cpp has a name for and this crate reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// BERT.
    Bert,
    /// NomicBERT.
    NomicBert,
    /// GPT-2.
    Gpt2,
    /// Llama; Mistral without a window.
    Llama,
}

/// The metadata of a file that is being written.
pub(crate) struct Metadata {
    architecture: Architecture,
    pub values: Vec<(String, Value)>,
}

impl Metadata {
    pub fn new(architecture: Architecture) -> Self {
        Self { architecture, values: Vec::new() }
    }

    pub fn put(&mut self, key: impl Into<String>, value: Value) {
        self.values.push((key.into(), value));
    }

    /// A key of the architecture.
    pub fn own(&mut self, key: &str, value: Value) {
        self.put(format!("{}.{key}", self.architecture.name()), value);
    }
}

/// Tensors that are in no folder, by their names in GGUF.
type NewTensors = Vec<(String, Vec<f32>)>;

/// What a folder's configuration gives.
pub(crate) struct Written {
    pub sizes: Sizes,
    pub metadata: Metadata,
    pub tensors: NewTensors,
    /// The heads that layers lack.
    pub heads: Heads,
}

/// The place of a folder's tensor in a GGUF file, or the other way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name in the other format.
    pub name: String,
    /// The shape in the GGUF file.
    pub gguf_shape: Vec<usize>,
    /// How it is laid out there.
    pub layout: Layout,
}

impl Architecture {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Bert, Self::NomicBert, Self::Gpt2, Self::Llama];

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::NomicBert => "nomic-bert",
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
        }
    }

    /// Whether it is a model of language, from left to right, and not an encoder.
    pub fn is_causal(self) -> bool {
        matches!(self, Self::Gpt2 | Self::Llama)
    }

    fn names(self) -> &'static [Name] {
        match self {
            Self::Bert => &bert::NAMES,
            Self::NomicBert => &nomic_bert::NAMES,
            Self::Gpt2 => &gpt2::NAMES,
            Self::Llama => &llama::NAMES,
        }
    }

    /// What may stand before the names of a folder's tensors.
    fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Bert => &["bert."],
            Self::NomicBert => &["nomic_bert.", "bert."],
            Self::Gpt2 => &["transformer."],
            Self::Llama => &[],
        }
    }

    /// The kind of a model with this `config.json`.
    ///
    /// # Errors
    /// [`GgufError::Export`] for a model that llama.cpp has no name for.
    pub fn of_folder(config: &Map<String, Json>) -> Result<Self> {
        match config.get("model_type").and_then(Json::as_str) {
            Some("bert") => Ok(Self::Bert),
            Some("nomic_bert") => Ok(Self::NomicBert),
            Some("gpt2") => Ok(Self::Gpt2),
            Some("llama" | "mistral") => Ok(Self::Llama),
            found => Err(GgufError::Export(format!(
                "its `model_type` is {}; expected one of bert, nomic_bert, gpt2, llama, mistral",
                found.map_or_else(|| "missing".into(), |name| format!("\"{}\"", name.escape_debug()))
            ))),
        }
    }

    /// The kind of a file's model.
    ///
    /// # Errors
    /// [`GgufError::Metadata`] for a file without one, or of a kind that this crate does not read.
    pub fn of_file(file: &GgufFile) -> Result<Self> {
        const KEY: &str = "general.architecture";
        let name = file.text(KEY)?.unwrap_or_default();
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            file.wrong(KEY, format!("one of {known}: other models are not supported"))
        })
    }

    /// The keys of a file, of a folder's `config.json`.
    pub(crate) fn write(self, config: &Map<String, Json>) -> Result<Written> {
        let config = Config(config);
        if self != Self::Bert {
            Heads::refuse(config)?;
        }
        let mut metadata = Metadata::new(self);
        let (sizes, tensors) = match self {
            Self::Bert => (bert::write(config, &mut metadata)?, Vec::new()),
            Self::NomicBert => (nomic_bert::write(config, &mut metadata)?, Vec::new()),
            Self::Gpt2 => (gpt2::write(config, &mut metadata)?, Vec::new()),
            Self::Llama => llama::write(config, &mut metadata)?,
        };
        let heads = if self == Self::Bert { Heads::read(config, &sizes)? } else { Heads::default() };
        Ok(Written { sizes, metadata, tensors, heads })
    }

    /// The sizes of a file's model, and its `config.json`. Keys of the architecture that this crate does not follow are
    /// copied to it, so that whoever reads the folder names them.
    pub(crate) fn read(self, file: &GgufFile) -> Result<(Sizes, Map<String, Json>)> {
        let mut config = Map::new();
        let sizes = match self {
            Self::Bert => bert::read(file, &mut config)?,
            Self::NomicBert => nomic_bert::read(file, &mut config)?,
            Self::Gpt2 => gpt2::read(file, &mut config)?,
            Self::Llama => llama::read(file, &mut config)?,
        };
        let own = format!("{}.", self.name());
        for (key, value) in file.metadata() {
            if let Some(name) = key.strip_prefix(&own)
                && !FOLLOWED.contains(&name)
            {
                config.insert(key.clone(), value.shown().into());
            }
        }
        Ok((sizes, config))
    }

    /// Where a folder's tensor is in a file; none for one that has no place there, and that llama.cpp leaves out.
    ///
    /// # Errors
    /// [`GgufError::Export`] for a tensor of another part of a model, such as a classifier's.
    pub(crate) fn to_gguf(self, sizes: &Sizes, tensor: &str) -> Result<Option<Place>> {
        let mut name = tensor;
        for prefix in self.prefixes() {
            name = name.strip_prefix(prefix).unwrap_or(name);
        }
        // Names of the norms in checkpoints from before PyTorch.
        let renamed = match (name.strip_suffix(".gamma"), name.strip_suffix(".beta")) {
            (Some(name), _) => format!("{name}.weight"),
            (_, Some(name)) => format!("{name}.bias"),
            _ => name.to_owned(),
        };
        let is_left_out = match self {
            Self::Bert | Self::NomicBert => bert::is_left_out(name),
            Self::Gpt2 => gpt2::is_left_out(name),
            Self::Llama => llama::is_left_out(name),
        };
        if is_left_out {
            return Ok(None);
        }
        match find(self.names(), &renamed, |name| name.folder, |name| name.gguf) {
            Some((entry, name, part)) => {
                Ok(Some(Place { name, gguf_shape: entry.shape(sizes, part), layout: entry.layout(sizes) }))
            }
            None => Err(GgufError::Export(format!(
                "its tensor `{}` has no place in llama.cpp's `{}`: expected a model without another head",
                tensor.escape_debug(),
                self.name()
            ))),
        }
    }

    /// Where a file's tensor is in a folder; none for one that `config.json` describes.
    ///
    /// # Errors
    /// [`GgufError::Tensor`] for a tensor that this crate does not know, or that has another shape than its keys say.
    pub(crate) fn to_folder(self, file: &GgufFile, sizes: &Sizes, at: usize) -> Result<Option<Place>> {
        let tensor = &file.tensors()[at];
        if self == Self::Llama && tensor.name == llama::FACTORS {
            return Ok(None);
        }
        let wrong = |reason: String| GgufError::Tensor {
            path: file.path().into(),
            name: tensor.name.clone(),
            reason,
        };
        let found = find(self.names(), &tensor.name, |name| name.gguf, |name| name.folder);
        let Some((entry, name, part)) = found else {
            return Err(wrong(format!(
                "has no place in the architecture `{}`, as this crate reads it",
                self.name()
            )));
        };
        let gguf_shape = entry.shape(sizes, part);
        if tensor.shape != gguf_shape {
            let found = &tensor.shape;
            return Err(wrong(format!("has shape {found:?}, the metadata asks for {gguf_shape:?}")));
        }
        Ok(Some(Place { name, gguf_shape, layout: entry.layout(sizes) }))
    }

    /// The names in GGUF of the tensors that a model of these sizes needs.
    pub(crate) fn needed(self, sizes: &Sizes) -> Vec<String> {
        let needed = self.names().iter().filter(|name| !matches!(name.kind, Kind::Optional));
        let of_layers = |name: &Name| match name.gguf.contains('*') {
            false => vec![format!("{}.weight", name.gguf)],
            true => (0..sizes.n_layers)
                .map(|n| format!("{}.weight", name.gguf.replace('*', &n.to_string())))
                .collect(),
        };
        needed.flat_map(of_layers).collect()
    }
}

/// Keys of an architecture that this crate follows, or that say nothing more than others.
const FOLLOWED: &[&str] = &[
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "moe_every_n_layers",
    "pooling_type",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
];

/// The keys of sizes that all architectures have.
fn write_sizes(sizes: &Sizes, to: &mut Metadata) {
    to.own("block_count", Value::U32(sizes.n_layers as u32));
    to.own("context_length", Value::U32(sizes.max_positions as u32));
    to.own("embedding_length", Value::U32(sizes.d_model as u32));
    to.own("feed_forward_length", Value::U32(sizes.d_ff as u32));
    to.own("attention.head_count", Value::U32(sizes.n_heads as u32));
    if sizes.n_kv_heads != sizes.n_heads {
        to.own("attention.head_count_kv", Value::U32(sizes.n_kv_heads as u32));
    }
}

/// A key of the architecture of a file, whose name is known.
fn key(file: &GgufFile, name: &str) -> String {
    format!("{}.{name}", file.text("general.architecture").ok().flatten().unwrap_or_default())
}

fn read_sizes(file: &GgufFile) -> Result<Sizes> {
    // More of anything is a damaged file, and would overflow what is computed of it.
    const MOST: usize = 1 << 24;
    let size = |name: &str, default: Option<usize>| {
        let key = key(file, name);
        match file.size(&key)?.or(default) {
            Some(size) if (1..=MOST).contains(&size) => Ok(size),
            _ => Err(file.wrong(&key, format!("a whole number from 1 to {MOST}"))),
        }
    };
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let tokens = file.needed(TOKENS, "the pieces of the vocabulary", file.texts(TOKENS))?;
    let (d_model, n_heads) = (size("embedding_length", None)?, size("attention.head_count", None)?);
    let n_kv_heads = size("attention.head_count_kv", Some(n_heads))?;
    let d_head = match d_model.is_multiple_of(n_heads) {
        true => size("attention.key_length", Some(d_model / n_heads))?,
        false => size("attention.key_length", None)?,
    };
    if !n_heads.is_multiple_of(n_kv_heads) {
        let expected = format!("a divisor of the number of heads, {n_heads}");
        return Err(file.wrong(&key(file, "attention.head_count_kv"), expected));
    }
    if size("attention.value_length", Some(d_head))? != d_head {
        return Err(
            file.wrong(&key(file, "attention.value_length"), format!("{d_head}, the width of the keys"))
        );
    }
    let n_layers = size("block_count", None)?;
    let n_tensors = file.tensors().len();
    if n_layers > n_tensors {
        let expected = format!("a number of layers that the file has tensors for: it has {n_tensors}");
        return Err(file.wrong(&key(file, "block_count"), expected));
    }
    Ok(Sizes {
        vocab_size: tokens.len(),
        n_layers,
        d_model,
        n_heads,
        n_kv_heads,
        d_head,
        d_ff: size("feed_forward_length", None)?,
        max_positions: size("context_length", None)?,
        n_types: 0,
    })
}

/// Rotary positions in a `config.json`.
struct Rope<'a> {
    /// The base of the angles, where the file says it.
    theta: Option<f64>,
    /// How they are scaled.
    scaling: Option<&'a Map<String, Json>>,
}

/// The rotary positions of a `config.json` of transformers 4 or 5.
fn rope(config: Config<'_>) -> Result<Rope<'_>> {
    let object = |key: &'static str| match config.value(&[key]) {
        None => Ok(None),
        Some((_, value)) => {
            value.as_object().map(Some).ok_or_else(|| config.refuse(key, "an object, or null"))
        }
    };
    let parameters = object("rope_parameters")?;
    let within = parameters.and_then(|parameters| parameters.get("rope_theta")).and_then(Json::as_f64);
    let theta = match config.number(&["rope_theta", "rotary_emb_base"], f64::NAN)? {
        theta if theta.is_nan() => within,
        theta => Some(theta),
    };
    let scaling = object("rope_scaling")?.or(parameters);
    Ok(Rope { theta, scaling: scaling.filter(|scaling| rope_type(scaling) != Some("default")) })
}

/// The type of a scaling; of one without, the default.
fn rope_type(scaling: &Map<String, Json>) -> Option<&str> {
    match scaling.get("rope_type").or_else(|| scaling.get("type")) {
        None => Some("default"),
        Some(name) => name.as_str(),
    }
}

/// Adds a file's base of rotary angles to a `config.json`, and their scaling; returns the base.
fn read_rope(file: &GgufFile, sizes: &Sizes, to: &mut Map<String, Json>) -> Result<f64> {
    let base = key(file, "rope.freq_base");
    let theta = file.number(&base)?.unwrap_or(10_000.0);
    if theta <= 0.0 {
        return Err(file.wrong(&base, "a number above 0"));
    }
    let rotated = key(file, "rope.dimension_count");
    if file.size(&rotated)?.is_some_and(|rotated| rotated != sizes.d_head) {
        return Err(file.wrong(&rotated, format!("{}, the width of a head", sizes.d_head)));
    }
    to.insert("rope_theta".into(), json!(theta));
    let kind = key(file, "rope.scaling.type");
    match file.text(&kind)? {
        None | Some("none") => {}
        Some("linear") => {
            let key = key(file, "rope.scaling.factor");
            let factor = file.needed(&key, "a number", file.number(&key))?;
            to.insert("rope_scaling".into(), json!({ "rope_type": "linear", "factor": factor }));
        }
        Some(_) => return Err(file.wrong(&kind, "\"none\" or \"linear\"")),
    }
    Ok(theta)
}

/// Adds the ids of the pieces that begin and end a text to a `config.json`.
fn read_ends(file: &GgufFile, to: &mut Map<String, Json>) -> Result<()> {
    for (key, name) in
        [("tokenizer.ggml.bos_token_id", "bos_token_id"), ("tokenizer.ggml.eos_token_id", "eos_token_id")]
    {
        to.insert(name.into(), file.size(key)?.map_or(Json::Null, Json::from));
    }
    Ok(())
}
