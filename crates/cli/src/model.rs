//! What `--model` means: a folder, or a model on the hub.

use std::path::PathBuf;

use anyhow::Result;
use cloze_model::huggingface::unknown_settings;

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
