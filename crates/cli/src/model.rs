//! What `--model` means: a folder, or a model on the hub.

use std::path::PathBuf;

use anyhow::Result;

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
    return crate::hub::with_progress(|progress| cloze::names::find_with(text, progress));
    #[cfg(not(feature = "hub"))]
    Ok(cloze::names::find(text)?)
}
