//! A saved translation model's folder: the model's own files, the tokenizers, and `translation.json`.
//!
//! ```text
//! config.json, model.safetensors   the model
//! tokenizer.json                   the shared vocabulary, or
//! source/tokenizer.json            the source's, and
//! target/tokenizer.json            the target's
//! translation.json                 the languages, and how to decode
//! ```

use super::vocabulary::Vocabularies;
use crate::{Result, TrainerError};
use cloze_files::write_atomic;
use cloze_model::generate::LengthPenalty;
use cloze_tokenizer::{MarianTokenizers, Tokenizer};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The file with a folder's languages.
pub const TRANSLATION_FILE: &str = "translation.json";

const TOKENIZER: &str = "tokenizer.json";
const SIDES: [&str; 2] = ["source", "target"];

/// `translation.json`: a model's languages, and its default decoding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TranslationFile {
    /// The source language.
    pub source: String,
    /// The target language.
    pub target: String,
    /// Maximum tokens of a source, special tokens included.
    pub max_len: usize,
    /// How to decode.
    #[serde(default)]
    pub decoding: DecodingDefaults,
}

impl TranslationFile {
    /// For two languages, with sources of at most this many tokens.
    pub fn new(languages: [&str; 2], max_len: usize) -> Self {
        let [source, target] = languages.map(str::to_owned);
        Self { source, target, max_len, decoding: DecodingDefaults::default() }
    }
}

/// The default decoding settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DecodingDefaults {
    /// Beams; 1 is greedy.
    pub beams: usize,
    /// The exponent `α` of the length penalty: scores are divided by `length^α`.
    pub length_penalty: f64,
    /// A translation has at most this many times the tokens of its source, plus [`max_extra`](Self::max_extra).
    pub max_ratio: f64,
    /// See [`max_ratio`](Self::max_ratio).
    pub max_extra: usize,
}

impl Default for DecodingDefaults {
    fn default() -> Self {
        Self { beams: 5, length_penalty: 1.0, max_ratio: 2.0, max_extra: 10 }
    }
}

impl DecodingDefaults {
    /// The maximum of `max_extra` in a file: a model may generate until it runs out of positions, and some
    /// models have no limit.
    pub const MAX_EXTRA: usize = 100_000;

    /// The maximum tokens of a translation of a source with this many.
    pub fn max_new(&self, source: usize) -> usize {
        (self.max_ratio * source as f64) as usize + self.max_extra
    }
}

/// Saves tokenizers and `translation.json` in an existing folder.
///
/// # Errors
/// A file that cannot be written.
pub(super) fn save(folder: &Path, vocabularies: &Vocabularies, file: &TranslationFile) -> Result<()> {
    if vocabularies.is_joint() {
        vocabularies.source.save(folder)?;
    } else {
        for (side, tokenizer) in SIDES.iter().zip([&vocabularies.source, &vocabularies.target]) {
            let folder = folder.join(side);
            fs::create_dir_all(&folder).map_err(TrainerError::io("make", &folder))?;
            tokenizer.save(&folder)?;
        }
    }
    let json = serde_json::to_string_pretty(file).expect("plain values serialise");
    Ok(write_atomic(&folder.join(TRANSLATION_FILE), (json + "\n").as_bytes())?)
}

/// The location of a folder's tokenizers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenizerPlaces {
    /// In the folder itself: one tokenizer for all texts.
    Joint,
    /// The source's and the target's, in these subfolders.
    Separate([PathBuf; 2]),
    /// In the folder itself, as [Marian's files](MarianTokenizers).
    Marian,
}

impl TokenizerPlaces {
    /// The places in `folder`, which may be that of any model.
    pub fn of(folder: &Path) -> Self {
        let sides = SIDES.map(|side| folder.join(side));
        if sides.iter().all(|side| side.is_dir()) {
            return Self::Separate(sides);
        }
        match !folder.join(TOKENIZER).exists() && MarianTokenizers::are_in(folder) {
            true => Self::Marian,
            false => Self::Joint,
        }
    }
}

/// The tokenizers of a folder. Folders from other programs have subfolders `source` and `target`, or one
/// tokenizer for both, or Marian's files: `source.spm`, `target.spm` and `vocab.json`.
///
/// # Errors
/// A tokenizer that is missing, unreadable, or unsuitable for translation.
pub fn load_vocabularies(folder: &Path) -> Result<Vocabularies> {
    let whole = |mut tokenizer: Tokenizer| -> Result<Tokenizer> {
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        Ok(tokenizer)
    };
    let load = |path: &Path| whole(Tokenizer::load(path)?);
    match TokenizerPlaces::of(folder) {
        TokenizerPlaces::Joint => Vocabularies::joint(load(folder)?),
        TokenizerPlaces::Separate([source, target]) => Vocabularies::separate(load(&source)?, load(&target)?),
        TokenizerPlaces::Marian => {
            // Two tokenizers, even where the ids of both are those of one vocabulary.
            let MarianTokenizers { source, target, .. } = MarianTokenizers::load(folder)?;
            Vocabularies::separate(whole(source)?, whole(target)?)
        }
    }
}

/// A folder's `translation.json`; none if it has none.
///
/// # Errors
/// [`TrainerError::Io`]; [`TrainerError::BadTaskFile`] for a malformed file.
pub fn read_translation_file(folder: &Path) -> Result<Option<TranslationFile>> {
    let path = folder.join(TRANSLATION_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(TrainerError::io("read", &path))?;
    let bad = |reason: String| TrainerError::BadTaskFile { path: path.clone(), reason };
    let file: TranslationFile = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    let DecodingDefaults { beams, length_penalty, max_ratio, max_extra } = file.decoding;
    let decodes = (1..=1_000).contains(&beams)
        && LengthPenalty::Power(length_penalty).is_valid()
        && (0.0..=1_000.0).contains(&max_ratio)
        && max_extra <= DecodingDefaults::MAX_EXTRA
        && file.max_len > 0;
    match decodes {
        true => Ok(Some(file)),
        false => Err(bad("the decoding defaults are out of range".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::train::BpeTrainer;

    fn tokenizer(vocab_size: usize) -> Tokenizer {
        BpeTrainer { vocab_size, ..BpeTrainer::default() }.train(["a dog and a dog", "ein Hund"]).unwrap()
    }

    #[test]
    fn a_folder_says_what_it_translates() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_translation_file(folder.path()).unwrap(), None);
        let file = TranslationFile::new(["en", "de"], 64);
        let joint = Vocabularies::joint(tokenizer(265)).unwrap();
        save(folder.path(), &joint, &file).unwrap();
        assert_eq!(read_translation_file(folder.path()).unwrap().unwrap(), file);
        let read = load_vocabularies(folder.path()).unwrap();
        assert!(read.is_joint() && read.special == joint.special);

        let other = tempfile::tempdir().unwrap();
        let separate = Vocabularies::separate(tokenizer(265), tokenizer(270)).unwrap();
        save(other.path(), &separate, &file).unwrap();
        let read = load_vocabularies(other.path()).unwrap();
        assert_eq!([read.source.vocab_size(), read.target.vocab_size()], [265, 270]);
        fs::write(other.path().join(TRANSLATION_FILE), r#"{"source": "en"}"#).unwrap();
        let message = read_translation_file(other.path()).unwrap_err().to_string();
        assert!(message.contains("translation.json: missing field `target`"), "{message}");
        let mut endless = file.clone();
        endless.decoding.max_extra = 1 << 60;
        save(other.path(), &separate, &endless).unwrap();
        let message = read_translation_file(other.path()).unwrap_err().to_string();
        assert!(message.contains("out of range"), "{message}");
    }
}
