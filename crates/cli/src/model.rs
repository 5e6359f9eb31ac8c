//! What `--model` means: a folder, or a model on the hub.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use crate::failure::WrongUsage;

/// The help of `--model`, where a model's name does as well.
#[cfg(feature = "hub")]
pub const HELP: &str =
    "A folder in Hugging Face's format (config.json, weights and a tokenizer), or a model's name on the hub";
/// The help of `--model`.
#[cfg(not(feature = "hub"))]
pub const HELP: &str = "A folder in Hugging Face's format: config.json, weights and a tokenizer";

/// The folder of the model that `text` means; see `cloze pull` for what is downloaded, and where to.
///
/// A folder that is there wins over a name, and what is written as only a path is (./x, /x) is one.
#[cfg(feature = "hub")]
pub fn folder(text: &str) -> Result<PathBuf> {
    use cloze_hub::Source;

    match Source::of(text) {
        Ok(Source::Folder(folder)) => checked(folder, ""),
        Ok(Source::Name(name)) => match crate::hub::fetch(&name) {
            Ok(model) => Ok(model.folder),
            Err(error) => {
                Err(error.context(format!("there is no folder {text:?}, and no such model to be had")))
            }
        },
        Err(error) => {
            Err(WrongUsage::new(anyhow::Error::new(error).context(format!("there is no folder {text:?}")))
                .into())
        }
    }
}

/// The folder that `text` names.
#[cfg(not(feature = "hub"))]
pub fn folder(text: &str) -> Result<PathBuf> {
    const HINT: &str = "; names on the hub need `cargo build --release -p cloze --features hub`";
    checked(PathBuf::from(text), HINT)
}

/// The folder, if it is there (else `hint` says what else may have been meant) and not that of a run, which has
/// its model in a folder of its own.
fn checked(folder: PathBuf, hint: &str) -> Result<PathBuf> {
    if !folder.exists() {
        bail!("there is no folder {:?}{hint}", folder.display().to_string());
    }
    let has_config = |folder: &Path| folder.join("config.json").exists();
    let model = folder.join("model");
    if !has_config(&folder) && has_config(&model) {
        let message = format!("{} is a run's folder: its model is in {}", folder.display(), model.display());
        return Err(WrongUsage::new(anyhow!(message)).into());
    }
    Ok(folder)
}
