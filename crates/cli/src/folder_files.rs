//! What a model's folder has besides its weights.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cloze_model::huggingface::SentenceConfig;
use cloze_tokenizer::{MarianTokenizers, Tokenizer};
use cloze_trainer::translation::{TRANSLATION_FILE, TokenizerPlaces};

use crate::output::say;

/// Files kept besides configuration, weights and tokenizer: the task of a fine-tuned model, the languages of a
/// translation model, and sentence-transformers' modules, each described in a folder of its own.
const KEPT: [&str; 6] = [
    "task.json",
    TRANSLATION_FILE,
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

/// The tokenizers of a folder.
pub enum Tokenizers {
    /// Each with its folder; rewritten.
    Each(Vec<(PathBuf, Tokenizer)>),
    /// Marian's, whose files are copied: transformers reads no other format, and `tokenizer.json` would hold
    /// only one language.
    Marian,
}

impl Tokenizers {
    /// Reads them.
    ///
    /// # Errors
    /// Those of the tokenizers.
    pub fn load(folder: &Path) -> Result<Self> {
        let load = |place: PathBuf| Tokenizer::load(&place).map(|tokenizer| (place, tokenizer));
        let places = match TokenizerPlaces::of(folder) {
            TokenizerPlaces::Separate(sides) => sides.to_vec(),
            TokenizerPlaces::Marian => {
                MarianTokenizers::load(folder)?;
                return Ok(Self::Marian);
            }
            _ => vec![folder.to_owned()],
        };
        Ok(Self::Each(places.into_iter().map(load).collect::<Result<_, _>>()?))
    }

    /// Writes them to the same relative paths in `to` as in `from`.
    pub fn save(&self, from: &Path, to: &Path) -> Result<()> {
        match self {
            Self::Each(all) => all.iter().try_for_each(|(place, tokenizer)| {
                let place = to.join(place.strip_prefix(from)?);
                fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
                Ok(tokenizer.save(&place)?)
            }),
            Self::Marian => {
                MarianTokenizers::FILES.iter().try_for_each(|name| copy(from, to, Path::new(name)))
            }
        }
    }

    /// Names the keys of `tokenizer_config.json` that are dropped because cloze does not support them.
    pub fn tell_ignored(&self) {
        let ignored = self.ignored();
        if !ignored.is_empty() {
            say(format_args!(
                "omitted from tokenizer_config.json, because cloze does not support it: {}",
                ignored.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
    }

    fn ignored(&self) -> BTreeSet<&str> {
        let all = match self {
            Self::Each(all) => &all[..],
            Self::Marian => &[],
        };
        all.iter().flat_map(|(_, tokenizer)| &tokenizer.config().ignored).map(String::as_str).collect()
    }
}

/// Copies a file, if it exists, from the folder `from` to the same path in the folder `to`.
fn copy(from: &Path, to: &Path, name: &Path) -> Result<()> {
    let (source, target) = (from.join(name), to.join(name));
    if source.is_file() {
        let parent = target.parent().unwrap_or(to);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        fs::copy(&source, &target).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    Ok(())
}

/// Copies the files in [`KEPT`] and the configuration of each subfolder, such as the module `1_Pooling`; for
/// `Dense` modules the weights too, unchanged.
///
/// # Errors
/// A file that cannot be read or copied.
pub fn copy_kept(from: &Path, to: &Path) -> Result<()> {
    let copy = |name: &Path| copy(from, to, name);
    KEPT.iter().try_for_each(|name| copy(Path::new(name)))?;
    let Some(sentence) = SentenceConfig::load(from)? else { return Ok(()) };
    let entries = fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", from.display()))?;
        copy(&Path::new(&entry.file_name()).join("config.json"))?;
    }
    let weights = ["model.safetensors", "pytorch_model.bin"];
    sentence
        .dense
        .iter()
        .try_for_each(|module| weights.iter().try_for_each(|name| copy(&Path::new(module).join(name))))
}
