//! Resolves `--model`: a folder, a GGUF file, or a model on the hub.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use clap::ValueEnum;
use cloze_model::generate::EnsembleMean;
use cloze_model::huggingface::unknown_settings;
use cloze_search::ModelIdentity;

use crate::failure::WrongUsage;
use crate::output::say;

/// Help for `--model` where hub names are accepted.
#[cfg(feature = "hub")]
pub const HELP: &str = "A folder in Hugging Face's format (config.json, weights and a tokenizer), a GGUF file, or a model's name on the \
     hub";
/// Help for `--model`.
#[cfg(not(feature = "hub"))]
pub const HELP: &str =
    "A folder in Hugging Face's format (config.json, weights and a tokenizer), or a GGUF file";

/// Help for `--model` where several models can work together.
pub fn for_ensemble() -> String {
    format!("{HELP}; may be repeated: the models then write together and need one target vocabulary")
}

/// How models work together.
#[derive(Clone, Copy, clap::Args)]
pub struct EnsembleArgs {
    /// With several models, how their probabilities of each next token are combined (default: log).
    #[arg(long, value_enum)]
    mean: Option<Mean>,
}

impl EnsembleArgs {
    /// How so many models work together.
    ///
    /// # Errors
    /// [`WrongUsage`] if it is given for one model.
    pub fn mean(self, n_models: usize) -> Result<EnsembleMean> {
        match self.mean {
            Some(_) if n_models < 2 => {
                let problem = "--mean combines several models: repeat --model, or leave --mean out";
                Err(WrongUsage::new(anyhow!(problem)).into())
            }
            None | Some(Mean::Log) => Ok(EnsembleMean::Log),
            Some(Mean::Probability) => Ok(EnsembleMean::Probability),
        }
    }
}

/// The members of an ensemble, each of the folder of a `--model`.
///
/// # Errors
/// Those of [`folder`] and of `load`; of several models, they name the folder that they are about.
pub fn members<M>(models: &[String], load: impl Fn(&Path) -> Result<M>) -> Result<Vec<M>> {
    let member = |model: &String| {
        let folder = folder(model)?;
        let member = load(&folder);
        if models.len() > 1 { member.with_context(|| folder.display().to_string()) } else { member }
    };
    models.iter().map(member).collect()
}

#[derive(Clone, Copy, ValueEnum)]
enum Mean {
    /// The mean of the log-probabilities, as in OpenNMT-py and Marian.
    Log,
    /// The logarithm of the mean probability, as in fairseq.
    Probability,
}

/// The folder of the model named by `text`; see `cloze pull` for what is downloaded, and where to.
///
/// # Errors
/// Those of [`cloze::names::find`].
pub fn folder(text: &str) -> Result<PathBuf> {
    #[cfg(feature = "hub")]
    let folder = crate::hub::with_progress(|progress| cloze::names::find_with(text, progress))?;
    #[cfg(not(feature = "hub"))]
    let folder = cloze::names::find(text)?;
    // A file that cannot be read is the error of whoever needs it.
    for (file, keys) in unknown_settings(&folder).unwrap_or_default() {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
        let keys = keys.join(", ");
        say(format_args!("{}: unknown keys {keys} are ignored", folder.join(file).display()));
    }
    Ok(folder)
}

/// The bytes of a folder's files of weights.
///
/// # Errors
/// A folder that cannot be read.
pub fn weight_bytes(folder: &Path) -> Result<u64> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") || name.ends_with(".bin") {
            bytes += fs::metadata(entry.path()).with_context(cannot)?.len();
        }
    }
    Ok(bytes)
}

/// A substitute for the expected model.
#[derive(Default, clap::Args)]
pub struct OtherModel {
    /// Accept a model whose files have this hash, or a hash with this prefix, in place of the one that made the
    /// vectors. The refusal message gives the hash.
    #[arg(long, value_name = "HASH", value_parser = hash)]
    accept_model: Option<String>,
}

/// The minimum prefix of a hash.
const SHORTEST_HASH: usize = 8;

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() >= SHORTEST_HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let expected = format!("expected {SHORTEST_HASH} hexadecimal digits or more, from the refusal message");
    is_hash.then(|| text.to_ascii_lowercase()).ok_or(expected)
}

impl OtherModel {
    /// The hash to compare with the `expected` one: `expected` itself if the folder's hash matches, also as
    /// earlier versions computed it, or if the substitute is accepted, which is reported; else the folder's.
    pub fn hash(&self, folder: &Path, expected: Option<&str>) -> Result<String> {
        let found = ModelIdentity::hash_of(folder)?;
        let Some(expected) = expected.filter(|expected| *expected != found) else { return Ok(found) };
        if ModelIdentity::earlier_hash_of(folder)? == expected {
            return Ok(expected.to_owned());
        }
        if self.accept_model.as_ref().is_some_and(|accepted| found.starts_with(accepted)) {
            say(format_args!(
                "the vectors were made with the model {}, and {} is used, as --accept-model says",
                expected.get(..12).unwrap_or(expected),
                &found[..12]
            ));
            return Ok(expected.to_owned());
        }
        Ok(found)
    }

    /// Adds advice to a refusal of the model with this hash.
    pub fn hint(error: impl Into<Error>, found: &str) -> Error {
        let error = error.into();
        let short = found.get(..12).unwrap_or(found);
        anyhow!("{error:#}; if both compute the same, add --accept-model {short}")
    }
}

/// The form in which a model's name is stored: an absolute path for a folder or a file, or the name on the hub.
pub fn lasting_name(text: &str) -> String {
    let path = Path::new(text);
    match std::path::absolute(path) {
        Ok(absolute) if path.exists() => absolute.to_str().unwrap_or(text).to_owned(),
        _ => text.to_owned(),
    }
}
