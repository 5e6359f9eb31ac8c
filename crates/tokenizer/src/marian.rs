//! The tokenizers in a Marian model folder, such as an OPUS-MT model.

use std::path::Path;

use serde::Deserialize;

use crate::{Error, Result, Tokenizer, Vocab, files, sentencepiece};

const SOURCE: &str = "source.spm";
const TARGET: &str = "target.spm";
const VOCAB: &str = "vocab.json";
const TARGET_VOCAB: &str = "target_vocab.json";

/// The tokenizers of a Marian or OPUS-MT model: two SentencePiece models, `source.spm` and `target.spm`, whose pieces
/// have the ids of `vocab.json`.
///
/// Ids and texts are those of transformers' `MarianTokenizer`: a piece that the vocabulary lacks is `<unk>`,
/// a leading code such as `>>fr<<` is one token (if at most 64 bytes), and `</s>` ends every text. Only
/// SentencePiece's own rules normalise a text: transformers, too, no longer applies Moses' punctuation rules
/// when encoding. The output of [`Tokenizer::save`] is for cloze alone; transformers reads the original
/// files.
///
/// ```no_run
/// # use cloze_tokenizer::MarianTokenizers;
/// let MarianTokenizers { source, target, .. } = MarianTokenizers::load("opus-mt-en-fr")?;
/// let ids = source.encode("A dog runs.", true)?.ids;
/// let text = target.decode(&ids, true)?;
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MarianTokenizers {
    /// For source texts.
    pub source: Tokenizer,
    /// For target texts.
    pub target: Tokenizer,
}

/// Marian's own keys of `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct Settings {
    /// Whether the target's ids are those of `target_vocab.json`.
    #[serde(default)]
    separate_vocabs: Option<bool>,
}

impl MarianTokenizers {
    /// The files read from a folder; all but the first three are optional.
    pub const FILES: [&str; 7] =
        [SOURCE, TARGET, VOCAB, TARGET_VOCAB, files::CONFIG, files::SPECIAL, files::ADDED];

    /// Whether a folder has their files.
    pub fn are_in(folder: impl AsRef<Path>) -> bool {
        Self::FILES[..3].iter().all(|name| folder.as_ref().join(name).is_file())
    }

    /// Reads a folder's `source.spm`, `target.spm` and `vocab.json`, with `tokenizer_config.json` if there is one. Where
    /// that declares `separate_vocabs`, the target's ids are those of `target_vocab.json`.
    ///
    /// # Errors
    /// A missing or unreadable file, by name; a model that is not Unigram; a vocabulary without `<unk>`,
    /// `</s>` or `<pad>`.
    pub fn load(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let config_path = folder.join(files::CONFIG);
        let config = files::read_config(&config_path)?.unwrap_or_default().with_marian_names();
        let settings = match config_path.is_file() {
            true => files::in_file(&config_path, |text| {
                serde_json::from_str::<Settings>(text).map_err(|error| Error::json(files::CONFIG, &error))
            })?,
            false => Settings::default(),
        };
        let unk_token = config.unk_token.as_ref().map_or("<unk>", |token| token.content.as_str());
        let load = |model: &str, vocab: &str| {
            let (model, vocab) = (folder.join(model), folder.join(vocab));
            let ids: Vocab = files::in_file(&vocab, |text| {
                serde_json::from_str(text).map_err(|error| Error::json("vocab.json", &error))
            })?;
            if ids.id(unk_token).is_none() {
                let message = format!("there is no {unk_token:?}, which is needed");
                return Err(Error::invalid("the vocabulary", message).in_file(&vocab));
            }
            let bytes = files::read_bytes(&model)?;
            let (tokenizer, byte_fallback) =
                sentencepiece::marian(&bytes, ids, unk_token).map_err(|error| error.in_file(&model))?;
            config.clone().set_marian(tokenizer, byte_fallback).map_err(|error| error.in_file(&vocab))
        };
        let target_vocab = if settings.separate_vocabs == Some(true) { TARGET_VOCAB } else { VOCAB };
        Ok(Self { source: load(SOURCE, VOCAB)?, target: load(TARGET, target_vocab)? })
    }
}
