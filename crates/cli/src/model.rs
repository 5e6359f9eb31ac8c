//! What `--model` means: a folder, or a model on the hub.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use cloze_model::huggingface::unknown_settings;
use cloze_search::ModelIdentity;

use crate::output::say;

/// The help of `--model`, where a model's name does as well.
#[cfg(feature = "hub")]
pub const HELP: &str =
    "A folder in Hugging Face's format (config.json, weights and a tokenizer), or a model's name on the hub";
/// The help of `--model`.
#[cfg(not(feature = "hub"))]
pub const HELP: &str = "A folder in Hugging Face's format: config.json, weights and a tokenizer";

/// The folder of the model that `text` means; see `cloze pull` for what is downloaded, and where to.
///
/// # Errors
/// As [`cloze::names::find`].
pub fn folder(text: &str) -> Result<PathBuf> {
    #[cfg(feature = "hub")]
    let folder = crate::hub::with_progress(|progress| cloze::names::find_with(text, progress))?;
    #[cfg(not(feature = "hub"))]
    let folder = cloze::names::find(text)?;
    // A file that cannot be read is the error of whoever needs it.
    for (file, keys) in unknown_settings(&folder).unwrap_or_default() {
        let keys: Vec<String> = keys.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
        let keys = keys.join(", ");
        say(format_args!(
            "{}: nothing is known of {keys}, which are left alone",
            folder.join(file).display()
        ));
    }
    Ok(folder)
}

/// Which model is taken for another one.
#[derive(Default, clap::Args)]
pub struct OtherModel {
    /// Use a model whose files have this hash, or one that begins so, as if it were the one that made the vectors. A refusal names
    /// the hash.
    #[arg(long, value_name = "HASH", value_parser = hash)]
    accept_model: Option<String>,
}

/// Characters of a hash that tell one model from another.
const SHORTEST_HASH: usize = 8;

fn hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() >= SHORTEST_HASH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let expected =
        format!("expected {SHORTEST_HASH} hexadecimal digits or more, as the refusal of a model names them");
    is_hash.then(|| text.to_ascii_lowercase()).ok_or(expected)
}

impl OtherModel {
    /// A hash to compare with the `expected` one: this one if the folder's is the same, also as earlier versions made it, or is
    /// accepted in its place, which is told; else the folder's.
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

    /// What can be done about a refusal of the model with this hash.
    pub fn hint(error: impl Into<Error>, found: &str) -> Error {
        let error = error.into();
        let short = found.get(..12).unwrap_or(found);
        anyhow!("{error:#}; if both compute the same, add --accept-model {short}")
    }
}

/// What is kept of a model's name: where a folder is, whoever looks for it from wherever, or the name on the hub.
pub fn lasting_name(text: &str) -> String {
    let path = Path::new(text);
    match std::path::absolute(path) {
        Ok(absolute) if path.is_dir() => absolute.to_str().unwrap_or(text).to_owned(),
        _ => text.to_owned(),
    }
}
