//! A file as a folder in Hugging Face's format.
//!
//! All readers of models read folders, so a file becomes one: its `config.json`, its tokenizer and its pooling are written
//! anew, a few megabytes, and its weights are a link, [`WEIGHTS`], that is read in place. A file of a gigabyte therefore takes
//! no more time and disk than its tokenizer, and blocks of integers stay as small on disk as they are.

use crate::architecture::{Architecture, Place, Sizes};
use crate::export::{MAX_LEN, NORMALIZE, Pooling};
use crate::{GgufError, GgufFile, Result, TensorInfo, tokenizer};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The link to the file in its folder.
pub const WEIGHTS: &str = "model.gguf";

/// A file with a model that this crate knows.
#[derive(Debug)]
pub struct ModelFile {
    file: GgufFile,
    architecture: Architecture,
    sizes: Sizes,
    config: serde_json::Map<String, Json>,
}

impl ModelFile {
    /// Opens a file, see [`GgufFile::open`].
    ///
    /// # Errors
    /// Those of [`GgufFile::open`]; [`GgufError::Metadata`] for a kind of model, or a setting, that this crate does not
    /// support.
    pub fn open(path: &Path) -> Result<Self> {
        let file = GgufFile::open(path)?;
        let architecture = Architecture::of_file(&file)?;
        let (sizes, config) = architecture.read(&file)?;
        Ok(Self { file, architecture, sizes, config })
    }

    /// The file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// The kind of model.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// The tensors with their places in a folder.
    ///
    /// # Errors
    /// [`GgufError::Tensor`] for a tensor that has none, or another shape than the metadata says.
    pub fn tensors(&self) -> Result<Vec<(&TensorInfo, Place)>> {
        let mut tensors = Vec::with_capacity(self.file.tensors().len());
        for (at, tensor) in self.file.tensors().iter().enumerate() {
            if let Some(place) = self.architecture.to_folder(&self.file, &self.sizes, at)? {
                tensors.push((tensor, place));
            }
        }
        Ok(tensors)
    }

    /// The files of a folder, but for the weights.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let pretty = |json: &Json| format!("{json:#}\n").into_bytes();
        let max_positions = self.sizes.max_positions;
        let mut files: Vec<(String, Vec<u8>)> = tokenizer::read(&self.file, max_positions)?
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect();
        let pooling_key = format!("{}.pooling_type", self.architecture.name());
        match self.file.size(&pooling_key)? {
            Some(id) if id != 0 && !self.architecture.is_causal() => {
                let pooling = Pooling::from_id(id).ok_or_else(|| {
                    self.file
                        .wrong(&pooling_key, "0 (none), 1 (mean), 2 (the first token) or 3 (the last token)")
                })?;
                let normalize = self.file.flag(NORMALIZE)?.unwrap_or(true);
                let max_len = self.file.size(MAX_LEN)?.unwrap_or(max_positions);
                files.extend(
                    sentence(pooling, normalize, max_len, self.sizes.d_model)
                        .into_iter()
                        .map(|(name, json)| (name.to_owned(), pretty(&json))),
                );
            }
            _ => {}
        }
        // Last: a folder with it is whole.
        files.push(("config.json".into(), pretty(&Json::Object(self.config.clone()))));
        Ok(files)
    }
}

/// The files of sentence-transformers.
fn sentence(pooling: Pooling, normalize: bool, max_len: usize, d_model: usize) -> Vec<(&'static str, Json)> {
    let mut modules = vec![("", "Transformer"), ("1_Pooling", "Pooling")];
    if normalize {
        modules.push(("2_Normalize", "Normalize"));
    }
    let module = |(idx, (path, kind)): (usize, (&str, &str))| {
        let kind = format!("sentence_transformers.models.{kind}");
        json!({ "idx": idx, "name": idx.to_string(), "path": path, "type": kind })
    };
    let modules = modules.into_iter().enumerate().map(module).collect();
    vec![
        (
            "1_Pooling/config.json",
            json!({
                "word_embedding_dimension": d_model,
                "pooling_mode_cls_token": pooling == Pooling::Cls,
                "pooling_mode_mean_tokens": pooling == Pooling::Mean,
                "pooling_mode_lasttoken": pooling == Pooling::Last,
                "include_prompt": true,
            }),
        ),
        ("sentence_bert_config.json", json!({ "max_seq_length": max_len, "do_lower_case": false })),
        ("modules.json", Json::Array(modules)),
    ]
}

/// The folder of a file, in `cache`, which is created if necessary; made if it is not there yet. Its name is a hash of the
/// file's path, time, size and head.
///
/// # Errors
/// [`GgufError::Io`], and those of [`ModelFile::open`]; [`GgufError::Tensor`] for tensors that this crate does not read;
/// [`GgufError::Tokenizer`].
pub fn unpack(path: &Path, cache: &Path) -> Result<PathBuf> {
    let model = ModelFile::open(path)?;
    // Before anything is written.
    for (tensor, _) in model.tensors()? {
        model.file.bytes(tensor)?;
    }
    let absolute = fs::canonicalize(path).map_err(GgufError::io("find", path))?;
    let folder = cache.join(hash(&model.file, &absolute)?);
    if folder.join("config.json").is_file() && folder.join(WEIGHTS).is_file() {
        return Ok(folder);
    }
    let files = model.files()?;
    fs::create_dir_all(cache).map_err(GgufError::io("create", cache))?;
    let partial = tempfile::Builder::new()
        .prefix(".partial-")
        .tempdir_in(cache)
        .map_err(GgufError::io("create a folder in", cache))?;
    for (name, bytes) in files {
        let to = partial.path().join(name);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(GgufError::io("create", parent))?;
        }
        fs::write(&to, bytes).map_err(GgufError::io("write", &to))?;
    }
    let weights = partial.path().join(WEIGHTS);
    link(&absolute, &weights).map_err(GgufError::io("link the weights as", &weights))?;
    match fs::rename(partial.path(), &folder) {
        // It is the folder now.
        Ok(()) => drop(partial.keep()),
        // Another process made it in the meantime.
        Err(_) if folder.join("config.json").is_file() => {}
        Err(error) => return Err(GgufError::io("create", &folder)(error)),
    }
    Ok(folder)
}

fn hash(file: &GgufFile, absolute: &Path) -> Result<String> {
    let found = fs::metadata(absolute).map_err(GgufError::io("read", absolute))?;
    let modified =
        found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut hasher = Sha256::new();
    // What a folder holds may change with the program.
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(modified.as_nanos().to_le_bytes());
    hasher.update(found.len().to_le_bytes());
    let path = absolute.as_os_str().as_encoded_bytes();
    hasher.update((path.len() as u64).to_le_bytes());
    hasher.update(path);
    hasher.update(file.head());
    Ok(hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// Links a file; where the system has no symbolic links, by a hard link or a copy.
fn link(file: &Path, to: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if std::os::unix::fs::symlink(file, to).is_ok() {
        return Ok(());
    }
    fs::hard_link(file, to).or_else(|_| fs::copy(file, to).map(drop))
}
